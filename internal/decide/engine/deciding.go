package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// deciding is a decision in progress: the one path for all queries. It is a question, what
// was found about it, the calls to the store that are still to be made, and the judgement
// so far. Its memory is reused for the next decision. This is its life:
//
//	begin      notes the question
//	prepare    matches the rules of each part, applies lists, bans and overrides
//	  makeResults  makes a Result of each check whose rule holds now, and chooses its role and step
//	run        makes the calls, one for each step, in the order of the steps:
//	  questions  builds the ops of a step
//	  put        sends them
//	  answers    reads the decisions, or lets fail answer for the store
//	conclude   makes the Verdict on each part of the results
//	release    keeps the memory
//
// A result has a role, which says how its limit works, and a step, which says when its store
// is called. They differ where a role is changed for this decision: an explanation peeks at
// all limits in one step, and limits that count refusals are charged before those that are
// enforced. An answer can add steps: a refusal by hidden rules adds disguise, and quota that
// is used up adds refundAll. Steps come in the order of their numbers, so what is added comes
// later than what added it.
//
// Once something has refused (allowed is false), the other limits are only peeked at, so that
// a refused request takes nothing. There are two exceptions: limits that count refusals, and
// a refusal that must stay hidden, for which the visible limits are charged as if it had
// passed. Once the store has failed, it is not called again: fail answers each limit by its
// on_store_error, and memory may count in its place.
//
// batch takes a step of many decisions together. Again, Enter and RefusesAnyway begin with
// results or matches that are known. Explain plans by itself and sees the answers through
// explaining.
type deciding struct {
	engine   *Engine
	explains *explaining // or nil

	Decided // what observers receive, which is also the parts of the question
	question
	findings
	calls
	judgement
}

// question is what was asked. It does not change. Only its time, and the costs of the
// Parts, are kept once there is an answer.
type question struct {
	query Query
	slots slots
	// alone means that the query is one Part: bans answer it, hidden refusals are
	// disguised, and there are no other parts that could have quota left.
	alone bool
}

// slots says what happens to the slots of concurrency rules.
type slots uint8

const (
	noSlots    slots = iota // these rules do not apply, as nobody knows when the request ends
	slotsNow                // they are taken with the decision
	slotsLater              // as slotsNow, or by Enter if the request has to wait for its turn
)

// findings are what was found about a question.
type findings struct {
	known    bool            // the domain has rules
	matches  []rules.Matches // one for each part, because keys point into them
	results  []Result        // one for each check, part by part
	verdict  Verdict         // the answer, for observers
	verdicts []Verdict       // one for each part, if there are several
}

// calls are the calls to the store that are still to be made, and the current one.
type calls struct {
	todo    steps
	defers  bool // slots are only checked, not taken; see [Engine.Enter]
	pending []store.Op
	out     []store.Decision
	asked   []int // the result for each pending op
}

// judgement is what the answers amount to so far.
type judgement struct {
	allowed     bool // nothing has refused so far
	hidden      bool // refused, but clients must not learn of it
	met         bool // hidden, but a limit that clients can see refuses too
	wouldRefuse int
	ruleless    headgate.Reason // the reason of a refusal without a rule; or OK
	failure     error           // the first error of the store
}

// begin returns the decision about q, with reused memory if there is any.
func (e *Engine) begin(q *Query) *deciding {
	d, _ := e.free.Get().(*deciding)
	d.setQuery(q)
	d.slots = slotsNow
	if q.Endless || !d.alone {
		d.slots = noSlots
	} else if q.Waits && q.Kind == store.KindTake {
		d.slots = slotsLater
	}
	d.todo, d.defers = 0, false
	d.judgement = judgement{allowed: true}
	d.results = d.results[:0]
	return d
}

