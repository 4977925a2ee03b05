package control

import (
	"context"
	"errors"
	"time"
)

// resetLasts is how long the record of a reset lasts at least; Redis keeps it for a minute
// more.
const resetLasts = 5 * time.Second

// WasReset tells all processes that the key of e, which names its rule, scope and key, was
// reset, so that they drop remembered refusals, and what they hold of its limits. If the
// table is half full, they only drop the refusals.
func (m *Manager) WasReset(ctx context.Context, e *Entry) error {
	if m.options.Reset == nil {
		return m.Touch(ctx)
	}
	record := *e
	record.Kind, record.Created = Reset, m.options.Clock()
	record.Until = record.Created.Add(resetLasts)
	stored := m.onTable(&record)
	text, err := stored.encode()
	if err != nil {
		return m.Touch(ctx)
	}
	row := Row{Name: record.name(), Value: text, Until: stored.Until, Version: m.version()}
	// Records of resets must not take the space of bans.
	if err := m.options.Table.Put(ctx, row, m.options.Most/2); errors.Is(err, ErrFull) {
		return m.Touch(ctx)
	} else if err != nil {
		return err
	}
	m.look(ctx)
	return nil
}

// hearReset passes on a reset that was not seen before. m.mu must be held.
func (m *Manager) hearReset(r *Row, e *Entry) {
	if m.options.Reset != nil && m.memory.rows[r.Name].Version != r.Version {
		m.options.Reset(e.Scope, e.Key)
	}
}
