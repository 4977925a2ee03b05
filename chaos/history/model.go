package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// keyModel is the sequential limiter of one key.
type keyModel struct {
	limits  []*Limit
	jumps   bool  // the store's clock may have gone back or ahead
	memory  int64 // History.Memory
	reach   int64 // History.Reach
	scratch []charge
}

// step is an op of the model, with its time on the store's clock and the op that it settles.
type step struct {
	*Op
	at      moment
	mine    []int // indices of the limits that apply, among the key's
	peak    int64 // latest time that the store's clock can have shown so far
	crossed bool  // the store's clock was set since in.Of
	lossy   bool  // the store may have forgotten it at once
}

// apply returns the state after the step, or nil if the limiter cannot have given this answer.
func (k *keyModel) apply(s *state, in *step) *state {
	switch in.Kind {
	case Lost:
		return s.unsureSince(in.Since)
	case Set:
		return k.setBack(s, in.Since)
	case Emptied:
		return k.emptied(s, in)
	case Commit, Cancel, Release, Renew:
		return k.settle(s, in)
	}
	if in.Answer == nil {
		if in.Kind == Peek {
			return s
		}
		return k.charged(s, in, in.Cost, true)
	}
	if !k.canAnswer(s, in) {
		return nil
	}
	if in.Kind == Peek || !in.Answer.Allowed {
		return s
	}
	after := k.charged(s, in, in.Cost, false)
	if i := k.named(in); i >= 0 && !in.Answer.Vague && !k.resets(after, i, in) {
		return nil
	}
	return after
}

// charged returns s with n charged to each limit.
func (k *keyModel) charged(s *state, in *step, n int64, unsure bool) *state {
	c := s.clone()
	for _, i := range in.mine {
		k.charge(c, i, in, n, unsure)
	}
	return c
}

// charge adds an entry of n.
func (k *keyModel) charge(c *state, i int, in *step, n int64, unsure bool) {
	unsure = unsure || in.lossy
	e := entry{op: in.ID, n: n, lo: in.at.lo, hi: in.at.hi, unsure: unsure}
	switch {
	case k.jumps: // as if of the latest before, until the clock has caught up
		for _, before := range c.entries[i] {
			e.hi = max(e.hi, min(before.hi, in.peak))
		}
	case !unsure:
		e.lo = max(e.lo, c.latest(i)) // charged after it
	}
	c.entries[i] = append(c.entries[i], e)
}

// latest returns the earliest possible time of the latest certain entry.
func (s *state) latest(i int) int64 {
	for j := len(s.entries[i]) - 1; j >= 0; j-- {
		if e := &s.entries[i][j]; !e.unsure {
			return e.lo
		}
	}
	return 0
}

// named returns the limit that the answer names, or -1 if it is none of these.
func (k *keyModel) named(in *step) int {
	return slices.IndexFunc(k.limits, func(l *Limit) bool { return l.Name == in.Answer.Rule })
}

// canAnswer reports whether the answer is right in this state, except for ResetAfter of an
// admission.
func (k *keyModel) canAnswer(s *state, in *step) bool {
	a, n := in.Answer, in.Cost
	i := k.named(in)
	if i < 0 || a.Limit != k.limits[i].most() {
		return false
	}
	if a.Allowed {
		if a.Retry != 0 {
			return false
		}
		for _, j := range in.mine {
			if l := k.limits[j]; k.least(s, j, in.at)+n*l.unit() > l.most()*l.unit() {
				return false
			}
		}
		if in.Kind == Peek {
			n = 0
		}
		return k.remains(s, i, in, n) && k.waits(s, i, in) && (in.Kind != Peek || k.resets(s, i, in))
	}
	l := k.limits[i]
	full := l.most() * l.unit()
	if k.most(s, i, in.at)+n*l.unit() <= full {
		return false
	}
	if a.Vague {
		return a.Retry >= 1
	}
	return k.remains(s, i, in, 0) && k.resets(s, i, in) && k.retries(s, i, in)
}

// remains reports whether the answer's Remaining is right after n more.
func (k *keyModel) remains(s *state, i int, in *step, n int64) bool {
	l, a := k.limits[i], in.Answer
	u := l.unit()
	most, least := k.most(s, i, in.at)+n*u, k.least(s, i, in.at)+n*u
	return a.Remaining >= 0 && most > (l.most()-a.Remaining-1)*u &&
		(a.Remaining == 0 || least <= (l.most()-a.Remaining)*u)
}

