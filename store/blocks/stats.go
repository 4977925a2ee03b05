package blocks

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
)

// Stats are the counters of one scope (in the server, of one rule), or of one limit
// without a scope. All but the gauges only grow.
type Stats struct {
	Scope string         // headgate.Op.Scope, or the limit's name
	Limit headgate.Limit // one of those that had blocks there

	Keys int64 // gauge: keys with a line in the table now
	Held int64 // gauge: tokens that this process holds now
	// Admitted is how many tokens were spent without asking the store, Drawn how many
	// were drawn. Returned were given back, and Expired ended unused: their window had
	// ended, or the key was reset.
	Admitted, Drawn, Returned, Expired int64
	// Draws counts draws that were sent, Granted those that got something, Refused those
	// that got nothing, and Failed those without an answer, which have lost at most Lost
	// tokens.
	Draws, Granted, Refused, Failed, Lost int64
	// Rested counts requests that were refused without asking the store, because it had
	// hardly anything half a beat ago.
	Rested int64
	// Over is how many tokens of a key all processes together can admit above its limit,
	// in any period ([headgate.Limit.BlockOver]). If limits differ, such as those of tiers,
	// it is the largest since keys were last busy.
	Over int64
	// Under is a gauge: how many tokens of a key can be refused at most, although its limit
	// has them, because of this process. The sum over all processes bounds it for all. It
	// counts what this process holds of its busiest key, what it is drawing for it or giving
	// back, and what it has lost, for as long as that counts.
	Under int64
}

// counters are those of one scope.
type counters struct {
	scope string
	limit headgate.Limit

	keys, held, drawn, admitted, returned, expired, draws, granted, refused, failed, lost, rested atomic.Int64

	over      atomic.Int64 // see Stats.Over
	returning atomic.Int64 // tokens that are being given back
	stuck     stuck
	told      int64 // the largest Stats.Admitted so far; guarded by registry.mu
}

// stuck has tokens that count at the store, but that nobody will use or give back.
type stuck struct {
	mu    sync.Mutex
	parts []stuckPart
}

// stuckPart is n tokens that count until then, on the process's clock.
type stuckPart struct{ n, until int64 }

// stuckParts is how many parts are kept apart. Further ones are added to the last.
const stuckParts = 8

// add notes that n tokens count from now until then. As the process's clock may be fast,
// they are kept a little longer.
func (s *stuck) add(n, now, until int64) {
	if until += max(until-now, 0) / margin; n <= 0 || until <= now {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if len(s.parts) < stuckParts {
		s.parts = append(s.parts, stuckPart{n, until})
		return
	}
	last := &s.parts[len(s.parts)-1]
	last.n, last.until = last.n+n, max(last.until, until)
}

// sum returns how many tokens count now.
func (s *stuck) sum(now int64) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	for _, p := range s.parts {
		sum += p.n
	}
	return sum
}

// forget drops what no longer counts. mu must be held.
func (s *stuck) forget(now int64) {
	s.parts = slices.DeleteFunc(s.parts, func(p stuckPart) bool { return p.until <= now })
}

// aside returns the tokens that count at the store, and are neither held nor drawn by a
// line.
func (c *counters) aside(now int64) int64 { return c.returning.Load() + c.stuck.sum(now) }

// countsFor returns how long, in microseconds, tokens count at the store that were drawn
// now: in a bucket, until it has been refilled from nothing.
func countsFor(r *headgate.Rule) int64 {
	switch r.Algorithm {
	case headgate.TokenBucket:
		return int64(float64(r.FullBurst())*float64(r.Period)/float64(r.Limit)) + max(r.Tick, r.RefillEvery)
	case headgate.FixedWindow:
		return r.Period
	default:
		return 2*r.Period + r.Age
	}
}

// keeps returns how many tokens l keeps from others: what it holds and what it is drawing.
func (l *line) keeps() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drawing != nil {
		n = l.drawing.want
	}
	for _, b := range [...]*block{l.current.Load(), l.next.Load()} {
		if b != nil {
			n += max(b.left.Load(), 0)
		}
	}
	return n
}

// registry holds the counters of all scopes.
type registry struct {
	mu  sync.Mutex
	all map[registered]*counters
}

// registered identifies counters.
type registered struct {
	scope string
	mark  uint64
}

func (r *registry) of(op *headgate.Op) *counters {
	scope, mark := op.Space()
	id := registered{scope: scope}
	if scope == "" {
		id.mark = mark
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.all[id]
	if c == nil {
		c = &counters{scope: scope}
		r.all[id] = c
	}
	c.limit = op.Limit
	over := op.Limit.BlockOver()
	if c.keys.Load() > 0 {
		over = max(over, c.over.Load())
	}
	c.over.Store(over)
	return c
}

// Stats returns the counters of every scope that has had a block, in order.
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
	all := make([]Stats, 0, len(s.counters.all))
	for _, c := range s.counters.all {
		c.told = max(c.told, c.admitted.Load()+spent[c]) // less after some were put back
		all = append(all, Stats{
			Scope: c.scope, Limit: c.limit,
			Keys: c.keys.Load(), Held: max(c.held.Load()-spent[c], 0),
			Admitted: c.told, Drawn: c.drawn.Load(), Returned: c.returned.Load(), Expired: c.expired.Load(),
			Draws: c.draws.Load(), Granted: c.granted.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Lost: c.lost.Load(), Rested: c.rested.Load(),
			Over: c.over.Load(), Under: most[c] + c.aside(now),
		})
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Limit.String(), b.Limit.String()))
	})
	return all
}
