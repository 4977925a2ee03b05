package engine

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// deciding is a decision in progress: the one path for all queries, see [Engine]. Its
// memory is reused for the next one.
type deciding struct {
	engine *Engine
	lane   uint32 // for observers; see [Mark]

	// The request. Of it, only at is kept once there is an answer.
	domain   string
	at       int64
	parts    []Part
	one      [1]Part // holds the part of a Query
	given    Matched // the rules that apply, if matched is set
	matched  bool
	explains *explaining

	// alone means that this is a Query: bans answer it, hidden refusals are disguised,
	// and there are no other parts that could have quota left.
	alone   bool
	endless bool // concurrency rules do not apply
	waits   bool // the caller waits for the request's turn
	watches bool // all rules are treated as if they only observe

	// The state of the decision.
	known       bool
	allowed     bool // nothing has refused so far
	hidden      bool // refused, but clients must not learn of it
	listed      bool // there are results of lists
	defers      bool // slots are only checked, not taken; see [Engine.Enter]
	todo        steps
	wouldRefuse int
	ruleless    headgate.Reason // the reason of a refusal without a rule; or OK
	failure     error           // the first error of the store

	matches  []rules.Matches // one for each part, because keys point into them
	results  []Result        // one for each check, part by part
	verdicts []Verdict       // one for each part of a MultiQuery
	pending  []headgate.Op
	out      []headgate.Decision
	asked    []int // the result for each pending op
}

// begin returns a decision, with reused memory if there is any.
func (e *Engine) begin(domain string, at int64) *deciding {
	d, _ := e.free.Get().(*deciding)
	d.domain, d.at = domain, at
	d.alone, d.endless, d.watches, d.matched, d.waits, d.defers = false, true, false, false, false, false
	d.allowed, d.hidden, d.todo, d.wouldRefuse, d.ruleless, d.failure = true, false, 0, 0, headgate.OK, nil
	d.results = d.results[:0]
	return d
}

// about makes d the decision about q.
func (d *deciding) about(q *Query) {
	d.alone, d.endless, d.waits = true, q.Endless, q.Waits && q.Kind == headgate.Take
	p := &d.one[0]
	p.Request, p.Cost, p.Kind, p.Rule, p.Key = q.Request, q.Cost, q.Kind, q.Rule, q.Key
	d.parts = d.one[:]
}

const (
	// maxKept is the largest number of results for which a decision's memory is kept
	// unchanged, so that a rare huge decision does not hold memory forever.
	maxKept  = 64
	maxParts = 32 // the same for parts
)

// release keeps d for the next decision, without lists that are too large.
func (d *deciding) release() {
	if len(d.matches) > maxParts || cap(d.results) > maxKept {
		*d = deciding{engine: d.engine, lane: d.lane}
	}
	d.engine.free.Put(d)
}

// extended returns list with one more element, which keeps its old content. Building
// the next element in place takes half as long as appending it.
func extended[T any](list []T) []T {
	if len(list) < cap(list) {
		return list[:len(list)+1]
	}
	return append(list, *new(T))
}

// keep removes the results for which f returns false.
func (d *deciding) keep(f func(*Result) bool) {
	n := 0
	for i := range d.results {
		if f(&d.results[i]) {
			d.results[n] = d.results[i]
			n++
		}
	}
	d.results = d.results[:n]
}

// room makes d.out as long as d.pending.
func (d *deciding) room() {
	if n := len(d.pending); cap(d.out) < n {
		d.out = make([]headgate.Decision, n, 2*n)
	}
	d.out = d.out[:len(d.pending)]
}

// step is one call to the store about some of the limits. The steps of a decision are
// taken in this order.
type step uint8

const (
	refund   step = iota // refunds, which no limit refuses
	charge               // charges the limits that count refusals
	explain              // peeks at all limits together
	enforce              // takes from the enforced limits, all or nothing
	quota                // takes from the limits in quota mode, each separately
	handBack             // refunds everything if no part has any quota left
	disguise             // charges the visible limits for a request that hidden rules refused
	// observe calls the store for the limits that only observe. They are charged for
	// requests that really pass: a request that another rule refuses does not reach
	// them, as if they were enforced.
	observe
	none // for a banned key or a list: its answer is already known
)

// steps is a set of steps.
type steps uint16

// mode returns how the ops of a step belong together.
func (st step) mode() headgate.Mode {
	if st == enforce || st == disguise {
		return headgate.AllOrNothing
	}
	return headgate.Independent
}

// decide runs the whole decision.
func (d *deciding) decide(ctx context.Context) error {
	err := d.prepare()
	if d.todo != 0 {
		d.run(ctx)
		err = d.failure
	}
	d.forget()
	return err
}

// forget drops what belongs to the door.
func (d *deciding) forget() {
	d.domain, d.parts, d.given.Checks = "", nil, nil
	d.one[0].Request, d.one[0].Rule, d.one[0].Key = nil, nil, ""
}

