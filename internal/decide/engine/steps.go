package engine

import (
	"context"
	"math/bits"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// run takes the steps in order. If it has to wait for more than one, the Engine's
// timeout covers them together; a single one is limited by the store. A deadline of ctx
// does not count: the client may have chosen it, so that the store has no time to refuse.
func (d *deciding) run(ctx context.Context) {
	if _, ok := ctx.Deadline(); ok {
		ctx = context.WithoutCancel(ctx)
	}
	for d.todo != 0 {
		if usual := d.todo == 1<<enforce || d.todo == 1<<charge; usual && !d.hidden || d.engine.timeout == 0 {
			d.next(ctx)
		} else {
			d.bounded(ctx)
		}
	}
}

// bounded takes all steps within the timeout, even if the client hangs up: what the store
// has not answered would pass by on_store_error, or hold a slot that nobody knows of.
// Disguising the request gets the same time again.
func (d *deciding) bounded(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.engine.timeout)
	defer cancel()
	for was := d.hidden; d.todo != 0 && d.hidden == was; {
		d.next(ctx)
	}
}

// next takes the next step.
func (d *deciding) next(ctx context.Context) {
	st := step(bits.TrailingZeros16(uint16(d.todo)))
	if d.questions(st); st == refundAll {
		d.refundAll(ctx)
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
		if r.step != st && (st != disguise || !r.visible()) && (st != look || r.step != enforce && r.step != quota) && (st != lower || !r.mayMark()) {
			continue
		}
		pending, asked = extended(pending), append(asked, i)
		d.fill(&pending[len(pending)-1], r, st)
	}
	d.pending, d.asked = pending, asked
	d.growOut()
}

// fill sets op to the request for one limit in a step. Once an enforced limit has
// refused, the others are only peeked at, unless they disguise that.
func (d *deciding) fill(op *store.Op, r *Result, st step) {
	p, rule := &d.Parts[r.Part], r.Rule
	op.Key, op.Scope, op.Rule = r.Key, rule.StoreScope(), rule.Limit.Rule()
	op.Cost, op.At, op.Kind = times(p.Cost, r.cost), d.query.At, p.Kind
	op.Duration, op.Lease, op.Member, op.CountsUntil = 0, 0, r.member, 0 // it is used again
	op.Leave, op.Share = rule.LeaveOf(r.class), rule.FairOf(r.share)
	switch {
	case st == charge:
		r.charge(op)
	case st == refund:
	case st == look, st == lower, d.defers && rule.Concurrent(), !d.allowed && !d.hidden, d.hidden && (r.role != enforce && (d.met || !r.passes()) || rule.Concurrent()):
		op.Kind = store.KindPeek
	}
	if r.passes() {
		r.widen(op)
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
			d.record(i, r, &out[j])
		}
		if st == look || st == lower {
			continue
		}
		if r.step == enforce && !d.hidden {
			d.allowed = d.allowed && r.Decision.Allowed
		} else {
			d.count(r)
		}
	}
	switch {
	case st == lower:
		d.lower()
	case st == look:
		d.quotasFirst()
	case st == quotaFirst:
		d.allowed = d.allowed && d.quotaLeft()
		d.todo |= 1 << refundAll
	case st == quota || st == charge:
		d.todo |= 1 << refundAll
	case st == enforce && !d.allowed && !d.hidden && d.disguises() && d.hides(enforce):
		d.hidden = true
		d.todo |= 1 << disguise
	}
}

// put sends the pending ops to store and stores the answers in d.out.
func (d *deciding) put(ctx context.Context, db store.Store, mode store.Mode) error {
	switch len(d.pending) {
	case 0:
		return nil
	case 1:
		mode = store.Independent // so that a refusal counts if it should
	}
	return store.ExecuteAll(ctx, db, d.pending, d.out, mode)
}

// disguises reports whether to disguise a refusal by hidden rules: not if the request
// takes nothing, nor if the store is unavailable.
func (d *deciding) disguises() bool {
	return d.alone && d.Parts[0].Kind == store.KindTake && d.failure == nil
}

// record records the answer to r, which is result i. For a banned key, only explain needs
// it.
func (d *deciding) record(i int, r *Result, answer *store.Decision) {
	if r.passes() {
		r.pass(answer)
	}
	if d.explains != nil {
		d.explains.record(i, answer)
	}
	if r.role != none {
		r.Decision = *answer
		soft.Later(&r.Decision)
	}
}

// count takes the answer for a limit into account.
func (d *deciding) count(r *Result) {
	if r.step == charge {
		r.charged(&d.Parts[r.Part])
	}
	switch r.role {
	case enforce:
		d.allowed = d.allowed && r.Decision.Allowed
		d.met = d.met || d.hidden && !r.Decision.Allowed
		d.pretend(r)
	case observe:
		if !r.Enforced {
			d.shadow(r)
		}
	case lower, refund, charge, explain, look, quotaFirst, quota, refundAll, disguise, none:
	}
}

// shadow turns the answer of a rule that only observes into one that allows. A rule that never
// refuses would not have refused.
func (d *deciding) shadow(r *Result) {
	r.Decision.Delay = 0
	switch {
	case r.Decision.Allowed:
	case r.Rule.OnLimit.Action == rules.Pass:
		r.Decision.Allowed, r.Decision.Reason, r.Decision.RetryAfter = true, headgate.ReasonOK, 0
	default:
		r.Decision.Allowed, r.Decision.Reason, r.Decision.RetryAfter = true, store.ReasonShadow, 0
		d.wouldRefuse++
	}
}

// conclude makes v the answer of the results.
func (d *deciding) conclude(v *Verdict) {
	if v.deciding = d; d.alone {
		d.concludePart(v, 0, 0)
		return
	}
	d.verdicts = d.verdicts[:0]
	from := 0
	for i := range d.Parts {
		d.verdicts = append(d.verdicts, Verdict{})
		part := &d.verdicts[i]
		next := d.concludePart(part, i, from)
		part.results, from = d.results[from:next:next], next
	}
	v.Allowed, v.Known, v.WouldRefuse, v.at = d.allowed, d.known, d.wouldRefuse, d.query.At
	says := first(d.verdicts)
	for i := range d.verdicts {
		part := &d.verdicts[i]
		v.Marked += part.Marked
		if v.Allowed && part.Allowed { // parts without quota delay nothing
			v.Delay = max(v.Delay, part.Delay)
		}
		if says == nil && (part.Rule != nil || i == len(d.verdicts)-1) {
			says = part
		}
	}
	if says != nil {
		v.Rule, v.Decision = says.Rule, says.Decision
	}
}

// concludePart makes v the verdict on a part that starts at result first, and returns the
// first result of the next part.
func (d *deciding) concludePart(v *Verdict, part, first int) (next int) {
	v.Known, v.at = d.known, d.query.At
	if v.Allowed, v.Decision.Allowed, v.Decision.Reason = true, true, headgate.ReasonNoLimit; d.ruleless != headgate.ReasonOK {
		v.refuse(d.ruleless)
	}
	results := d.results
	for next = first; next < len(results) && int(results[next].Part) == part; next++ {
		switch r := &results[next]; {
		case r.Enforced:
			v.consider(r)
			if r.Rule.Mark() != "" && d.allowed && r.role != refund && r.marks(times(d.Parts[part].Cost, r.cost)) {
				r.Marked = true
				v.Marked++
			}
		case r.Decision.Reason == store.ReasonShadow:
			v.WouldRefuse++
		}
	}
	return next
}
