package rulefile

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/regular"
	"github.com/headgate/headgate/internal/rules/tablefile"
)

// Tables are the tables that the rules of some files use: those of the last time that they
// were read. They are safe for concurrent use. A nil *Tables remembers nothing.
//
// A table has a fingerprint of its own, made while it was read, because which tables there
// are is known only once the rules have been read.
type Tables struct {
	mu    sync.Mutex
	known map[string]*tableState // by path
	using map[string]bool        // since begin
}

// tableState is what is known of a table.
type tableState struct {
	read [sha256.Size]byte // of what was read
	// The file when its hash was made, so that an unchanged file is not read again.
	seen fileState
	hash [sha256.Size]byte
}

// fileState is by what an unchanged file is recognised.
type fileState struct {
	size    int64
	changed time.Time
	info    os.FileInfo
}

// fresh is how old the last change of a file must be to trust its time: two changes may
// have the same.
const fresh = 2 * time.Second

// covered is how many bytes of a table a fingerprint covers: a larger one is refused.
const covered = tablefile.MaxSize + 1

// begin begins reading the rules.
func (t *Tables) begin() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.using = map[string]bool{}
}

// end forgets tables that are no longer used, if all rules have been read. Otherwise some
// rules may not have got as far as their table.
func (t *Tables) end(complete bool) { //nolint:revive // a fact, not a choice
	if t == nil || !complete {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for path := range t.known {
		if !t.using[path] {
			delete(t.known, path)
		}
	}
}

// Paths returns the paths of the tables, sorted.
func (t *Tables) Paths() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	paths := make([]string, 0, len(t.known))
	for path := range t.known {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// open opens a table to read it.
func (t *Tables) open(path string) (io.ReadCloser, error) {
	f, err := openTable(path)
	if t == nil {
		return readCloser(f), err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]*tableState{}
	}
	state := &tableState{}
	t.known[path], t.using[path] = state, true
	if err != nil {
		return nil, err
	}
	return &hashed{File: f, tables: t, state: state, sum: sha256.New(), left: covered}, nil
}

// readCloser returns f, or nil if there is none.
func readCloser(f *os.File) io.ReadCloser {
	if f == nil {
		return nil
	}
	return f
}

// hashed is a table that is being read.
type hashed struct {
	*os.File
	tables *Tables
	state  *tableState
	sum    hash.Hash
	left   int // how many bytes the fingerprint still covers
}

// Read implements io.Reader.
func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.File.Read(p)
	part := min(n, h.left)
	_, _ = h.sum.Write(p[:part]) // never fails
	h.left -= part
	return n, err
}

// Close reads what a mistake has left and notes the fingerprint.
func (h *hashed) Close() error {
	_, _ = io.Copy(io.Discard, io.LimitReader(struct{ io.Reader }{h}, int64(h.left)))
	h.tables.mu.Lock()
	h.state.read = [sha256.Size]byte(h.sum.Sum(nil))
	h.tables.mu.Unlock()
	return h.File.Close()
}

// Changed reports whether any table is not as it was when it was read.
func (t *Tables) Changed() bool {
	if t == nil {
		return false
	}
	for _, path := range t.Paths() {
		now := t.hashOf(path)
		t.mu.Lock()
		state := t.known[path]
		changed := state != nil && state.read != now
		t.mu.Unlock()
		if changed {
			return true
		}
	}
	return false
}

// Fingerprint returns a hash of the names and contents of the tables.
func (t *Tables) Fingerprint() [sha256.Size]byte {
	if t == nil {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	for _, path := range t.Paths() {
		sum := t.hashOf(path)
		_, _ = io.WriteString(h, path+"\x00")
		_, _ = h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Loaded returns a hash of the names and contents of the tables as they were read.
func (t *Tables) Loaded() [sha256.Size]byte {
	h := sha256.New()
	for _, path := range t.Paths() {
		t.mu.Lock()
		if state := t.known[path]; state != nil {
			_, _ = io.WriteString(h, path+"\x00")
			_, _ = h.Write(state.read[:])
		}
		t.mu.Unlock()
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// hashOf returns the hash of a table; zero if it cannot be read, as when opening fails.
func (t *Tables) hashOf(path string) [sha256.Size]byte {
	info, err := os.Stat(path)
	if err != nil {
		return [sha256.Size]byte{}
	}
	t.mu.Lock()
	state := t.known[path]
	if state != nil && state.seen.is(info) {
		defer t.mu.Unlock()
		return state.hash
	}
	t.mu.Unlock()
	f, err := openTable(path)
	if err != nil {
		return [sha256.Size]byte{}
	}
	defer f.Close()                    //nolint:errcheck // it was only read
	h, now := sha256.New(), time.Now() //nolint:forbidigo // compared with the times of files
	if _, err := io.Copy(h, io.LimitReader(f, covered)); err != nil {
		return [sha256.Size]byte{}
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	if state != nil && now.Sub(info.ModTime()) > fresh {
		t.mu.Lock()
		state.seen, state.hash = fileState{info.Size(), info.ModTime(), info}, sum
		t.mu.Unlock()
	}
	return sum
}

// is reports whether a file is certainly still the same.
func (s *fileState) is(info os.FileInfo) bool {
	return s.info != nil && s.size == info.Size() && s.changed.Equal(info.ModTime()) && os.SameFile(s.info, info)
}

// openTable opens a file. Its errors are without the path, which the caller names.
func openTable(name string) (*os.File, error) {
	f, err := regular.Open(name)
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return f, err
}