// prepare finds the limits that apply and plans the store requests.
func (d *deciding) prepare() error {
	rs := d.engine.rules.Load()
	for len(d.matches) < len(d.parts) {
		d.matches = append(d.matches, rules.Matches{})
	}
	var wrong *Part
	matches := d.matches[:len(d.parts)]
	for i := range matches {
		p, m := &d.parts[i], &matches[i]
		if p.Cost < 0 || p.Kind != headgate.Take && p.Kind != headgate.Peek && (p.Kind != headgate.Refund || d.alone) {
			wrong = p
		}
		switch {
		case d.matched:
			d.known, m.Checks = d.given.Known, append(m.Checks[:0], d.given.Checks...)
		case d.alone && p.Rule != nil:
			d.known = true
		default:
			d.known = rs.Match(d.domain, p.Request, m)
		}
	}
	if d.alone || !d.joinLists(rs) {
		d.override(matches)
	}
	for i := range matches {
		if d.endless && rs.HasConcurrent() {
			matches[i].DropConcurrent()
		}
	}
	if !d.known && d.engine.stranger != nil {
		d.engine.stranger(d.domain)
	}
	switch {
	case wrong != nil:
		d.allowed, d.ruleless = false, headgate.TooLarge
		return wrong.invalid()
	case d.known:
		d.plan()
		d.defers = d.waits && rs.HasConcurrent() && d.mayWait()
	case d.engine.unknown == UnknownDomainRefuse:
		d.allowed, d.ruleless = false, headgate.Limited
	}
	return nil
}

// override puts the limits that came with the request in place of the rules that match.
func (d *deciding) override(matches []rules.Matches) {
	for i := range matches {
		if p, m := &d.parts[i], &matches[i]; p.Rule != nil && d.known {
			if d.alone {
				m.Checks = m.Checks[:0]
			} else {
				m.DropRules()
			}
			m.Checks = append(m.Checks, rules.Check{Rule: p.Rule, Key: p.Key, Cost: p.Rule.Cost, Enforced: true})
		}
	}
}

// invalid returns what is wrong with p.
func (p *Part) invalid() error {
	if p.Cost < 0 {
		return headgate.ErrInvalidCost
	}
	return fmt.Errorf("unsupported kind of query: %s", p.Kind)
}

// plan assigns the store requests to steps.
func (d *deciding) plan() {
	if d.list() && d.explains == nil {
		rules.ApplyReplaces(d.matches[:len(d.parts)])
		d.list()
	}
	if d.listed {
		d.settleLists()
	}
	if x := d.engine.exceptions.Load(); x != nil && d.except(x) && d.alone {
		d.hidden = d.hides(none)
		d.keepBans()
	}
}

// list makes a result for each check, and reports whether any of them replaces others.
func (d *deciding) list() (replaces bool) {
	list, todo := d.results[:0], steps(0)
	d.listed = false
	for i := range d.parts {
		gives, checks := d.parts[i].Kind == headgate.Refund, d.matches[i].Checks
		for j := range checks {
			c := &checks[j]
			list = extended(list)
			r := &list[len(list)-1]
			*r = Result{Rule: c.Rule, Key: c.Key, Enforced: c.Enforced && !d.watches, part: int32(i), cost: c.Cost, member: c.Member}
			if c.Rule.List() != nil {
				r.role, r.step, d.listed = none, none, true
				continue
			}
			d.assign(r, gives)
			todo |= 1 << r.step
			replaces = replaces || len(c.Rule.Replaces) > 0
		}
	}
	d.results, d.todo = list, todo
	return replaces
}

// assign chooses the step in which a limit is checked.
func (d *deciding) assign(r *Result, gives bool) {
	switch {
	case gives:
		r.role = refund
	case !r.Enforced:
		r.role = observe
	case r.Rule.QuotaMode && !d.alone:
		r.role = quota
	default:
		r.role = enforce
	}
	switch {
	case d.explains != nil:
		r.step = explain
	case r.Rule.ChargeDenied && !d.alone && !gives:
		r.step = charge
	default:
		r.step = r.role
	}
}

// mayWait reports whether the request may be told to wait for its turn while a rule
// limits concurrency.
func (d *deciding) mayWait() bool {
	places, turns := false, false
	for i := range d.results {
		r := &d.results[i]
		places = places || r.Rule.Concurrent()
		turns = turns || r.Enforced && r.Rule.Limit.Algorithm() == headgate.LeakyBucket
	}
	return places && turns
}

// run takes the steps in order. If it has to wait for more than one, the Engine's
// timeout covers them together; a single one is limited by the store.
func (d *deciding) run(ctx context.Context) {
	for d.todo != 0 {
		if usual := d.todo == 1<<enforce || d.todo == 1<<charge; usual && !d.hidden || d.engine.timeout == 0 {
			d.take(ctx)
		} else {
			d.bounded(ctx)
		}
	}
}

// bounded takes all steps within the timeout. Disguising the request gets the same time
// again.
func (d *deciding) bounded(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.engine.timeout)
	defer cancel()
	for was := d.hidden; d.todo != 0 && d.hidden == was; {
		d.take(ctx)
	}
}

