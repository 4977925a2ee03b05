package engine

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// WithFallback makes store, usually this process's own memory, answer for rules
// that say on_store_error: local when the Engine's store cannot. It enforces
// the rule's local share of the limit; its decisions have the Reason
// headgate.Fallback. Without it such rules let requests pass, as allow does.
//
// The two stores know nothing of each other: after an outage the counts of the
// Engine's store hold again, without what passed in the meantime.
func WithFallback(store headgate.Store) Option { return func(e *Engine) { e.fallback = store } }

// WithTimeout bounds what a request waits for the store in all. The store has
// to bound each call by itself; but a request under rules that only observe
// makes two. 0, the default, leaves it at that.
func WithTimeout(d time.Duration) Option { return func(e *Engine) { e.timeout = d } }

// settle fills in the results of the rules at these places when the store has
// failed: each as its on_store_error says. Local rules are still charged all or
// nothing, and not at all if another rule refuses.
func (e *Engine) settle(ctx context.Context, q Query, s *scratch, enforced []int) {
	kind := q.Kind
	s.pending = s.pending[:0]
	for _, at := range enforced {
		r := &s.results[at]
		r.Decision = failed(r.Rule)
		if !r.Decision.Allowed {
			kind = headgate.Peek
		}
	}
	if e.fallback == nil {
		return
	}
	for _, at := range enforced {
		c := &s.matches[0].Checks[at]
		if c.Rule.OnStoreError == rules.StoreErrorLocal {
			s.pending = append(s.pending, headgate.Op{
				Key: c.Key, Scope: c.Rule.Scope, Limit: localLimit(c.Rule),
				Cost: times(q.Cost, c.Cost), At: q.At,
			})
		}
	}
	for i := range s.pending {
		s.pending[i].Kind = kind
	}
	s.room()
	// The caller's deadline may have passed; memory needs no time.
	if err := ask(context.WithoutCancel(ctx), e.fallback, s, headgate.AllOrNothing); err != nil {
		return // then they are as allow
	}
	next := 0
	for _, at := range enforced {
		r := &s.results[at]
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

// origin is the store that something was taken from.
type origin bool

const (
	fromStore    origin = false
	fromFallback origin = true
)

// refunds fills s.pending with what gives back what was taken at one time from
// one store, and now is another.
func (s *scratch) refunds(taken, now int64, from origin) {
	s.pending = s.pending[:0]
	for i := range s.results {
		r := &s.results[i]
		if origin(r.Decision.Reason == headgate.Fallback) != from {
			continue
		}
		limit := r.Rule.Limit
		if from == fromFallback {
			limit = localLimit(r.Rule)
		}
		age := elapsed(taken, now)
		left := r.Decision.ResetAfter - age
		switch {
		case r.Decision.Lease != 0:
			s.pending = append(s.pending, headgate.Op{
				Key: s.matches[0].Checks[i].Key, Scope: r.Rule.Scope, Limit: limit,
				Cost: r.Decision.Granted, At: now, Lease: r.Decision.Lease, Kind: headgate.Release,
			})
		case r.Rule.Concurrent():
			// It was let in by credit, and holds no place: a refund would give
			// back somebody else's.
		case r.Decision.Granted > 0 && left > 0:
			s.pending = append(s.pending, headgate.Op{
				Key: s.matches[0].Checks[i].Key, Scope: r.Rule.Scope, Limit: limit,
				Cost: r.Decision.Granted, At: now, Duration: left, Age: age, Kind: headgate.Refund,
			})
		}
		r.Decision.Granted, r.Decision.Lease = 0, 0
	}
	s.room()
}

// localLimit is what this process may give out by itself.
func localLimit(r *rules.Rule) headgate.Limit { return r.Limit.Share(r.LocalShare) }

// failed is what rule answers when the store cannot, and memory does not.
func failed(rule *rules.Rule) headgate.Decision {
	if rule.OnStoreError == rules.StoreErrorDeny {
		return headgate.Decision{Reason: headgate.FailClosed, Limit: rule.Limit.Capacity()}
	}
	return headgate.Decision{Allowed: true, Reason: headgate.FailOpen, Limit: rule.Limit.Capacity()}
}
