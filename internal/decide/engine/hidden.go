package engine

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Hidden reports whether clients must not learn of the rule: its action is
// ShadowBan, so its limit belongs in no header field, not even of a request
// that passes.
func (r *Result) Hidden() bool { return r.Rule.OnLimit.Action == rules.ShadowBan }

// visible reports whether a request that only hidden rules have refused is
// charged to the rule of r, as it would be if it had passed.
func (r *Result) visible() bool {
	return r.Enforced && !r.Hidden() && r.Decision.Reason != headgate.Banned
}

// banned answers a request of which some keys are banned. The other limits do
// not matter, unless the ban is hidden.
func (e *Engine) banned(ctx context.Context, q Query, v *Verdict) error {
	if !v.banned() {
		return nil
	}
	return e.disguise(ctx, q, v)
}

// banned settles the verdict by the bans, and reports whether clients must not
// learn of them.
func (v *Verdict) banned() (hidden bool) {
	s := v.scratch
	for i := range s.results {
		if r := &s.results[i]; r.Decision.Reason == headgate.Banned {
			v.consider(r)
		}
	}
	hidden = v.Outcome() == ShadowBanned
	s.keep(func(r *Result) bool {
		return r.Decision.Reason == headgate.Banned || hidden && r.visible()
	})
	return hidden
}

// keep leaves out the checks, and their results, of which f reports false.
func (s *scratch) keep(f func(*Result) bool) {
	checks, n := s.matches[0].Checks, 0
	for i := range s.results {
		if f(&s.results[i]) {
			checks[n], s.results[n] = checks[i], s.results[i]
			n++
		}
	}
	s.matches[0].Checks, s.results = checks[:n], s.results[:n]
}

// disguise charges a request that only hidden rules have refused to the limits
// that its client can see, all of them or none. Otherwise what is left of those
// would stand still, which tells the client of the ban. If one of them refuses,
// so does v: the client meets that limit as everybody does. The places of rules
// that limit concurrency are not taken, since nobody would give them back; they
// only look as if they were.
func (e *Engine) disguise(ctx context.Context, q Query, v *Verdict) error {
	v.scratch.disguising(q)
	if e.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		ctx = bounded
	}
	return e.disguised(ctx, q, v, ask(ctx, e.store, v.scratch, headgate.AllOrNothing))
}

// disguising makes the questions of disguise.
func (s *scratch) disguising(q Query) {
	s.pending, s.places = s.pending[:0], s.places[:0]
	for i := range s.results {
		r := &s.results[i]
		if !r.visible() {
			continue
		}
		op := headgate.Op{
			Key: r.Key, Scope: r.Rule.Scope, Limit: r.Rule.Limit,
			Cost: times(q.Cost, s.matches[0].Checks[i].Cost), At: q.At, Kind: q.Kind,
		}
		if r.Rule.Concurrent() {
			op.Kind = headgate.Peek
		}
		s.pending, s.places = append(s.pending, op), append(s.places, i)
	}
	s.room()
}

// disguised takes the store's answers to them into account, or its error.
func (e *Engine) disguised(ctx context.Context, q Query, v *Verdict, err error) error {
	s := v.scratch
	if err != nil {
		err = unavailable(err)
		e.settle(ctx, q, s, s.places)
	} else {
		for i, at := range s.places {
			s.results[at].Decision = s.out[i]
		}
	}
	for _, at := range s.places {
		r := &s.results[at]
		if d := &r.Decision; d.Allowed && r.Rule.Concurrent() && q.Kind == headgate.Take {
			d.Remaining = max(d.Remaining-times(q.Cost, s.matches[0].Checks[at].Cost), 0)
		}
		v.consider(r)
	}
	return err
}
