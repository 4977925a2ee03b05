package metrics

import (
	"sync/atomic"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// LackingAfter is how many requests in a row, the first that a rule counts, have to
// lack a part of its key before it is said that all do.
const LackingAfter = 100

// lacks finds out whether all requests that a rule counts lack a part of its key.
type lacks struct {
	parts atomic.Uint64 // which all have lacked so far; 0 once that is answered
	seen  atomic.Int64
}

// begin asks again, as rules have been read.
func (l *lacks) begin(r *rules.Rule) {
	l.seen.Store(0)
	l.parts.Store(1<<len(r.Key) - 1)
}

// missing counts a result whose request lacks a part of the rule's key.
func (m *Observer) missing(c *ruleCounts, number uint32, r *engine.Result) {
	if len(r.Rule.Key) == 0 {
		return
	}
	lacking := r.Rule.Missing(r.Key)
	if lacking != 0 {
		c.cells[int(number)&(len(c.cells)-1)].counts[missing].Add(1)
	}
	if c.lacks.parts.Load() == 0 {
		return // as of all rules, but for their first requests
	}
	all := c.lacks.parts.And(lacking) & lacking
	if all == 0 || c.lacks.seen.Add(1) != LackingAfter {
		return
	}
	c.lacks.parts.Store(0)
	if m.options.Lacking != nil {
		m.options.Lacking(r.Rule, all)
	}
}
