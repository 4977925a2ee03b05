package storing

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// snapshot is the state of saving counts.
type snapshot struct {
	file          string // the configured name with links resolved; empty without one
	saving        sync.Mutex
	saved, failed atomic.Uint64
	last          atomic.Int64 // the last success, in microseconds; 0 if never
}

// maxLinks is the longest chain of symbolic links that is followed.
const maxLinks = 32

// linked resolves symbolic links in path. This gives a file one name for its lock and
// its neighbours, and a save replaces the file rather than a link to it. The file need
// not exist.
func linked(path string) string {
	for range maxLinks {
		folder, name := filepath.Split(path) // not cleaned: the part before ".." may be a link
		if real, err := filepath.EvalSymlinks(cmp.Or(folder, ".")); err == nil {
			path = filepath.Join(real, name)
		}
		to, err := os.Readlink(path)
		if err != nil {
			break // not a link, or opening it will return the error
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return path
}

// lockSnapshot makes sure that no other process saves its counts to the file configured
// as path: each would overwrite the other's.
func (s *Store) lockSnapshot(path string) error {
	f, ok, err := lockFile(s.snapshot.file + ".lock")
	if wrong, is := errors.AsType[*fs.PathError](err); is {
		return &config.SourceError{
			Source: "store.memory.snapshot", Message: fmt.Sprintf("counts cannot be saved to %s: %v", path, wrong),
			Hint: "name a file in an existing, writable folder",
		}
	}
	switch {
	case err != nil:
		s.Logger.Warn("snapshot not locked: make sure that only one process uses it", "file", path, "err", err)
		return nil
	case !ok:
		return &config.SourceError{
			Source: "store.memory.snapshot", Message: fmt.Sprintf("another process saves its counts to %s", path),
			Hint: "stop that process, or give each process its own file",
		}
	}
	s.Life.OnEnd(func() { _ = unlockFile(f) }) // which holds nothing
	return nil
}

// Save saves the counts, if a snapshot is configured.
func (s *Store) Save() error {
	n := &s.snapshot
	if n.file == "" {
		return nil
	}
	n.saving.Lock() // the last save may coincide with one of the ticker's
	defer n.saving.Unlock()
	if err := s.memory.SaveFile(n.file); err != nil {
		n.failed.Add(1)
		return err
	}
	n.saved.Add(1)
	n.last.Store(s.Clock().UnixMicro())
	return nil
}

// SaveLast saves the counts, and bans and overrides that are not saved yet, at shutdown
// and logs the result.
func (s *Store) SaveLast() error {
	if s.snapshot.file == "" {
		return nil
	}
	var unsaved error
	if s.table != nil {
		if err := s.table.Save(); err != nil {
			unsaved = fmt.Errorf("bans and overrides %w", err)
		}
	}
	if err := s.Save(); err != nil {
		return errors.Join(unsaved, fmt.Errorf("counts not saved: %w", err))
	}
	s.Logger.Info("counts saved", "file", s.snapshot.file)
	return unsaved
}

// FileFor returns the name of a file next to the snapshot, or "" without one.
func (s *Store) FileFor(what string) string {
	if s.snapshot.file == "" {
		return ""
	}
	return s.snapshot.file + "." + what
}

// describe adds the metrics of saving counts.
func (n *snapshot) describe(c *metrics.Asked) {
	saves := c.Counter("headgate_snapshot_saves_total", "Attempts to save counts to disk, by result: success or failure.", "result")
	last := c.Gauge("headgate_snapshot_last_success_timestamp_seconds", "Unix time of the last successful save of counts; 0 if none since the start.")
	c.Ask(func(out chan<- prometheus.Metric) {
		saves(out, float64(n.saved.Load()), "success")
		saves(out, float64(n.failed.Load()), "failure")
		last(out, float64(n.last.Load())/1e6)
	})
}
