// Package certs reads TLS certificates and follows their files. A renewed certificate is
// used for the next connection; while a file cannot be read, the old one stays in use.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/base/regular"
)

// Files are the PEM files of a server.
type Files struct {
	Cert, Key string // the server's certificate with its chain, and its private key; both required
	ClientCA  string // authorities of client certificates, for mutual TLS; may be empty
	// ClientNames are subject alternative names: DNS names, addresses, URIs or e-mail
	// addresses. If set, a client's certificate must have one of them, exactly.
	ClientNames []string
}

// Options do not change with the files.
type Options struct {
	Protocols  []string     // for ALPN, preferred first; may be empty
	MinVersion uint16       // minimum version of TLS; 0 means TLS 1.2
	Logger     *slog.Logger // logs changed and unusable files; required
}

// Error is an error in one of the files.
type Error struct {
	Key  string // which of the files: cert, key, client_ca, client_names or ca
	File string // its name, may be empty
	Err  error  // what is wrong with it
}

// Error returns the kind of file, its name and the error.
func (e *Error) Error() string {
	err := e.Err
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the file is named already
	}
	if e.File == "" {
		return fmt.Sprintf("%s: %v", e.Key, err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Key, e.File, err)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Server is the certificate of a server that follows its files.
type Server struct{ *follower }

// Load reads the files. The error is an *Error.
func Load(f Files, o Options) (*Server, error) {
	names := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		names = append(names, f.ClientCA)
	}
	follower, err := follow(names, o.Logger, func() (*tls.Config, error) { return f.read(&o) })
	if err != nil {
		return nil, err
	}
	return &Server{follower}, nil
}

// Config returns the configuration for a listener. Each handshake uses the current files;
// open connections do not change.
func (s *Server) Config() *tls.Config {
	c := s.current().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil }
	return c
}

// read builds a configuration from the files.
func (f *Files) read(o *Options) (*tls.Config, error) {
	pair, err := readPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: max(o.MinVersion, tls.VersionTLS12), NextProtos: o.Protocols, Certificates: []tls.Certificate{pair},
	}
	if f.ClientCA == "" {
		if len(f.ClientNames) > 0 {
			return nil, &Error{Key: "client_names", Err: errors.New("set client_ca, the authority of the clients' certificates: without it names are not checked")}
		}
		return c, nil
	}
	if c.ClientCAs, err = readPool("client_ca", f.ClientCA); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	// A resumed session would skip the check of the certificate, and so outlive an
	// authority that is no longer trusted.
	c.SessionTicketsDisabled = true
	if len(f.ClientNames) > 0 {
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyName(s, f.ClientNames) }
	}
	return c, nil
}

// verifyName checks that the client's certificate has one of the names.
func verifyName(s tls.ConnectionState, names []string) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the client sent no certificate")
	}
	c := s.PeerCertificates[0]
	has := slices.Concat(c.DNSNames, c.EmailAddresses)
	for _, u := range c.URIs {
		has = append(has, u.String())
	}
	for _, ip := range c.IPAddresses {
		has = append(has, ip.String())
	}
	if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(has, name) }) {
		return errors.New("the client's certificate has no allowed name")
	}
	return nil
}

// maxFile is the size of the largest file that is read, in bytes. A bundle of all public
// authorities is a quarter of it.
const maxFile = 1 << 20

func readFile(key, name string) ([]byte, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, &Error{Key: key, File: name, Err: err}
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("the file is larger than 1 MiB")
	}
	if err != nil {
		return nil, &Error{Key: key, File: name, Err: err}
	}
	return text, nil
}

// readPair reads a certificate and its key.
func readPair(cert, key string) (tls.Certificate, error) {
	certText, err := readFile("cert", cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyText, err := readFile("key", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	if _, err := parseAll("cert", cert, certText); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "tls: ")
		if strings.Contains(text, "does not match public key") {
			text = "the key does not match the certificate in " + cert
		}
		return tls.Certificate{}, &Error{Key: "key", File: key, Err: errors.New(text)}
	}
	return pair, nil
}

// readPool reads certificate authorities.
func readPool(key, name string) (*x509.CertPool, error) {
	text, err := readFile(key, name)
	if err != nil {
		return nil, err
	}
	all, err := parseAll(key, name, text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool, nil
}

// parseAll returns the certificates in a file. It must have at least one, and none may be
// invalid: skipping one would refuse its clients or break a chain.
func parseAll(key, name string, text []byte) ([]*x509.Certificate, error) {
	wrong := func(err error) error { return &Error{Key: key, File: name, Err: err} }
	var all []*x509.Certificate
	other := ""
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, wrong(fmt.Errorf("certificate %d: %w", len(all)+1, err))
		}
		all = append(all, c)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case other != "":
		return nil, wrong(fmt.Errorf("no certificate, only %q", other))
	}
	return nil, wrong(errors.New("no PEM certificate"))
}

// follower holds a configuration that is read from files, and reads it again when they
// change. It checks the files on use, which takes a few microseconds of a handshake and
// needs no goroutine.
type follower struct {
	names []string
	read  func() (*tls.Config, error)
	log   *slog.Logger
	now   atomic.Pointer[tls.Config]

	mu      sync.Mutex
	seen    []os.FileInfo // at the last attempt; nil for a missing file
	failure string        // of the last attempt, already logged
}

func follow(names []string, log *slog.Logger, read func() (*tls.Config, error)) (*follower, error) {
	f := &follower{names: names, read: read, log: log}
	f.seen = f.look()
	about, err := f.load()
	if len(about) > 0 {
		f.log.Info("certificate in use", about...)
	}
	return f, err
}

// load reads the files. It returns log attributes about their certificate, or nothing if
// there is none.
func (f *follower) load() (about []any, err error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	f.now.Store(c)
	if len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return nil, nil
	}
	leaf := c.Certificates[0].Leaf
	return []any{"file", f.names[0], "names", strings.Join(leaf.DNSNames, " "), "expires", leaf.NotAfter}, nil
}

// current returns the configuration, after reading changed files.
func (f *follower) current() *tls.Config {
	// If another goroutine is checking the files, use what there is.
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		if seen := f.look(); !same(seen, f.seen) {
			f.seen = seen
			_ = f.attempt() // logged, and the old one stays in use
		}
	}
	return f.now.Load()
}

// Reload reads the files now, even if they seem unchanged. The error is an *Error; the
// old ones then stay in use.
func (f *follower) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = f.look()
	return f.attempt()
}

// attempt needs f.mu to be held.
func (f *follower) attempt() error {
	before := f.failure
	f.failure = ""
	about, err := f.load()
	if len(about) > 0 {
		f.log.Info("certificate reloaded", about...)
	}
	if err != nil {
		// The files may be half written, or wrong; log it once.
		if f.failure = err.Error(); f.failure != before {
			f.log.Error("certificate not reloaded, the old one stays in use", "err", err)
		}
	}
	return err
}

func (f *follower) look() []os.FileInfo {
	seen := make([]os.FileInfo, len(f.names))
	for i, name := range f.names {
		if info, err := os.Stat(name); err == nil { // follows symlinks, which may be swapped
			seen[i] = info
		}
	}
	return seen
}

// same reports whether the files have not changed.
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
