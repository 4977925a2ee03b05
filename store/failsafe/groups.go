package failsafe

import (
	"errors"

	"github.com/headgate/headgate/store"
)

// errKnown marks a group that the deny cache has answered, until rest has seen it.
var errKnown = errors.New("failsafe: answered by the deny cache")

// answer answers invalid and cached groups, and reports whether there are any. It must be
// called before the store, because it stores in places what learnGroups needs.
func (s *Store) answer(b *store.Batch, places []place, now int64) (some bool) {
	asks := s.denied != nil && len(b.Groups) > 1 && givesAny(b.Ops) // this may end an earlier refusal
	from := 0
	for i := range b.Groups {
		g, to := &b.Groups[i], from+b.Groups[i].Ops
		ops, out := b.Ops[from:to], b.Out[from:to]
		if g.Err = checkAll(ops); g.Err == nil && s.denied != nil && g.Ops <= maxCachedOps &&
			s.denied.answer(places[from:to], ops, out, g.Mode, now) && !asks {
			g.Err = errKnown
		}
		some, from = some || g.Err != nil, to
	}
	return some
}

func givesAny(ops []store.Op) bool {
	for i := range ops {
		if gives(&ops[i]) {
			return true
		}
	}
	return false
}

// checkAll returns why an op must not reach the breaker: an invalid one is invalid under
// every policy, so it must not count as a failure.
func checkAll(ops []store.Op) error {
	for i := range ops {
		if err := ops[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// origin is where a group of a rest comes from.
type origin struct{ group, first int } // the indexes of the group and its first op

// rest returns the groups of b that answer has left, and where they come from.
func rest(b *store.Batch) (*store.Batch, []origin) {
	var left store.Batch
	var from []origin
	first := 0
	for i := range b.Groups {
		g := &b.Groups[i]
		if g.Err == nil {
			from = append(from, origin{i, first})
			left.Groups, left.Ops = append(left.Groups, *g), append(left.Ops, b.Ops[first:first+g.Ops]...)
		} else if errors.Is(g.Err, errKnown) {
			g.Err = nil
		}
		first += g.Ops
	}
	left.Out = make([]store.Decision, len(left.Ops))
	return &left, from
}

// handBack copies the answers of a rest of b, unless that is all of it.
func handBack(b, left *store.Batch, from []origin) {
	out := left.Out
	for i, o := range from {
		g := &left.Groups[i]
		b.Groups[o.group].Err = g.Err
		out = out[copy(b.Out[o.first:o.first+g.Ops], out):]
	}
}

// learnGroups records the store's answers, in order.
func (d *denied) learnGroups(b *store.Batch, from []origin, places []place, start int64) {
	first := 0
	for i := range b.Groups {
		g := &b.Groups[i]
		at := first
		if from != nil {
			at = from[i].first
		}
		var known []place
		if g.Ops <= maxCachedOps {
			known = places[at : at+g.Ops]
		}
		ops, out := b.Ops[first:first+g.Ops], b.Out[first:first+g.Ops]
		d.learnAll(known, ops, out, g.Err, start)
		if g.Err == nil && g.Mode == store.AllOrNothing {
			d.learnPassed(known, ops, out, start)
		}
		first += g.Ops
	}
}
