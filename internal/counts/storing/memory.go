package storing

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/transport/overload"
	"github.com/headgate/headgate/store/memory"
)

// SweepInterval is how often the memory of expired keys is released.
const SweepInterval = time.Minute

// openMemory opens the embedded store with the counts of the last run.
func (s *Store) openMemory() ([]engine.Option, error) {
	if path := s.Config.Memory.Snapshot; path != "" {
		s.snapshot.file = linked(path)
		if err := s.lockSnapshot(path); err != nil {
			return nil, err
		}
	}
	m := s.newMemory()
	restored, err := s.restore(m)
	if err != nil {
		return nil, err
	}
	s.keep(m)
	s.Counts = m
	sealed := s.openTokenSecret(restored)
	if s.snapshot.file != "" {
		s.Life.Every(s.Config.Memory.SnapshotInterval, func() {
			if err := s.Save(); err != nil {
				s.Logger.Error("counts not saved", "file", s.snapshot.file, "err", err)
			}
		})
	}
	return []engine.Option{sealed}, nil
}

// keep sweeps the store at intervals and closes it at the end.
func (s *Store) keep(m *memory.Store) {
	s.memory = m
	s.Life.OnEnd(func() { _ = m.Close() })
	s.Life.Every(SweepInterval, func() { m.Sweep(s.Clock()) })
}

// newMemory returns an empty embedded store of the configured size.
func (s *Store) newMemory() *memory.Store {
	options := []memory.Option{memory.WithClock(s.Clock)}
	if n := s.Config.Memory.MaxKeys; n > 0 {
		options = append(options, memory.WithMaxKeys(int(n)))
	}
	options = append(options, memory.WithMaxBytes(cmp.Or(s.maxBytes(), memory.DefaultMaxBytes)))
	if s.Config.KeyTimes {
		options = append(options, memory.WithKeyTimes())
	}
	return memory.New(options...)
}

// maxBytes returns the memory limit of the embedded store; 0 means its default. A full
// store stays full, so it must leave enough for the rest of the process: refusing
// requests would not free its memory.
func (s *Store) maxBytes() int64 {
	chosen := s.Config.Memory.MaxBytes
	limit, limited := overload.MemoryLimit(s.Memory)
	if !limited {
		return chosen
	}
	half := limit / 2
	switch {
	case chosen == 0:
		return min(half, memory.DefaultMaxBytes)
	case chosen > half:
		s.Logger.Warn("store.memory.max_bytes is more than half of the memory limit: once the store is full, the rest may not be enough and requests may be refused",
			"store.memory.max_bytes", chosen, "memory", limit, "hint", "raise overload.memory (GOMEMLIMIT), or lower store.memory.max_bytes")
	}
	return chosen
}

// restore reads the counts of the last run, and reports whether there were any.
func (s *Store) restore(m *memory.Store) (restored bool, err error) {
	file := s.snapshot.file
	if file == "" {
		return false, nil
	}
	err = m.LoadFile(file)
	switch {
	case err == nil:
		s.Logger.Info("counts restored", "file", file, "keys", m.Stats().Keys)
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		s.Logger.Info("no saved counts yet", "file", file)
		return false, nil
	case !errors.Is(err, memory.ErrDamagedSnapshot):
		// The file is unreachable. The operator did not ask to start with fresh budgets
		// and to fail to save them later.
		return false, fmt.Errorf("counts not restored: %w", err)
	}
	aside, asideErr := memory.SetAside(file)
	if asideErr != nil {
		return false, fmt.Errorf("counts not restored: %w; %w", err, asideErr)
	}
	s.Logger.Error("damaged snapshot, counts start at zero", "file", file, "set_aside_as", aside, "err", err)
	return false, nil
}
