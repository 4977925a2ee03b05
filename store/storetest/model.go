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
	owner      string // of a share of it
}

func idOf(op *store.Op) id {
	scope, mark := op.Space()
	return id{scope, op.Key, mark, op.Rule.Algorithm, ""}
}

// model is the simplest possible store: a map that never forgets.
type model struct {
	states map[id]*entry
	latest int64 // the latest time of any op
	// unclear is set by an op that a store which has forgotten a state when it may answers
	// differently: one that goes back to before that, or another limit to which a part of
	// what is over still counts.
	unclear bool
	written bool // by the last step
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

func (m *model) entry(op *store.Op) *entry { return m.at(idOf(op)) }

// owner returns the entry of the time of the owner of op's share.
func (m *model) owner(op *store.Op) *entry { return m.at(ownerOf(op)) }

func ownerOf(op *store.Op) id {
	k := idOf(op)
	k.owner = "of " + op.Share.Of
	return k
}

func (m *model) at(k id) *entry {
	e := m.states[k]
	if e == nil {
		e = new(entry)
		m.states[k] = e
	}
	return e
}

func (m *model) take(op *store.Op, now int64) store.Decision {
	e, rule, req := m.entry(op), op.Rule, algorithm.RequestOf(op)
	owner, share := new(entry), op.Shared()
	if share != nil {
		owner = m.owner(op)
	}
	step := func(s, owner *algorithm.State) (res, paid algorithm.Result) {
		if share != nil {
			return algorithm.StepShared(rule, s, owner, now, req, share)
		}
		return algorithm.Step(rule, s, now, req), paid
	}
	m.latest = max(m.latest, now)
	r, paid := step(&e.state, &owner.state)
	m.written = r.Wrote
	e.wrote(r, op.Rule)
	if share != nil {
		owner.wrote(paid, share.Fair.Time)
	}
	e.forget(m.latest)
	owner.forget(m.latest)
	other, paid := step(&e.forgot, &owner.forgot)
	if other.Wrote {
		e.forgetAt = other.FreshAt
	}
	if paid.Wrote {
		owner.forgetAt = paid.FreshAt
	}
	m.unclear = m.unclear || other.Decision != r.Decision
	return r.Decision
}

func (e *entry) wrote(r algorithm.Result, by *store.Rule) {
	if r.Wrote {
		e.freshAt, e.limit = r.FreshAt, headgate.LimitOf(by)
	}
}

func (e *entry) forget(now int64) {
	if e.forgetAt <= now {
		e.forgot = algorithm.State{}
	}
}

// isClear reports whether all stores that conform answer ops alike, each at its At.
func (m *model) isClear(ops []store.Op, mode store.Mode) bool {
	c := &model{states: make(map[id]*entry), latest: m.latest}
	nows := make([]int64, len(ops))
	for i := range ops {
		nows[i] = ops[i].At
		ids := []id{idOf(&ops[i])}
		if ops[i].Shared() != nil {
			ids = append(ids, ownerOf(&ops[i]))
		}
		for _, id := range ids {
			if e := m.states[id]; e != nil {
				was := e.clone()
				c.states[id] = &was
			}
		}
	}
	c.do(ops, nows, make([]store.Decision, len(ops)), mode)
	return !c.unclear
}

// do implements the contract of store.AllOrNothing literally: on a refusal
// everything is restored, the allowed ops are repeated as Peek, and refusals that write are
// repeated.
func (m *model) do(ops []store.Op, nows []int64, out []store.Decision, mode store.Mode) {
	if mode == store.Independent {
		for i := range ops {
			out[i] = m.take(&ops[i], nows[i])
		}
		return
	}
	before := make(map[*entry]entry)
	for i := range ops {
		states := []*entry{m.entry(&ops[i])}
		if ops[i].Shared() != nil {
			states = append(states, m.owner(&ops[i]))
		}
		for _, e := range states {
			if _, seen := before[e]; !seen {
				before[e] = e.clone()
			}
		}
	}
	refused, wrote := false, make([]bool, len(ops))
	for i := range ops {
		out[i] = m.take(&ops[i], nows[i])
		refused, wrote[i] = refused || !out[i].Allowed, m.written
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
			peek.Kind, peek.Share = store.KindPeek, ops[i].Shared()
			if ops[i].Kind == store.KindGrant {
				peek.Member = 0 // a grant shows no value
			}
			out[i] = m.take(&peek, nows[i])
		case ops[i].Kind == store.KindTake && wrote[i]:
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
	if op.Leave != 0 {
		s += fmt.Sprintf(", leaving %d", op.Kept())
	}
	if share := op.Shared(); share != nil {
		s += fmt.Sprintf(", share of %q, weight %d", share.Of, share.Weight)
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
