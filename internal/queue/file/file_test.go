package file_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/queue/file"
)

func open(t *testing.T, path string) (*file.Store, *file.Repair) {
	t.Helper()
	s, repair, err := file.Open(file.Options{Path: path, Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, repair
}

func entry(n, size int) *queue.Entry {
	now := time.Now()
	return &queue.Entry{
		ID: queue.NewID(), Domain: "api", Rule: "orders", Scope: "orders", Key: fmt.Sprint(n % 7), Method: "POST",
		URI: fmt.Sprintf("/%d", n), Header: http.Header{"X-N": {fmt.Sprint(n)}}, Body: bytes.Repeat([]byte{byte(n)}, size),
		Accepted: now, Expires: now.Add(time.Hour),
	}
}

// put stores n entries concurrently and returns the accepted ones.
func put(t *testing.T, s *file.Store, n, size int) map[string]*queue.Entry {
	t.Helper()
	p := queue.DefaultPolicy()
	p.KeyShare = 100
	var mu sync.Mutex
	accepted := map[string]*queue.Entry{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			e := entry(i, size)
			if _, err := s.Put(context.Background(), e, &p); err == nil {
				mu.Lock()
				accepted[e.ID] = e
				mu.Unlock()
			} else if !errors.Is(err, queue.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return accepted
}

// check fails unless the store has exactly these entries.
func check(t *testing.T, s *file.Store, want map[string]*queue.Entry) {
	t.Helper()
	items, err := s.List(t.Context(), queue.Query{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		e := want[items[i].Entry.ID]
		if e == nil {
			t.Errorf("%s is there and was not accepted", items[i].Entry.URI)
		} else if !bytes.Equal(e.Body, items[i].Entry.Body) || e.URI != items[i].Entry.URI {
			t.Errorf("%s has changed", e.URI)
		}
	}
	if len(items) != len(want) {
		t.Errorf("%d entries, want %d", len(items), len(want))
	}
}

func TestWhatIsWrittenTogetherIsThereAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "queue")
	s, _ := open(t, path)
	accepted := put(t, s, 300, 100)
	check(t, s, accepted)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(accepted) != 300 {
		t.Errorf("%d accepted", len(accepted))
	}
	s, repair := open(t, path)
	if repair != nil {
		t.Error(repair)
	}
	check(t, s, accepted)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others can read it", info.Mode(), err)
	}
	if _, err := s.Put(t.Context(), entry(1, 1), &queue.Policy{}); !errors.Is(err, queue.ErrFull) {
		t.Errorf("no bounds are a full queue: %v", err)
	}
}

func TestTwoProcessesCannotShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	open(t, path)
	if _, _, err := file.Open(file.Options{Path: path, Clock: time.Now}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("%v", err)
	}
}

// A damaged file is set aside, and what can be read of it is saved.
func TestDamagedFilesAreSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "whole")
	s, _ := open(t, path)
	accepted := put(t, s, 200, 500)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Index(whole, bytes.Repeat([]byte{100}, 500))
	for name, damage := range map[string]func([]byte) []byte{
		"not ours":        func([]byte) []byte { return bytes.Repeat([]byte("nonsense "), 4000) },
		"both meta pages": func(b []byte) []byte { clear(b[:8192]); return b },
		"cut short":       func(b []byte) []byte { return b[:len(b)/2] },
		"a rotten body":   func(b []byte) []byte { b[body+10] ^= 1; return b },
		"every page":      func(b []byte) []byte { clear(b[8192:]); return b },
		"the free list": func(b []byte) []byte {
			const size = 4096
			for meta := range 2 { // the number of its page is 48 bytes after the start
				at := binary.NativeEndian.Uint64(b[meta*size+48:]) * size
				clear(b[at : at+size])
			}
			return b
		},
		"pages of noise": func(b []byte) []byte {
			for i := 8192; i < len(b); i += 3 {
				b[i] = byte(i * 7)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "queue")
			if err := os.WriteFile(path, damage(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			s, repair := open(t, path)
			if repair == nil || repair.Err == nil {
				t.Fatal("nothing was found wrong")
			}
			if _, err := os.Stat(repair.SetAside); err != nil {
				t.Error(err)
			}
			items, err := s.List(t.Context(), queue.Query{Limit: 1000})
			if err != nil || len(items) != repair.Saved {
				t.Errorf("%d of %d are there: %v", len(items), repair.Saved, err)
			}
			for i := range items {
				if e := accepted[items[i].Entry.ID]; e == nil || !bytes.Equal(e.Body, items[i].Entry.Body) {
					t.Errorf("%s was not accepted like that", items[i].Entry.URI)
				}
			}
			if name == "the free list" && len(items) != 200 || name == "a rotten body" && len(items) != 199 {
				t.Errorf("%d were saved", len(items))
			}
			t.Logf("saved %d: %v", repair.Saved, repair.Err)
			put(t, s, 10, 10) // the new file works
		})
	}
}

// An unreadable path is not damage: nothing is set aside.
func TestFileOutOfReach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, repair, err := file.Open(file.Options{Path: path, Clock: time.Now})
	if _, ok := errors.AsType[*fs.PathError](err); !ok || repair != nil {
		t.Errorf("%v, %v", err, repair)
	}
}

func TestClosedStore(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "queue"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p := queue.DefaultPolicy()
	if _, err := s.Put(t.Context(), entry(1, 1), &p); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// BenchmarkPut measures group commit: with 64 writers one fsync serves many.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, _, err := file.Open(file.Options{Path: filepath.Join(b.TempDir(), "queue"), Clock: time.Now})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			p := queue.DefaultPolicy()
			p.MaxEntries, p.MaxBytes, p.KeyShare = 1<<40, 1<<50, 100
			b.SetParallelism(writers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Put(context.Background(), entry(1, 500), &p); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
