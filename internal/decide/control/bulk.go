package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Bulk is a Table that writes many rows in one go.
type Bulk interface {
	Table
	// PutAll is Put for all rows. All are written, or none if there is no space.
	PutAll(ctx context.Context, rows []Row, most int) error
}

// atOnce is how many rows are written at the same time to a table that is not Bulk. A
// client of Redis sends those together.
const atOnce = 64

// PutAll is Put for many entries, and activates them together. It returns how many were
// written, in any order; the error is the first one. After an error, the others may have
// been written.
func (m *Manager) PutAll(ctx context.Context, list []*Entry) (written int, err error) {
	rows, version := make([]Row, len(list)), m.version()
	for i, e := range list {
		stored := m.onTable(e)
		text, err := stored.encode()
		if err != nil {
			return 0, err
		}
		rows[i] = Row{Name: e.name(), Value: text, Until: stored.Until, Version: version}
	}
	if bulk, ok := m.options.Table.(Bulk); ok {
		if err = bulk.PutAll(ctx, rows, m.options.Most); err == nil || errors.Is(err, ErrNotSaved) {
			written = len(rows)
		}
	} else {
		written, err = m.putEach(ctx, rows)
	}
	if err == nil {
		for i := range rows {
			m.hearOwn(rows[i])
		}
	}
	m.syncNow(ctx)
	return written, err
}

// putEach writes rows until the first error.
func (m *Manager) putEach(ctx context.Context, rows []Row) (int, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next, written atomic.Int64
	var group sync.WaitGroup
	for range min(atOnce, len(rows)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(rows)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := m.options.Table.Put(ctx, rows[i], m.options.Most); err != nil {
					stop(err) // the first one counts
					return
				}
				written.Add(1)
			}
		})
	}
	group.Wait()
	return int(written.Load()), context.Cause(ctx)
}

// ForgetGrants removes the records of a key's grants.
func (m *Manager) ForgetGrants(ctx context.Context, scope, key string) error {
	m.mu.Lock()
	var found []*Entry
	for _, e := range m.entries {
		if e.Kind == Grant && e.Scope == scope && e.Key == key {
			found = append(found, e)
		}
	}
	m.mu.Unlock()
	for _, e := range found {
		if _, err := m.Delete(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// Room returns how many further entries fit.
func (m *Manager) Room() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, live := m.options.Clock(), 0
	for _, e := range m.entries {
		if e.Until.After(now) {
			live++
		}
	}
	return max(m.options.Most-live, 0)
}