// setQuery notes the question. The Parts are copied, because the caller's memory is its own.
func (d *deciding) setQuery(q *Query) {
	d.query, d.alone = *q, q.Parts == nil
	if d.alone {
		d.Parts = append(d.Parts[:0], q.Part)
	} else {
		d.Parts = append(d.Parts[:0], q.Parts...)
	}
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
		*d = deciding{engine: d.engine, Decided: Decided{Shard: d.Shard}}
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

// growOut makes d.out as long as d.pending.
func (d *deciding) growOut() {
	if n := len(d.pending); cap(d.out) < n {
		d.out = make([]store.Decision, n, 2*n)
	}
	d.out = d.out[:len(d.pending)]
}

// step is one call to the store about some of the limits. The steps of a decision are
// taken in this order.
type step uint8

const (
	lower      step = iota // peeks at the limits that may mark the request, which lowers its class
	refund                 // refunds, which no limit refuses
	charge                 // charges the limits that count refusals
	explain                // peeks at all limits together
	look                   // peeks at the limits of enforce and quota, before a place in a queue is taken
	quotaFirst             // as quota, for a request that takes a place in a queue
	enforce                // takes from the enforced limits, all or nothing
	quota                  // takes from the limits in quota mode, each separately
	refundAll              // refunds everything if no part has any quota left, and quotas taken first if it is refused
	disguise               // charges the visible limits for a request that hidden rules refused
	// observe calls the store for the limits that only observe. They are charged for
	// requests that really pass: a request that another rule refuses does not reach
	// them, as if they were enforced. So are those that never refuse; see Result.passes.
	observe
	none // for a banned key or a list: its answer is already known
)

// steps is a set of steps.
type steps uint16

// mode returns how the ops of a step belong together.
func (st step) mode() store.Mode {
	if st == enforce || st == disguise {
		return store.AllOrNothing
	}
	return store.Independent
}

// decide runs the whole decision.
func (d *deciding) decide(ctx context.Context) error {
	err := d.prepare()
	if d.todo != 0 {
		d.run(ctx)
		err = d.failure
	}
	return err
}

// forget drops what belongs to the door, and the rules: a stream may stay open for days, and
// would keep their generation.
func (d *deciding) forget() {
	d.Rules = nil
	d.query.Domain, d.query.Part, d.query.Parts, d.query.Matched = "", Part{}, nil, nil
	for i := range d.Parts {
		p := &d.Parts[i]
		p.Request, p.Rule, p.Key = nil, nil, ""
	}
}

// prepare finds the limits that apply and plans the calls to the store.
func (d *deciding) prepare() error {
	rs := d.engine.rules.Load()
	d.Rules = rs
	for len(d.matches) < len(d.Parts) {
		d.matches = append(d.matches, rules.Matches{})
	}
	var wrong *Part
	matches := d.matches[:len(d.Parts)]
	for i := range matches {
		p, m := &d.Parts[i], &matches[i]
		if p.Cost < 0 || p.Kind != store.KindTake && p.Kind != store.KindPeek && (p.Kind != store.KindRefund || d.alone) {
			wrong = p
		}
		switch {
		case d.query.Matched != nil:
			d.known, m.Checks = d.query.Matched.Known, append(m.Checks[:0], d.query.Matched.Checks...)
		case d.alone && p.Rule != nil:
			d.known = true
		default:
			d.known = rs.Match(d.query.Domain, p.Request, m)
		}
	}
	listed := !d.alone && d.joinLists(rs)
	for i := range matches {
		p, m := &d.Parts[i], &matches[i]
		if p.Rule != nil && d.known && !listed { // a limit that came with the request is in place of the rules
			if d.alone {
				m.Checks = m.Checks[:0]
			} else {
				m.DropRules()
			}
			m.Checks = append(m.Checks, rules.Check{Rule: p.Rule, Key: p.Key, Cost: p.Rule.Cost, Enforced: true})
		}
	}
	if !d.known && d.engine.onUnknownDomain != nil {
		d.engine.onUnknownDomain(d.query.Domain)
	}
	switch {
	case wrong != nil:
		d.allowed, d.ruleless = false, headgate.ReasonTooLarge
		return wrong.invalid()
	case d.known:
		d.plan()
		d.defers = d.slots == slotsLater && rs.HasConcurrent() && d.mayWait()
	case d.engine.unknown == UnknownDomainRefuse:
		d.allowed, d.ruleless = false, headgate.ReasonLimited
	}
	return nil
}

// invalid returns what is wrong with p.
func (p *Part) invalid() error {
	if p.Cost < 0 {
		return headgate.ErrInvalidCost
	}
	return fmt.Errorf("unsupported kind of query: %s", p.Kind)
}

// plan plans the calls to the store.
func (d *deciding) plan() {
	replaces, lists := d.makeResults()
	if replaces && d.explains == nil {
		rules.ApplyReplaces(d.matches[:len(d.Parts)])
		_, lists = d.makeResults()
	}
	if lists {
		d.settleLists()
	}
	if x := d.engine.exceptions.Load(); x != nil && d.except(x) && d.alone {
		d.hidden = d.hides(none)
		d.keepBans()
	}
}

// makeResults makes a result for each check whose rule holds for this query, with its role and its
// step, and reports whether any of them replaces others and whether any is of a list.
func (d *deciding) makeResults() (replaces, lists bool) {
	list, todo := d.results[:0], steps(0)
	marked, lowers := false, false
	for i := range d.Parts {
		gives, checks := d.Parts[i].Kind == store.KindRefund, d.matches[i].Checks
		for j := range checks {
			c := &checks[j]
			if d.slots == noSlots && c.Rule.Concurrent() || !c.Rule.Holds(d.query.At) {
				continue
			}
			list = extended(list)
			r := &list[len(list)-1]
			*r = resultOf(c)
			r.Part, r.Enforced = int32(i), c.Enforced && !d.query.Observe
			if c.Rule.List() != nil {
				r.role, r.step, lists = none, none, true
				continue
			}
			switch {
			case gives:
				r.role = refund
			case !r.Enforced || r.Rule.OnLimit.Action == rules.Pass:
				r.role = observe
			case r.Rule.QuotaMode && !d.alone:
				r.role = quota
			default:
				r.role = enforce
			}
			switch {
			case d.explains != nil:
				r.step = explain
			case r.Rule.ChargeDenied && !d.alone && !gives && !r.passes():
				r.step = charge
			default:
				r.step = r.role
			}
			todo |= 1 << r.step
			if _, under := r.class.Over(); under {
				marked, lowers = marked || r.mayMark(), lowers || r.Rule.Headroom != nil
			}
			replaces = replaces || len(c.Rule.Replaces) > 0
		}
	}
	if todo&(1<<quota) != 0 && slices.ContainsFunc(list, queues) {
		todo |= 1 << look
	}
	if marked && lowers {
		todo |= 1 << lower
	}
	d.results, d.todo = list, todo
	return replaces, lists
}

// mayWait reports whether the request may be told to wait for its turn while a rule
// limits concurrency.
func (d *deciding) mayWait() bool {
	slots, turns := false, false
	for i := range d.results {
		r := &d.results[i]
		slots = slots || r.Rule.Concurrent()
		turns = turns || r.Enforced && r.Rule.Limit.Algorithm() == headgate.LeakyBucket
	}
	return slots && turns
}
