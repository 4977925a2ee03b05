package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Part is one of several questions about the same request, such as one
// descriptor of an Envoy request. Each is matched by itself.
type Part struct {
	// Request has the attributes that rules match and count by.
	Request rules.Request
	// Cost is what the request takes of the limits of this part; 0 is a dry
	// run.
	Cost int64
	// Kind is headgate.Take, headgate.Peek, or headgate.Refund to give Cost
	// back.
	Kind headgate.Kind
	// Rule, if not nil, is asked about in place of those that match Request,
	// and counts by Key: a limit that came with the request. In an unknown
	// domain it does not apply.
	Rule *rules.Rule
	Key  string
}

// MultiQuery is what a door asks if a request has several parts.
type MultiQuery struct {
	// Domain is the namespace whose rules apply.
	Domain string
	// Parts are decided together.
	Parts []Part
	// At is the time of the request in microseconds since the Unix epoch.
	At int64
	// Door is where the request came in; see [Query].
	Door Door
	// Observe lets every request pass and treats all rules as if they only
	// observed: WouldRefuse says what they would have done.
	Observe bool
}

// MultiVerdict is the answer to a MultiQuery.
type MultiVerdict struct {
	// Allowed reports whether the request may pass: no rule refuses it, and if
	// there are rules in quota mode, one of the parts they apply to has quota
	// left.
	Allowed bool
	// Known reports whether the domain has rules.
	Known bool
	// WouldRefuse is how many rules that only observe would have refused.
	WouldRefuse int

	pool    *sync.Pool
	scratch *scratch
}

// Parts returns one verdict for each part, in their order. They are good until
// Release of the MultiVerdict, and must not be released or undone themselves.
// A part that is refused only by rules in quota mode may belong to a request
// that is allowed.
func (v *MultiVerdict) Parts() []Verdict {
	if v.scratch == nil {
		return nil
	}
	return v.scratch.multi.verdicts
}

// Release hands the memory behind Parts back for the next decision; see
// [Verdict.Release].
func (v *MultiVerdict) Release() {
	if v.scratch == nil {
		return
	}
	v.scratch.multi.tidy()
	v.pool.Put(v.scratch)
	v.scratch = nil
}

// DecideAll answers q. All enforced limits of all parts are charged, or none
// is. Three sorts of limits stand apart:
//
//   - Refunds cannot be refused, so nothing holds them back.
//   - Rules in quota mode refuse by themselves; see [MultiVerdict].
//   - Rules that only observe are charged if the request passes.
//   - Rules with ChargeDenied are charged whatever becomes of the request.
//
// Errors are as of [Engine.Decide].
func (e *Engine) DecideAll(ctx context.Context, q MultiQuery) (MultiVerdict, error) {
	memory, _ := e.scratch.Get().(*scratch)
	s := &memory.multi
	s.q, s.v, s.failure = q, MultiVerdict{Allowed: true}, nil
	mark := Mark{Lane: memory.lane}
	if e.observer != nil {
		mark.Start = e.observer.Deciding(q.At, mark.Lane)
	}
	err := multi{e, s, &s.q, &s.v}.decide(ctx)
	v := s.v
	v.pool, v.scratch = &e.scratch, memory
	s.q = MultiQuery{} // let go of what the door gave
	if e.observer != nil {
		e.observer.DecidedAll(ctx, mark, q, v, err)
	}
	return v, err
}

// multi is one decision under way.
type multi struct {
	*Engine
	s *multiScratch
	q *MultiQuery   // in s, as is v, since what escapes has to be there already
	v *MultiVerdict // without its scratch
}

// sort is how a limit takes part in the decision.
type sort uint8

const (
	enforced sort = iota
	quota
	observed
	refunded
	banned // whose answer is known already
)

