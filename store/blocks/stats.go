package blocks

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Stats are the counters of one scope (in the server, of one rule), or of one limit
// without a scope, since its first request. All but the gauges only grow.
type Stats struct {
	Scope string         // store.Op.Scope, or the limit's name
	Limit headgate.Limit // one of those in blocks that were used there

	Keys int64 // gauge: keys with a line in the table now
	Held int64 // gauge: tokens that this process holds now
	// Admitted is how many tokens were spent without asking the store, and Direct how many
	// the store admitted itself, request by request. Drawn were drawn. Returned were given
	// back, and Expired ended unused: their window had ended, or the key was reset.
	Admitted, Direct, Drawn, Returned, Expired int64
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

	keys, held, drawn, admitted, direct, returned, expired, draws, granted, refused, failed, lost, rested atomic.Int64

	over      atomic.Int64 // see Stats.Over
	capacity  atomic.Int64 // the largest of its limits
	returning atomic.Int64 // tokens that are being given back
	stuck     stuck
	told      int64 // the largest Stats.Admitted so far; guarded by registry.mu
}

// stuck has tokens that count at the store, but that nobody will use or give back.
type stuck struct {
	mu    sync.Mutex
	parts []stuckPart
}

// stuckPart is n tokens of a key that count until then, on the process's clock.
type stuckPart struct {
	of       uint64 // the key's hash, or 0 for any keys
	n, until int64
}

// stuckParts is how many parts are kept apart. Further ones are added to one of the same
// key, or else to the last.
const stuckParts = 16

// add notes that n tokens of l's key count from now until then. As the process's clock may
// be fast, they are kept a little longer.
func (s *stuck) add(l *line, n, now, until int64) {
	if until += max(until-now, 0) / margin; n <= 0 || until <= now {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if len(s.parts) < stuckParts {
		s.parts = append(s.parts, stuckPart{l.hash, n, until})
		return
	}
	at := stuckParts - 1 // the last of the key, so that the earlier ones end
	for at >= 0 && s.parts[at].of != l.hash {
		at--
	}
	if at < 0 {
		at = stuckParts - 1
		s.parts[at].of = 0
	}
	p := &s.parts[at]
	p.n, p.until = p.n+n, max(p.until, until)
}

// most returns how many tokens of one key count now, at most.
func (s *stuck) most(now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	most := int64(0)
	for _, p := range s.parts {
		sum := int64(0)
		for _, q := range s.parts {
			if q.of == p.of || q.of == 0 {
				sum += q.n
			}
		}
		most = max(most, sum)
	}
	return most
}

// forget drops what no longer counts. mu must be held.
func (s *stuck) forget(now int64) {
	s.parts = slices.DeleteFunc(s.parts, func(p stuckPart) bool { return p.until <= now })
}

// aside returns the tokens of a key that count at the store, and are neither held nor
// drawn by a line.
func (c *counters) aside(now int64) int64 { return c.returning.Load() + c.stuck.most(now) }

// countsFor returns how long, in microseconds, tokens count at the store that were drawn
// now: in a bucket, until it has been refilled from nothing.
func countsFor(r *store.Rule) int64 {
	switch r.Algorithm {
	case store.TokenBucket:
		return int64(float64(r.FullBurst())*float64(r.Period)/float64(r.Limit)) + max(r.Tick, r.RefillEvery)
	case store.FixedWindow:
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
