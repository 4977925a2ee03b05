package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// follower has a configuration that is made of files, and makes it anew when
// they change. It looks at the files when it is asked, and not at intervals:
// that takes a few microseconds of a handshake, and no goroutine.
type follower struct {
	names []string
	read  func() (*tls.Config, error)
	log   *slog.Logger
	now   atomic.Pointer[tls.Config]

	mu      sync.Mutex
	seen    []os.FileInfo // of the last attempt; nil for a file that is not there
	failure string        // of the last attempt, which has been logged
}

func follow(names []string, log *slog.Logger, read func() (*tls.Config, error)) (*follower, error) {
	f := &follower{names: names, read: read, log: log}
	f.seen = f.look()
	c, err := read()
	if err != nil {
		return nil, err
	}
	f.now.Store(c)
	if leaf := leafOf(c); leaf != nil {
		f.log.Info("certificate in use", about(names[0], leaf)...)
	}
	return f, nil
}

// current returns the configuration, made anew if the files have changed.
func (f *follower) current() *tls.Config {
	// Whoever comes while another looks takes what there is.
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		if seen := f.look(); !same(seen, f.seen) {
			f.seen = seen
			_ = f.attempt() // it has been logged, and the old one is in use
		}
	}
	return f.now.Load()
}

// Reload reads the files now, whether they seem to have changed or not. The
// error is an *Error; the old ones then stay in use.
func (f *follower) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = f.look()
	return f.attempt()
}

// attempt needs f.mu to be held.
func (f *follower) attempt() error {
	c, err := f.read()
	if err != nil {
		// Perhaps half of the files has been written, or they are wrong for
		// good; that is said once.
		if text := err.Error(); text != f.failure {
			f.failure = text
			f.log.Error("certificate not reloaded, the old one stays in use", "err", err)
		}
		return err
	}
	f.failure = ""
	f.now.Store(c)
	if leaf := leafOf(c); leaf != nil {
		f.log.Info("certificate reloaded", about(f.names[0], leaf)...)
	}
	return nil
}

// leafOf returns the certificate of c, or nil if it has none.
func leafOf(c *tls.Config) *x509.Certificate {
	if len(c.Certificates) == 0 {
		return nil
	}
	return c.Certificates[0].Leaf
}

// about is what the log says about a certificate.
func about(file string, leaf *x509.Certificate) []any {
	return []any{"file", file, "names", strings.Join(leaf.DNSNames, " "), "expires", leaf.NotAfter}
}

func (f *follower) look() []os.FileInfo {
	seen := make([]os.FileInfo, len(f.names))
	for i, name := range f.names {
		if info, err := os.Stat(name); err == nil { // follows links, which may be swapped
			seen[i] = info
		}
	}
	return seen
}

// same reports whether the files are those of before, and untouched.
func same(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] == nil {
			continue
		}
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}