func (m multi) decide(ctx context.Context) error {
	s, q, v := m.s, m.q, m.v
	v.Known = s.match(m.rules.Load(), q)
	if err := m.check(); err != nil || !v.Known {
		return err
	}
	if x := m.exceptions.Load(); x != nil {
		m.except(x)
	}
	var count [banned + 1]int
	charged := 0
	for i := range s.items {
		if s.items[i].charged {
			charged++
		} else {
			count[s.items[i].sort]++
		}
	}
	if m.timeout > 0 && max(count[enforced], charged) < len(s.items) {
		bounded, cancel := context.WithTimeout(ctx, m.timeout)
		defer cancel()
		ctx = bounded
	}
	if count[refunded] > 0 {
		m.ask(ctx, refunded, headgate.Refund, headgate.Independent)
	}
	if charged > 0 {
		m.askCharged(ctx)
	}
	if count[enforced] > 0 {
		m.ask(ctx, enforced, m.kind(), headgate.AllOrNothing)
	}
	if count[quota] > 0 {
		m.ask(ctx, quota, m.kind(), headgate.Independent)
	}
	if count[quota]+charged > 0 {
		m.settleQuota(ctx)
	}
	if count[observed] > 0 {
		m.ask(ctx, observed, m.kind(), headgate.Independent)
	}
	s.conclude()
	return s.failure
}

// check refuses what cannot be asked, and settles requests in an unknown
// domain.
func (m multi) check() error {
	refusal := headgate.Decision{Reason: headgate.TooLarge, RetryAfter: headgate.Never}
	var err error
	for i := range m.q.Parts {
		switch p := &m.q.Parts[i]; {
		case p.Cost < 0:
			err = headgate.ErrInvalidCost
		case p.Kind != headgate.Take && p.Kind != headgate.Peek && p.Kind != headgate.Refund:
			err = fmt.Errorf("a query cannot be of kind %s", p.Kind)
		}
	}
	switch {
	case err != nil:
	case m.v.Known || m.unknown == UnknownDomainAllow:
		return nil
	default:
		refusal.Reason = headgate.Limited
	}
	m.v.Allowed = false
	for i := range m.s.verdicts {
		m.s.verdicts[i].refuse(refusal)
		m.s.verdicts[i].results = nil
	}
	return err
}

// kind is Take while the request may pass, and Peek when it cannot any more.
func (m multi) kind() headgate.Kind {
	if m.v.Allowed {
		return headgate.Take
	}
	return headgate.Peek
}

// ask puts the limits of one sort to the store and takes their answers. kind
// is that of parts that take; those that peek do so under any.
func (m multi) ask(ctx context.Context, want sort, kind headgate.Kind, mode headgate.Mode) {
	s := m.s
	s.pending, s.places = s.pending[:0], s.places[:0]
	for i := range s.items {
		if s.items[i].sort == want && !s.items[i].charged {
			s.pending, s.places = append(s.pending, s.op(m.q, i, kind)), append(s.places, i)
		}
	}
	if m.put(ctx, m.store, mode) {
		for j, i := range s.places {
			s.results[i].Decision = s.out[j]
		}
	} else {
		m.settle(ctx, want, kind, mode)
	}
	for _, i := range s.places {
		m.count(want, &s.results[i])
	}
}

// count takes the answer of a limit into account.
func (m multi) count(want sort, r *Result) {
	switch want {
	case enforced:
		m.v.Allowed = m.v.Allowed && r.Decision.Allowed
	case observed:
		m.observe(r)
	case quota, refunded, banned:
	}
}

