package control

import (
	"context"
	"errors"
	"time"
)

// mostAhead is how far ahead of the table's clock an entry may begin in any case.
const mostAhead = time.Minute

// settle moves a ban or a limit that the table's clock cannot have seen begin: that clock
// was ahead, and has been put right. Otherwise the entry would last for as long as the
// clock was ahead. As with counts (see algorithm.Settle), what begins less far ahead than
// it lasts stays. m.mu is held; now is on our clock, the entry on the table's.
func (m *Manager) settle(r *Row, e *Entry, now time.Time) {
	by := e.Created.Sub(now.Add(m.ahead))
	if by <= max(e.Until.Sub(e.Created), mostAhead) {
		return
	}
	text, err := moved(r.Value, -by)
	if err != nil {
		return
	}
	*e = e.shifted(-by)
	r.Value, r.Until = text, e.Until
	m.settled = append(m.settled, *r)
}

// writeSettled writes moved entries, so that they end at the same time in all processes.
// What cannot be written is moved again when it is next read. m.mu is held.
func (m *Manager) writeSettled(ctx context.Context) {
	if len(m.settled) == 0 {
		return
	}
	rows := m.settled
	m.settled = nil
	m.options.Logger.Warn("the store's clock was ahead: bans and overrides made then begin now", "number", len(rows))
	for i := range rows {
		rows[i].Version = m.seen.Version
		if err := m.options.Table.Put(ctx, rows[i], m.options.Most); err != nil && !errors.Is(err, ErrNotSaved) {
			return
		}
	}
}
