package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// resetLasts is how long the record of a reset lasts at least; Redis keeps it for a minute
// more.
const resetLasts = 5 * time.Second

// resetLastsFar is the same with several regions: longer than store.Recent, so that a
// region counts those that it did not carry out.
const resetLastsFar = 3 * store.Recent

// ErrOnlyHere means that other regions will not learn of a reset.
var ErrOnlyHere = errors.New("other regions do not learn of the reset")

// WasReset tells all processes that the key of e, which names its rule, scope and key, was
// reset, so that they drop remembered refusals, and what they hold of its limits, and other
// regions, so that they reset it too. If the table is half full, processes only drop the
// refusals, and other regions learn nothing, which is an error.
func (m *Manager) WasReset(ctx context.Context, e *Entry) error {
	if m.options.Reset == nil {
		return m.Touch(ctx)
	}
	record := *e
	record.Kind, record.Created = Reset, m.options.Clock()
	record.Until = record.Created.Add(resetLasts)
	if m.options.Region != "" {
		record.Until = record.Created.Add(resetLastsFar)
	}
	stored := m.onTable(&record)
	text, err := stored.encode()
	if err != nil {
		return m.onlyHere(ctx, err)
	}
	row := Row{Name: record.name(), Value: text, Until: stored.Until, Version: m.version()}
	// Records of resets must not take the space of bans.
	if err := m.options.Table.Put(ctx, row, m.options.Most/2); errors.Is(err, ErrFull) {
		return m.onlyHere(ctx, err)
	} else if err != nil {
		return err
	}
	m.syncNow(ctx)
	return nil
}

// onlyHere makes processes drop refusals after a reset that could not be recorded.
func (m *Manager) onlyHere(ctx context.Context, why error) error {
	if err := m.Touch(ctx); err != nil || m.options.Region == "" {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOnlyHere, why)
}

// hearReset passes on a reset that was not seen before. m.mu must be held.
func (m *Manager) hearReset(r *Row, e *Entry) {
	if m.options.Reset != nil && m.memory.rows[r.Name].Version != r.Version {
		m.options.Reset(e.Scope, e.Key)
	}
}
