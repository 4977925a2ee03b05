package failsafe

import (
	"errors"

	"github.com/headgate/headgate/store"
)

// errKnown marks a group that the deny cache has answered, until rest has seen it.
var errKnown = errors.New("failsafe: answered by the deny cache")

// answer answers invalid and cached groups, and reports whether there are any. It must be
// called before the store, because it stores in places what learn needs.
func (s *Store) answer(b *store.Batch, places []place, now int64) (some bool) {
	asks := s.denied != nil && len(b.Groups) > 1 && givesAny(b.Ops) // this may end an earlier refusal
	from := 0
	for i := range b.Groups {
		g, to := &b.Groups[i], from+b.Groups[i].Ops
		ops, out := b.Ops[from:to], b.Out[from:to]
		g.Err = nil
		for j := range ops {
			// An invalid op is invalid under every policy, so it must not reach the breaker.
			if g.Err = ops[j].Validate(); g.Err != nil {
				break
			}
		}
		if g.Err == nil && s.denied != nil && g.Ops <= maxCachedOps &&
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

// learn records the store's answers, in order.
func (d *refusedCache) learn(b *store.Batch, from []origin, places []place, start int64) {
	first := 0
	for i := range b.Groups {
		g := &b.Groups[i]
		at := first
		if from != nil {
			at = from[i].first
		}
		ops, out := b.Ops[first:first+g.Ops], b.Out[first:first+g.Ops]
		first += g.Ops
		if g.Ops > maxCachedOps {
			for i := range ops {
				if gives(&ops[i]) {
					p := d.place(&ops[i])
					d.forget(&p)
				}
			}
			continue
		}
		known, refused := places[at:at+g.Ops], false
		for i := range known {
			op, answer := &ops[i], &out[i]
			refused = refused || !answer.Allowed
			switch {
			case gives(op): // even after an error: the op may have been applied
				d.forget(&known[i])
			case g.Err == nil && !answer.Allowed && answer.RetryAfter > 0 && remembers(op) && !again(known, i):
				d.remember(&known[i], op, *answer, start)
			}
		}
		// Of an all-or-nothing group that it refused, also the answers about the other ops.
		for i := range known {
			op, answer := &ops[i], &out[i]
			if g.Err == nil && g.Mode == store.AllOrNothing && refused && answer.Allowed && answer.Reason == store.ReasonOK &&
				remembers(op) && !again(known, i) {
				d.remember(&known[i], op, *answer, start)
			}
		}
	}
}
