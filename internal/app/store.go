package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime/debug"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// sweepInterval is how often memory of forgotten keys is given back.
const sweepInterval = time.Minute

// openStore opens the store that the configuration names and returns it with
// what an engine has to know about it.
func (a *App) openStore() (headgate.Store, []engine.Option, error) {
	if a.options.Config.Store.Kind == config.InRedis {
		return a.openRedis()
	}
	if path := a.options.Config.Store.Memory.Snapshot; path != "" {
		a.snapshots.file = linked(path)
		if err := a.lockSnapshot(path, a.snapshots.file); err != nil {
			return nil, nil, err
		}
	}
	s, err := a.openMemory()
	if err != nil {
		return nil, nil, err
	}
	a.keepMemory(s)
	sealed := a.openTokenSecret()
	if file := a.snapshots.file; file != "" {
		a.saveTo(s, file)
	}
	return s, []engine.Option{sealed}, nil
}

// keepMemory gives back the memory of forgotten keys at intervals, and of all
// of them at the end.
func (a *App) keepMemory(s *memory.Store) {
	a.memory = s
	a.cleanup = append(a.cleanup, func() { _ = s.Close() })
	a.every(sweepInterval, func() { s.Sweep(a.options.Clock()) })
}

// newMemory returns an empty embedded store of the configured size.
func (a *App) newMemory() *memory.Store {
	c := &a.options.Config.Store.Memory
	options := []memory.Option{memory.WithClock(a.options.Clock)}
	if c.MaxKeys > 0 {
		options = append(options, memory.WithMaxKeys(int(c.MaxKeys)))
	}
	if most := a.maxStoreBytes(); most > 0 {
		options = append(options, memory.WithMaxBytes(most))
	}
	return memory.New(options...)
}

// maxStoreBytes returns what the embedded store may take; 0 means its default. A full
// store stays full, so with a limit of memory it must not be what the process is
// short of: nothing that is shed would make room.
func (a *App) maxStoreBytes() int64 {
	chosen := a.options.Config.Store.Memory.MaxBytes
	limit, limited := a.memoryLimit()
	if !limited {
		return chosen
	}
	half := limit / 2
	switch {
	case chosen == 0:
		return min(half, memory.DefaultMaxBytes)
	case chosen > half:
		a.log.Warn("the store may take more than half of the memory: once it is full, all else has to do with the rest, and requests may be refused for as long as it is",
			"store.memory.max_bytes", chosen, "memory", limit, "hint", "raise overload.memory (GOMEMLIMIT), or lower store.memory.max_bytes")
	}
	return chosen
}

// memoryLimit returns what the process may take, and false if nobody has said so.
func (a *App) memoryLimit() (limit int64, limited bool) {
	if configured := a.options.Config.Overload.Memory; configured > 0 {
		return configured, true
	}
	limit = debug.SetMemoryLimit(-1)
	return limit, limit > 0 && limit < math.MaxInt64
}

// openMemory returns the embedded store with the counts of the last run.
func (a *App) openMemory() (*memory.Store, error) {
	file, s := a.snapshots.file, a.newMemory()
	if file == "" {
		return s, nil
	}
	err := s.LoadFile(file)
	switch {
	case err == nil:
		a.log.Info("counts restored", "file", file, "keys", s.Stats().Keys)
		a.tokenSecret.hasCounts = true
		return s, nil
	case errors.Is(err, fs.ErrNotExist):
		a.log.Info("no counts to restore yet", "file", file)
		return s, nil
	case !errors.Is(err, memory.ErrDamagedSnapshot):
		// Out of reach. To start with fresh budgets, and to fail to save them
		// later, is not what was asked for.
		return nil, fmt.Errorf("counts not restored: %w", err)
	}
	aside, asideErr := memory.SetAside(file)
	if asideErr != nil {
		return nil, fmt.Errorf("counts not restored: %w; %w", err, asideErr)
	}
	a.log.Error("snapshot is damaged, counts start afresh", "file", file, "set_aside_as", aside, "err", err)
	return s, nil
}

// saveCounts saves a last time.
func (a *App) saveCounts() error {
	if a.save == nil {
		return nil
	}
	if err := a.save(); err != nil {
		return fmt.Errorf("counts not saved: %w", err)
	}
	a.log.Info("counts saved", "file", a.snapshots.file)
	return nil
}

// every calls f at intervals until the App stops.
func (a *App) every(interval time.Duration, f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f()
			}
		}
	}()
	a.cleanup = append(a.cleanup, func() {
		cancel()
		<-done
	})
}
