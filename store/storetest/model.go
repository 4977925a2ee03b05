package storetest

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// id identifies a state.
type id struct {
	scope, key string
	mark       uint64
	algorithm  store.Algorithm
}

func idOf(op *store.Op) id {
	scope, mark := op.Space()
	return id{scope, op.Key, mark, op.Rule.Algorithm}
}

// model is the simplest possible store: a map that never forgets.
type model struct {
	states map[id]*entry
	latest int64 // the latest time of any op
	// unclear is set by an op that a store which has forgotten a state when it may answers
	// differently: one that goes back to before that, or another limit to which a part of
	// what is over still counts.
	unclear bool
}

type entry struct {
	state algorithm.State
	// freshAt is when a store may forget the state, and limit the limit that determined
	// it: the one that wrote last.
	freshAt int64
	limit   headgate.Limit
	// forgot is the state in a store that forgets it as soon as it may, at forgetAt.
	forgot   algorithm.State
	forgetAt int64
}

func (e *entry) clone() entry {
	c := *e
	c.state.Words, c.forgot.Words = slices.Clone(e.state.Words), slices.Clone(e.forgot.Words)
	return c
}

func (e *entry) unused() bool {
	s := &e.state
	return s.V == [4]int64{} && len(s.Words) == 0 && s.Credit == 0
}

func newModel() *model { return &model{states: make(map[id]*entry)} }

func (m *model) entry(op *store.Op) *entry {
	k := idOf(op)
	e := m.states[k]
	if e == nil {
		e = new(entry)
		m.states[k] = e
	}
	return e
}

func (m *model) take(op *store.Op, now int64) store.Decision {
	e, rule, req := m.entry(op), op.Rule, algorithm.RequestOf(op)
	r := algorithm.Step(rule, &e.state, now, req)
	if r.Wrote {
		e.freshAt, e.limit = r.FreshAt, headgate.LimitOf(op.Rule)
	}
	if m.latest = max(m.latest, now); e.forgetAt <= m.latest {
		e.forgot = algorithm.State{}
	}
	other := algorithm.Step(rule, &e.forgot, now, req)
	if other.Wrote {
		e.forgetAt = other.FreshAt
	}
	m.unclear = m.unclear || other.Decision != r.Decision
	return r.Decision
}

// isClear reports whether all stores that conform answer ops alike, each at its At.
func (m *model) isClear(ops []store.Op, mode store.Mode) bool {
	c := &model{states: make(map[id]*entry), latest: m.latest}
	nows := make([]int64, len(ops))
	for i := range ops {
		nows[i] = ops[i].At
		if e := m.states[idOf(&ops[i])]; e != nil {
			was := e.clone()
			c.states[idOf(&ops[i])] = &was
		}
	}
	c.do(ops, nows, make([]store.Decision, len(ops)), mode)
	return !c.unclear
}

// do implements the contract of store.AllOrNothing literally: on a refusal
// everything is restored, the allowed ops are repeated as Peek, and refusals that count
// are counted.
func (m *model) do(ops []store.Op, nows []int64, out []store.Decision, mode store.Mode) {
	if mode == store.Independent {
		for i := range ops {
			out[i] = m.take(&ops[i], nows[i])
		}
		return
	}
	before := make(map[*entry]entry)
	for i := range ops {
		e := m.entry(&ops[i])
		if _, seen := before[e]; !seen {
			before[e] = e.clone()
		}
	}
	refused := false
	for i := range ops {
		out[i] = m.take(&ops[i], nows[i])
		refused = refused || !out[i].Allowed
	}
	if !refused {
		return
	}
	for e, was := range before {
		*e = was
	}
	var denied []int
	for i := range ops {
		switch {
		case out[i].Allowed:
			peek := ops[i]
			peek.Kind = store.KindPeek
			if ops[i].Kind == store.KindGrant {
				peek.Member = 0 // a grant shows no value
			}
			out[i] = m.take(&peek, nows[i])
		case ops[i].Kind == store.KindTake && ops[i].Rule.CountRefused:
			denied = append(denied, i)
		}
	}
	for _, i := range denied {
		m.take(&ops[i], nows[i])
	}
}

func describe(op *store.Op, now int64) string {
	s := fmt.Sprintf("t0%+dµs %s %d of %s", now-t0, op.Kind, op.Cost, op.Rule)
	if op.Duration != 0 {
		s += fmt.Sprintf(" for %s", op.Duration)
	}
	if op.CountsUntil != 0 {
		s += fmt.Sprintf(", counted until t0%+dµs", op.CountsUntil-t0)
	}
	if op.Lease != 0 {
		s += fmt.Sprintf(", lease %d", op.Lease)
	}
	k := op.Key
	if len(k) > 32 {
		k = k[:32] + "…"
	}
	return fmt.Sprintf("%s (scope %q key %q)", s, op.Scope, k)
}

func show(d store.Decision) string {
	verdict := "refused"
	if d.Allowed {
		verdict = "allowed"
	}
	retry := d.RetryAfter.String()
	if d.RetryAfter == store.Never {
		retry = "never"
	}
	return fmt.Sprintf("%s (%s) limit %d remaining %d granted %d retry %s reset %s delay %s lease %d counts until t0%+dµs",
		verdict, d.Reason, d.Limit, d.Remaining, d.Granted, retry, d.ResetAfter, d.Delay, d.Lease, d.CountsUntil-t0)
}

func modeName(m store.Mode) string {
	if m == store.AllOrNothing {
		return "all or nothing"
	}
	return "independent"
}