// take takes the next step.
func (d *deciding) take(ctx context.Context) {
	st := step(bits.TrailingZeros16(uint16(d.todo)))
	if d.questions(st); st == handBack {
		d.handBack(ctx)
		return
	}
	err := d.lost() // then the store is not called again
	if err == nil {
		err = d.put(ctx, d.engine.store, st.mode())
	}
	d.answers(ctx, st, err)
}

// questions builds the store requests of a step and marks the step as done.
func (d *deciding) questions(st step) {
	d.todo &^= 1 << st
	pending, asked := d.pending[:0], d.asked[:0]
	for i := range d.results {
		r := &d.results[i]
		if r.step != st && (st != disguise || !r.visible()) {
			continue
		}
		pending, asked = extended(pending), append(asked, i)
		d.ask(&pending[len(pending)-1], r, st)
	}
	d.pending, d.asked = pending, asked
	d.room()
}

// ask sets op to the request for one limit in a step. Once an enforced limit has
// refused, the others are only peeked at, unless they disguise that.
func (d *deciding) ask(op *headgate.Op, r *Result, st step) {
	p, rule := &d.parts[r.part], r.Rule
	op.Key, op.Scope, op.Limit = r.Key, rule.StoreScope(), rule.Limit
	op.Cost, op.At, op.Kind = times(p.Cost, r.cost), d.at, p.Kind
	op.Duration, op.Lease, op.Member = 0, 0, r.member
	switch {
	case st == charge:
		r.charge(op)
	case st == refund:
	case d.defers && rule.Concurrent(), !d.allowed && !d.hidden, d.hidden && (r.role != enforce || rule.Concurrent()):
		op.Kind = headgate.Peek
	}
}

// answers processes the store's answers, or its failure.
func (d *deciding) answers(ctx context.Context, st step, err error) {
	if err != nil {
		if d.lost() == nil {
			d.failure = unavailable(err)
		}
		d.fail(ctx, st, err)
	}
	out, results := d.out, d.results
	for j, i := range d.asked {
		r := &results[i]
		if err == nil {
			d.hear(i, r, &out[j])
		}
		if r.step == enforce && !d.hidden {
			d.allowed = d.allowed && r.Decision.Allowed
		} else {
			d.count(r)
		}
	}
	switch {
	case st == quota || st == charge:
		d.todo |= 1 << handBack
	case st == enforce && !d.allowed && !d.hidden && d.disguises() && d.hides(enforce):
		d.hidden = true
		d.todo |= 1 << disguise
	}
}

// put sends the pending ops to store and stores the answers in d.out.
func (d *deciding) put(ctx context.Context, store headgate.Store, mode headgate.Mode) error {
	switch len(d.pending) {
	case 0:
		return nil
	case 1:
		var err error
		d.out[0], err = store.Take(ctx, d.pending[0])
		return err
	}
	return store.Do(ctx, d.pending, d.out, mode)
}

// disguises reports whether to disguise a refusal by hidden rules: not if the request
// takes nothing, nor if the store is unavailable.
func (d *deciding) disguises() bool {
	return d.alone && d.parts[0].Kind == headgate.Take && d.failure == nil
}

// hear records the answer to r, which is result i. For a banned key, only explain needs
// it.
func (d *deciding) hear(i int, r *Result, answer *headgate.Decision) {
	if d.explains != nil {
		d.explains.hear(i, answer)
	}
	if r.role != none {
		r.Decision = *answer
	}
}

// count takes the answer for a limit into account.
func (d *deciding) count(r *Result) {
	if r.step == charge {
		r.charged(&d.parts[r.part])
	}
	switch r.role {
	case enforce:
		d.allowed = d.allowed && r.Decision.Allowed
		d.pretend(r)
	case observe:
		d.shadow(r)
	case refund, charge, explain, quota, handBack, disguise, none:
	}
}

// shadow turns the answer of a rule that only observes into one that allows.
func (d *deciding) shadow(r *Result) {
	r.Decision.Delay = 0
	if !r.Decision.Allowed {
		r.Decision.Allowed, r.Decision.Reason, r.Decision.RetryAfter = true, headgate.Shadow, 0
		d.wouldRefuse++
	}
}

// conclude makes v the verdict on a part that starts at result first, and returns the
// first result of the next part.
func (d *deciding) conclude(v *Verdict, part, first int) (next int) {
	v.Known, v.at = d.known, d.at
	if v.Allowed, v.Decision.Allowed, v.Decision.Reason = true, true, headgate.NoLimit; d.ruleless != headgate.OK {
		v.refuse(d.ruleless)
	}
	results := d.results
	for next = first; next < len(results) && int(results[next].part) == part; next++ {
		switch r := &results[next]; {
		case r.Enforced:
			v.consider(r)
		case r.Decision.Reason == headgate.Shadow:
			v.WouldRefuse++
		}
	}
	return next
}