// resets reports whether the limit is fully restored when the answer says so, and not a
// millisecond earlier.
func (k *keyModel) resets(s *state, i int, in *step) bool {
	at := in.at.after(in.Answer.Reset * 1000)
	return k.least(s, i, at) <= 0 && (in.Answer.Reset == 0 || k.most(s, i, at.after(-1000)) > 0)
}

// retries reports whether the request would be allowed when the answer says so, and not a
// millisecond earlier.
func (k *keyModel) retries(s *state, i int, in *step) bool {
	l := k.limits[i]
	at, full := in.at.after(in.Answer.Retry*1000), (l.most()-in.Cost)*l.unit()
	return in.Answer.Retry >= 1 && k.least(s, i, at) <= full && k.most(s, i, at.after(-1000)) > full
}

// waits reports whether an admitted request's turn is when the answer says: when everything
// before it has drained.
func (k *keyModel) waits(s *state, i int, in *step) bool {
	delay := in.Answer.Delay * 1000
	if k.limits[i].Algorithm != LeakyBucket || in.Kind == Peek {
		return delay == 0
	}
	at := in.at.after(delay)
	return k.least(s, i, at) <= 0 && (delay == 0 || k.most(s, i, at.after(-1000)) > 0)
}

// settle applies a commit, cancel, release or renewal of an earlier op.
func (k *keyModel) settle(s *state, in *step) *state {
	was := slices.IndexFunc(s.settled, func(x settled) bool { return x.op == in.Of })
	c := s.clone()
	gone := was >= 0 && s.settled[was].gone
	if in.Answer == nil || in.crossed || in.lossy || gone || k.strays(in) {
		for _, i := range in.mine {
			for j := range c.entries[i] {
				// If late, it refunds what came after.
				if e := &c.entries[i][j]; e.op == in.Of || gone || k.reach > 0 {
					e.unsure = true
				}
			}
			if in.Kind == Commit || in.Kind == Renew {
				k.charge(c, i, in, in.Cost, true)
			}
		}
		c.settled = append(c.settled, settled{op: in.Of, unsure: true, gone: gone})
		return c
	}
	if !in.Answer.Allowed { // settled before, or ended
		if was >= 0 || k.leaseEnded(s, in, in.at.hi, false) {
			return s
		}
		return nil
	}
	if was >= 0 && !s.settled[was].unsure || k.leaseEnded(s, in, in.at.lo, true) {
		return nil
	}
	for _, i := range in.mine {
		k.settleOne(c, i, in)
	}
	c.settled = append(c.settled, settled{op: in.Of})
	return c
}

// strays reports whether in was in transit for so long that its refund may miss the take,
// because the node computes the time of the take from its own clock: then nothing is refunded,
// or a slightly later take.
func (k *keyModel) strays(in *step) bool {
	return k.reach > 0 && in.Return-in.Call > k.reach-10_000
}

// settleOne changes what in.Of took of limit i to what in says.
func (k *keyModel) settleOne(c *state, i int, in *step) {
	cost := in.Cost // 0 for Cancel and Release
	if cost < in.Was && k.limits[i].Algorithm == SlidingLog {
		blur(c.entries[i], in.Of, k.reach)
	}
	for j := range c.entries[i] {
		e := &c.entries[i][j]
		if e.op != in.Of {
			continue
		}
		switch {
		case in.Kind == Renew || cost == 0:
			e.until = in.at.hi + k.memory
		case cost < e.n:
			c.entries[i] = append(c.entries[i], entry{
				op: e.op, n: e.n - cost, lo: e.lo, hi: e.hi, until: in.at.hi + k.memory,
			})
			c.entries[i][j].n = cost
		}
		break
	}
	if more := cost - in.Was; more > 0 && in.Kind == Commit {
		k.charge(c, i, in, more, false)
	}
	if in.Kind == Renew {
		k.charge(c, i, in, cost, false)
	}
}

