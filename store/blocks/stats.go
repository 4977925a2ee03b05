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
	// Draws counts draws that were sent, Refused those that got nothing, and Failed those
	// without an answer, which have lost at most Lost tokens.
	Draws, Refused, Failed, Lost int64
	// Rested counts requests that were refused without asking the store, because it had
	// hardly anything half a beat ago.
	Rested int64
	// Over is how many tokens all processes together can admit above the limit, in any
	// period ([headgate.Limit.BlockOver]).
	Over int64
}

// counters are those of one scope.
type counters struct {
	scope string
	limit headgate.Limit

	keys, held, drawn, admitted, returned, expired, draws, refused, failed, lost, rested atomic.Int64
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
	return c
}

// Stats returns the counters of every scope that has had a block, in order.
func (s *Store) Stats() []Stats {
	// What is spent of blocks in use is in no counter yet.
	spent := make(map[*counters]int64)
	s.table.each(func(l *line) {
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
		all = append(all, Stats{
			Scope: c.scope, Limit: c.limit,
			Keys: c.keys.Load(), Held: max(c.held.Load()-spent[c], 0),
			Admitted: c.admitted.Load() + spent[c], Drawn: c.drawn.Load(), Returned: c.returned.Load(), Expired: c.expired.Load(),
			Draws: c.draws.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Lost: c.lost.Load(), Rested: c.rested.Load(),
			Over: c.limit.BlockOver(),
		})
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Limit.String(), b.Limit.String()))
	})
	return all
}