// settle fills in the results of s.places when the store has failed: each as
// its rule's on_store_error says.
func (m multi) settle(ctx context.Context, want sort, kind headgate.Kind, mode headgate.Mode) {
	s := m.s
	for _, i := range s.places {
		r := &s.results[i]
		r.Decision = headgate.Decision{Allowed: true, Reason: headgate.FailOpen, Limit: r.Rule.Limit.Capacity()}
		if s.items[i].sort < observed {
			r.Decision = failed(r.Rule)
		}
		if !r.Decision.Allowed && mode == headgate.AllOrNothing {
			kind = headgate.Peek
		}
	}
	if m.fallback == nil || want == observed {
		return
	}
	s.pending = s.pending[:0]
	for _, i := range s.places {
		if rule := s.results[i].Rule; rule.OnStoreError == rules.StoreErrorLocal {
			op := s.op(m.q, i, kind)
			if s.items[i].charged {
				op = s.charge(m.q, i)
			}
			op.Limit = localLimit(rule)
			s.pending = append(s.pending, op)
		}
	}
	// The caller's deadline may have passed; memory needs no time.
	if !m.put(context.WithoutCancel(ctx), m.fallback, mode) {
		return // then they are as allow
	}
	next := 0
	for _, i := range s.places {
		r := &s.results[i]
		if r.Rule.OnStoreError != rules.StoreErrorLocal {
			continue
		}
		r.Decision = s.out[next]
		if r.Decision.Reason != headgate.NoLimit {
			r.Decision.Reason = headgate.Fallback
		}
		next++
	}
}

// observe makes the answer of a rule that only observes one that lets pass.
func (m multi) observe(r *Result) {
	r.Decision.Delay = 0
	if !r.Decision.Allowed {
		r.Decision.Allowed, r.Decision.Reason, r.Decision.RetryAfter = true, headgate.Shadow, 0
		m.v.WouldRefuse++
	}
}

// settleQuota refuses the request if no part in quota mode has any left, and
// then gives back what the others have taken.
func (m multi) settleQuota(ctx context.Context) {
	if !m.v.Allowed || m.s.quotaLeft() {
		return
	}
	m.v.Allowed = false
	m.each(ctx, func(r *Result, op *headgate.Op) bool {
		d := &r.Decision
		if d.Granted == 0 || d.ResetAfter <= 0 {
			return false
		}
		op.Kind, op.Cost, op.Duration = headgate.Refund, d.Granted, d.ResetAfter
		return true
	})
}

// each puts an op for every limit that can refuse, if f makes one of it, to the
// store that its answer came from. Limits that allowed the request say what is
// left after that.
func (m multi) each(ctx context.Context, f func(r *Result, op *headgate.Op) bool) {
	s := m.s
	for _, local := range [...]bool{false, true} {
		s.pending, s.places = s.pending[:0], s.places[:0]
		for i := range s.items {
			r := &s.results[i]
			if s.items[i].sort > quota || s.items[i].charged || (r.Decision.Reason == headgate.Fallback) != local {
				continue
			}
			op := s.op(m.q, i, headgate.Take)
			if local {
				op.Limit = localLimit(r.Rule)
			}
			if f(r, &op) {
				s.pending, s.places = append(s.pending, op), append(s.places, i)
			}
		}
		store := m.store
		if local {
			store, ctx = m.fallback, context.WithoutCancel(ctx)
		}
		if !m.put(ctx, store, headgate.Independent) {
			continue
		}
		for j, i := range s.places {
			if d := &s.results[i].Decision; d.Allowed {
				d.Remaining, d.ResetAfter, d.Granted = max(s.out[j].Remaining, 0), s.out[j].ResetAfter, 0
			}
		}
	}
}

// put asks store about s.pending and reports whether s.out has the answers. A
// store that has failed once is not waited for again.
func (m multi) put(ctx context.Context, store headgate.Store, mode headgate.Mode) (ok bool) {
	s := m.s
	s.room()
	if len(s.pending) == 0 {
		return true
	}
	if store == m.store && s.failure != nil {
		return false
	}
	var err error
	if len(s.pending) == 1 {
		s.out[0], err = store.Take(ctx, s.pending[0])
	} else {
		err = store.Do(ctx, s.pending, s.out, mode)
	}
	if err != nil && store == m.store {
		s.failure = unavailable(err)
	}
	return err == nil
}