// blur makes the times of entries charged just before an op as uncertain as all of them
// together, because it is unknown which one will be refunded.
func blur(list []entry, op int, reach int64) {
	i := slices.IndexFunc(list, func(e entry) bool { return e.op == op })
	if i < 0 || reach == 0 {
		return
	}
	lo, hi := list[i].lo, list[i].hi
	near := func(e *entry) bool { return e.hi >= list[i].lo-reach && e.lo <= list[i].hi }
	for j := range list {
		if near(&list[j]) {
			lo, hi = min(lo, list[j].lo), max(hi, list[j].hi)
		}
	}
	from, to := list[i].lo-reach, list[i].hi
	for j := range list {
		if e := &list[j]; e.hi >= from && e.lo <= to {
			e.lo, e.hi = lo, hi
		}
	}
}

// leaseEnded reports whether a lease has expired at a time: certainly, or possibly.
func (k *keyModel) leaseEnded(s *state, in *step, now int64, surely bool) bool {
	for _, i := range in.mine {
		if k.limits[i].Algorithm != Places {
			continue
		}
		for _, e := range s.entries[i] {
			began := e.lo
			if surely {
				began = e.hi
			}
			if e.op == in.Of {
				return e.unsure && !surely || now >= began+k.limits[i].Period
			}
		}
		return !surely // it was forgotten
	}
	return false
}

// setBack makes unsure what was fresh when the clock was at that time and is not after it was
// set back.
func (k *keyModel) setBack(s *state, was int64) *state {
	c := s.clone()
	c.held = max(c.held, was)
	for i := range c.entries {
		if k.least(s, i, moment{was, was}) > 0 {
			continue
		}
		for j := range c.entries[i] {
			c.entries[i][j].unsure = true
		}
	}
	return c
}

// emptied returns what is left when everything was forgotten: the refusals that nodes
// remember. Reservations can still be settled.
func (k *keyModel) emptied(s *state, in *step) *state {
	c := &state{entries: make([][]entry, len(k.limits)), settled: s.allUnsure()}
	for _, list := range s.entries {
		for _, e := range list {
			if !slices.ContainsFunc(c.settled, func(x settled) bool { return x.op == e.op }) {
				c.settled = append(c.settled, settled{op: e.op, unsure: true, gone: true})
			}
		}
	}
	if k.memory > 0 {
		for i := range s.entries {
			for _, e := range s.entries[i] {
				e.until = in.at.hi + k.memory
				c.entries[i] = append(c.entries[i], e)
			}
		}
	}
	return c
}

// allUnsure returns the settled ones of a store that may have forgotten them.
func (s *state) allUnsure() []settled {
	list := slices.Clone(s.settled)
	for i := range list {
		list[i].unsure = true
	}
	return list
}

// porcupine returns the model for the checker.
func (k *keyModel) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &state{entries: make([][]entry, len(k.limits))} },
		Step: func(s, in, _ any) (bool, any) {
			after := k.apply(s.(*state), in.(*step))
			return after != nil, after
		},
		Equal:             func(a, b any) bool { return a.(*state).equal(b.(*state)) },
		Hash:              func(s any) uint64 { return s.(*state).hash() },
		DescribeOperation: func(in, _ any) string { return in.(*step).String() },
		DescribeState:     func(s any) string { return k.describe(s.(*state)) },
	}
}

// String returns the op as a line for people.
func (op *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s %d", op.ID, op.Kind, op.Cost)
	if op.Of != 0 {
		fmt.Fprintf(&b, " of #%d", op.Of)
	}
	if a := op.Answer; a == nil {
		b.WriteString(" → ?")
	} else {
		fmt.Fprintf(&b, " → %s allowed=%t remaining=%d retry=%dms reset=%dms", a.Rule, a.Allowed, a.Remaining, a.Retry, a.Reset)
		if a.Delay > 0 {
			fmt.Fprintf(&b, " delay=%dms", a.Delay)
		}
	}
	fmt.Fprintf(&b, " %s/%s %s", op.Node, op.Door, op.Note)
	return strings.TrimSpace(b.String())
}

func (k *keyModel) describe(s *state) string {
	var b strings.Builder
	for i, l := range k.limits {
		fmt.Fprintf(&b, "%s:", l.Name)
		for _, e := range s.entries[i] {
			fmt.Fprintf(&b, " %d at …%06d+%d", e.n, e.lo%1_000_000_000/1000, (e.hi-e.lo)/1000)
			if e.unsure {
				b.WriteByte('?')
			}
			if e.until != 0 {
				b.WriteByte('-')
			}
		}
		b.WriteByte(' ')
	}
	return b.String()
}
