package app

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
	"github.com/headgate/headgate/store/memory"
)

// snapshots is how saving counts goes.
type snapshots struct {
	file          string // where the configured name leads; empty without one
	saved, failed atomic.Uint64
	last          atomic.Int64 // when it went well, in microseconds; 0 if never
}

// maxLinks is how many symbolic links are followed one after the other.
const maxLinks = 32

// linked returns where path leads through symbolic links, so that one file has
// one name: for its lock, for what is kept beside it, and so that a save
// replaces the file and not a link to it. The file need not be there yet.
func linked(path string) string {
	for range maxLinks {
		folder, name := filepath.Split(path) // as it stands: what is before ".." may be a link
		if real, err := filepath.EvalSymlinks(cmp.Or(folder, ".")); err == nil {
			path = filepath.Join(real, name)
		}
		to, err := os.Readlink(path)
		if err != nil {
			break // it is no link, or whoever opens it will say what is wrong
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return path
}

// lockSnapshot makes sure that no other process saves its counts to file, which
// is configured as path: each would overwrite what the other has.
func (a *App) lockSnapshot(path, file string) error {
	f, ok, err := lockFile(file + ".lock")
	if wrong, is := errors.AsType[*fs.PathError](err); is {
		return &config.SourceError{
			Source: "store.memory.snapshot", Message: fmt.Sprintf("counts cannot be saved to %s: %v", path, wrong),
			Hint: "name a file in a folder that is there and can be written to",
		}
	}
	switch {
	case err != nil:
		a.log.Warn("the snapshot is not locked: take care that one process uses it", "file", path, "err", err)
		return nil
	case !ok:
		return &config.SourceError{
			Source: "store.memory.snapshot", Message: fmt.Sprintf("another process keeps its counts in %s", path),
			Hint: "stop it first, or give each a file of its own",
		}
	}
	a.cleanup = append(a.cleanup, func() { _ = f.Close() }) // which unlocks it
	return nil
}

// saveTo saves the counts of s to path at intervals, and when asked.
func (a *App) saveTo(s *memory.Store, path string) {
	var saving sync.Mutex // the last save may meet one of the ticker's
	a.save = func() error {
		saving.Lock()
		defer saving.Unlock()
		if err := s.SaveFile(path); err != nil {
			a.snapshots.failed.Add(1)
			return err
		}
		a.snapshots.saved.Add(1)
		a.snapshots.last.Store(a.options.Clock().UnixMicro())
		return nil
	}
	a.every(a.options.Config.Store.Memory.SnapshotInterval, func() {
		if err := a.save(); err != nil {
			a.log.Error("counts not saved", "file", path, "err", err)
		}
	})
}

// snapshotMetrics tells how saving counts goes.
func (a *App) snapshotMetrics(c *metrics.Asked) {
	saves := c.Counter("headgate_snapshot_saves_total", "Times that counts were saved to disk.", "result")
	last := c.Gauge("headgate_snapshot_last_success_timestamp_seconds", "When they were saved last; 0 if not since the start.")
	c.Ask(func(out chan<- prometheus.Metric) {
		saves(out, float64(a.snapshots.saved.Load()), "success")
		saves(out, float64(a.snapshots.failed.Load()), "failure")
		last(out, float64(a.snapshots.last.Load())/1e6)
	})
}
