package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// memory is a Manager's copy of a table that may lose rows. It holds all rows as they
// were read, including deleted ones, to distinguish deleted rows (the table says so)
// from lost rows (the table has nothing, or an older version).
//
// Two processes may write back at the same time: each row has the version of its last
// change, and the newer one wins.
type memory struct {
	table Forgetful // nil if it cannot lose rows
	rows  map[string]Row
	// touched is when the table was last read. A process that has not read it for as
	// long as deletions are remembered may have missed some, and writes nothing back.
	touched time.Time
	losing  bool // the last attempt to write back failed
	untold  bool // Options.Forgot has not succeeded since the last loss
	lost    int64
	toldAt  time.Time // when a loss was last logged
}

// inTouch is how long a process may have been out of touch and still write back: a
// little less than Redis remembers deletions.
const inTouch = 7*24*time.Hour - time.Hour

var errNotGiven = errors.New("cannot restore bans and overrides")

// receive stores a row as read.
func (m *Manager) receive(rows map[string]Row, r *Row) {
	if m.memory.table == nil {
		return
	}
	rows[r.Name] = *r
}

// hearOwn stores a change that was made here, with the lowest version that it can have, in
// case the table is lost before it is read again.
func (m *Manager) hearOwn(r Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memory.table == nil || m.memory.rows == nil {
		return
	}
	if r.Deleted {
		r.Until = m.options.Clock().Add(m.ahead + inTouch)
	}
	known := m.memory.rows[r.Name]
	if known.Version > r.Version && m.seen.Version > r.Version {
		return // it was read in the meantime
	}
	r.Version = max(r.Version, known.Version) + 1
	m.memory.rows[r.Name] = r
}

// restore writes back the rows that the table has lost: those known here that are
// missing from rows, or have an older version there. They stay active here in any case:
// they are added to rows and passed to each.
func (m *Manager) restore(ctx context.Context, state *State, rows map[string]Row, now time.Time, each func(*Row)) error {
	if m.memory.table == nil || m.memory.rows == nil {
		return nil
	}
	var lost []Row
	if now.Sub(m.memory.touched) < inTouch {
		for name, r := range m.memory.rows {
			if there, ok := rows[name]; r.Until.Add(-m.ahead).After(now) && (!ok || newer(&r, &there)) {
				lost = append(lost, r)
				rows[name] = r
				each(&r)
			}
		}
	}
	another := m.isAnother(state)
	if !another && len(lost) > 0 {
		// Rows may have been lost during the read.
		if now, err := m.memory.table.Look(ctx); err == nil {
			state.Identity, state.Generation = now.Identity, now.Generation
			another = m.isAnother(state)
		}
	}
	if !another && len(lost) == 0 {
		m.memory.losing = false
		return nil
	}
	if another || !m.memory.losing {
		m.memory.untold = m.options.Forgot != nil
	}
	if another && !m.memory.losing {
		m.memory.lost++
	}
	log := m.lossLogger(ctx, now)
	if another && !m.memory.losing {
		log.Warn("the store has lost its data (flushed, restarted without its data, or replaced): all counts start again",
			"was", m.seen.Identity, "is", state.Identity)
	}
	if len(lost) == 0 {
		return nil
	}
	taken, err := m.memory.table.Restore(ctx, lost)
	if err != nil {
		if !m.memory.losing && ctx.Err() == nil {
			m.options.Logger.Error("cannot restore the bans and overrides that the store has lost, they stay active in this process", "lost", len(lost), "err", err)
		}
		m.memory.losing = true
		return fmt.Errorf("%w: %w", errNotGiven, err)
	}
	again := m.memory.losing
	m.memory.losing = false
	if taken > 0 {
		if !another && !again {
			m.memory.lost++
		}
		log.Warn("restored the bans and overrides that the store had lost", "written", taken, "known", len(m.memory.rows))
	}
	return nil
}

// lossEvery limits how often a loss is logged: a store that evicts keys may lose the mark
// of its data many times a second.
const lossEvery = time.Minute

// lossLogger returns where to log a loss that was just noticed. A loss of evicted keys is
// not logged here: the store's health says so, and says it once.
func (m *Manager) lossLogger(ctx context.Context, now time.Time) *slog.Logger {
	recent := !m.memory.toldAt.IsZero() && now.Sub(m.memory.toldAt).Abs() < lossEvery
	if !m.memory.losing && (recent || m.options.Evicted != nil && m.options.Evicted(ctx)) {
		return slog.New(slog.DiscardHandler)
	}
	m.memory.toldAt = now
	return m.options.Logger
}

// isAnother reports whether this is not the table that was last read.
func (m *Manager) isAnother(state *State) bool {
	return m.seen.Identity != "" && state.Identity != m.seen.Identity
}

// tellLoss calls Options.Forgot after a loss until it succeeds: each connection opened
// before the loss may fail once.
func (m *Manager) tellLoss(ctx context.Context) {
	if m.memory.untold {
		m.memory.untold = m.options.Forgot(ctx) != nil
	}
}

// newer reports whether r is a later change than o, or the same change but still has
// its value.
func newer(r, o *Row) bool {
	return r.Version > o.Version || r.Version == o.Version && o.Deleted && !r.Deleted
}

// version returns the latest known version.
func (m *Manager) version() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.Version
}

// knows returns the value of the named row, or "" if there is none.
func (m *Manager) knows(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory.rows[name].Value
}

// knowsEnded reports whether the named entry was ended in another region.
func (m *Manager) knowsEnded(name string) bool {
	if m.options.Region == "" {
		return false
	}
	e, err := decode(m.knows(name))
	return err == nil && e.Kind == Ended
}

// Lost returns how often the table has lost data.
func (m *Manager) Lost() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory.lost
}
