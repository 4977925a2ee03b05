package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are statistics of the queue of one rule.
type Stats struct {
	Depth          // of all processes that share the store
	InFlight int64 // entries that this process is sending
	// Counters of this process since it started. Entries: accepted, repeated (known
	// idempotency key), refused because the queue was full, and not saved because of an error.
	Accepted, Repeated, Full, Errors uint64
	// Attempts that succeeded or failed, entries that became dead letters, and dead letters
	// deleted.
	Delivered, Failed, Buried, Dropped uint64
}

// Age returns how long the oldest pending entry has waited.
func (s *Stats) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(now.Sub(s.Oldest), 0)
}

// counts has the counters of all rules.
type counts struct{ rules sync.Map }

type ruleName struct{ domain, rule string }

type counters struct {
	accepted, repeated, full, errors, delivered, failed, dead, dropped atomic.Uint64
}

func (c *counts) of(domain, rule string) *counters {
	name := ruleName{domain, rule}
	found, ok := c.rules.Load(name)
	if !ok {
		found, _ = c.rules.LoadOrStore(name, new(counters))
	}
	counted, _ := found.(*counters)
	return counted
}

// Stats returns the statistics of all rules that have or had entries, ordered by name. If the
// store does not answer, it returns the counters alone and an error.
func (q *Queue) Stats(ctx context.Context) ([]Stats, error) {
	all := map[ruleName]*Stats{}
	at := func(n ruleName) *Stats {
		if all[n] == nil {
			all[n] = &Stats{Depth: Depth{Domain: n.domain, Rule: n.rule}}
		}
		return all[n]
	}
	q.counts.rules.Range(func(key, value any) bool {
		name, _ := key.(ruleName)
		c, _ := value.(*counters)
		s := at(name)
		s.Accepted, s.Repeated, s.Full, s.Errors = c.accepted.Load(), c.repeated.Load(), c.full.Load(), c.errors.Load()
		s.Delivered, s.Failed, s.Buried, s.Dropped = c.delivered.Load(), c.failed.Load(), c.dead.Load(), c.dropped.Load()
		return true
	})
	q.mu.Lock()
	for _, l := range q.lanes {
		if l.inFlight > 0 && len(l.items) > 0 {
			at(ruleName{l.items[0].ref.Domain, l.items[0].ref.Rule}).InFlight += int64(l.inFlight)
		}
	}
	q.mu.Unlock()
	depths, err := q.options.Store.Depths(ctx)
	for _, d := range depths {
		at(ruleName{d.Domain, d.Rule}).Depth = d
	}
	list := make([]Stats, 0, len(all))
	for _, s := range slices.SortedFunc(maps.Values(all), func(a, b *Stats) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	}) {
		list = append(list, *s)
	}
	return list, err
}
