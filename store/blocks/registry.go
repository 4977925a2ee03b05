package blocks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// registry holds the counters of all scopes.
type registry struct {
	mu  sync.RWMutex
	all map[registered]*counters

	wanted func(scope string) bool // see Store.Retain; nil means all
}

// registered identifies counters.
type registered struct {
	scope string
	mark  uint64
}

// of returns the counters of op, which are new if this is the first of its scope.
func (r *registry) of(op *store.Op) *counters {
	scope, mark := op.Space()
	id := registered{scope: scope}
	if scope == "" {
		id.mark = mark
	}
	r.mu.RLock()
	c := r.all[id]
	r.mu.RUnlock()
	if c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c = r.all[id]; c == nil {
		c = &counters{scope: scope, limit: headgate.LimitOf(op.Rule)}
		c.over.Store(op.Rule.BlockOver())
		r.all[id] = c
	}
	return c
}

// forLine returns the counters for a new line.
func (r *registry) forLine(op *store.Op) *counters {
	c := r.of(op)
	r.mu.Lock()
	defer r.mu.Unlock()
	c.limit = headgate.LimitOf(op.Rule)
	over := op.Rule.BlockOver()
	if c.keys.Load() > 0 {
		over = max(over, c.over.Load())
	}
	c.over.Store(over)
	c.capacity.Store(max(c.capacity.Load(), op.Rule.Most()))
	return c
}

// lists reports whether Stats has c. mu must be held.
func (r *registry) lists(c *counters) bool { return r.wanted == nil || r.wanted(c.scope) }

// forget drops the counters of scopes that are no longer wanted, once all of their blocks
// have ended, and nothing that was lost counts at the store. mu must be held.
func (r *registry) forget(now int64) {
	maps.DeleteFunc(r.all, func(_ registered, c *counters) bool {
		return !r.lists(c) && c.keys.Load() == 0 && c.aside(now) == 0
	})
}

// Retain ends the blocks of all scopes for which wanted returns false, gives back what is
// left of them, and leaves them out of Stats. Call it after rules were reloaded. It holds
// until it is called again; wanted must be fast, and may be called at any time by any
// goroutine. Requests under other scopes are still decided.
func (s *Store) Retain(wanted func(scope string) bool) {
	now := s.now()
	s.counters.mu.Lock()
	s.counters.wanted = wanted
	s.counters.forget(now)
	s.counters.mu.Unlock()
	s.table.each(func(l *line) {
		if !wanted(l.op.Scope) {
			l.end(now) // the sweeper gives them back
		}
	})
}

// Stats returns the counters of every scope, in order.
func (s *Store) Stats() []Stats {
	// What is spent of blocks in use is in no counter yet.
	spent, most, now := make(map[*counters]int64), make(map[*counters]int64), s.now()
	s.table.each(func(l *line) {
		most[l.counters] = max(most[l.counters], l.keeps())
		for _, b := range [...]*block{l.current.Load(), l.next.Load()} {
			if b == nil {
				continue
			}
			if left := b.left.Load(); left >= 0 {
				spent[l.counters] += b.size - left
			}
		}
	})
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	s.counters.forget(now)
	all := make([]Stats, 0, len(s.counters.all))
	for _, c := range s.counters.all {
		if !s.counters.lists(c) {
			continue
		}
		c.told = max(c.told, c.admitted.Load()+spent[c]) // less after some were put back
		all = append(all, Stats{
			Scope: c.scope, Limit: c.limit,
			Keys: c.keys.Load(), Held: max(c.held.Load()-spent[c], 0),
			Admitted: c.told, Direct: c.direct.Load(), Drawn: c.drawn.Load(), Returned: c.returned.Load(), Expired: c.expired.Load(),
			Draws: c.draws.Load(), Granted: c.granted.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Lost: c.lost.Load(), Rested: c.rested.Load(),
			Over: c.over.Load(), Under: min(most[c]+c.aside(now), c.capacity.Load()),
		})
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Limit.String(), b.Limit.String()))
	})
	return all
}

// counted is the inner store. It counts what that admits itself of limits in blocks.
type counted struct {
	store.Store

	counters *registry
}

// Do implements store.Store.
func (s counted) Do(ctx context.Context, b *store.Batch) {
	s.Store.Do(ctx, b)
	at := 0
	for i := range b.Groups {
		for range b.Groups[i].Ops {
			if b.Groups[i].Err == nil {
				s.count(&b.Ops[at], &b.Out[at])
			}
			at++
		}
	}
}

func (s counted) count(op *store.Op, d *store.Decision) {
	if (op.Kind == store.KindTake || op.Kind == store.KindTakeUpTo) && op.Cost > 0 && op.Rule.Age > 0 {
		s.counters.of(op).direct.Add(d.Granted)
	}
}
