package engine

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// WithFallback makes store, usually this process's memory, answer for rules with
// on_store_error: local when the Engine's store cannot. It enforces the rule's local
// share of the limit; its decisions have the Reason headgate.Fallback. Without it, such
// rules let requests pass, as with allow.
//
// The two stores are independent: after an outage the counts of the Engine's store
// apply again, without the requests that passed during it.
func WithFallback(store headgate.Store) Option { return func(e *Engine) { e.fallback = store } }

// WithTimeout limits how long a request waits for the store in total. The store must
// limit each call, but a request under rules that only observe makes two. 0, the
// default, adds no limit.
func WithTimeout(d time.Duration) Option { return func(e *Engine) { e.timeout = d } }

// fail answers the requests of a step when the store could not: each limit as its
// on_store_error says. Memory still charges all or nothing, and not at all if another
// rule refuses. A refund cannot be refused, and nothing is known about rules that only
// observe.
func (d *deciding) fail(ctx context.Context, st step) {
	refuses := false
	for _, i := range d.asked {
		r := &d.results[i]
		answer := failed(r.Rule)
		if d.hear(i, r, &answer); r.role == refund || r.role == observe {
			r.Decision.Allowed, r.Decision.Reason = true, headgate.FailOpen
		}
		refuses = refuses || !r.Decision.Allowed
	}
	if d.engine.fallback == nil {
		return
	}
	d.pending = d.pending[:0]
	for _, i := range d.asked {
		if r := &d.results[i]; r.local(st) {
			d.pending = extended(d.pending)
			op := &d.pending[len(d.pending)-1]
			d.ask(op, r, st)
			op.Limit = localLimit(r.Rule)
			if refuses && st.mode() == headgate.AllOrNothing {
				op.Kind = headgate.Peek
			}
		}
	}
	d.room()
	// The caller's deadline may have passed, but memory answers at once.
	if err := d.put(context.WithoutCancel(ctx), d.engine.fallback, st.mode()); err != nil {
		return // then they answer as with allow
	}
	next := 0
	for _, i := range d.asked {
		if r := &d.results[i]; r.local(st) {
			if answer := &d.out[next]; answer.Reason != headgate.NoLimit {
				answer.Reason = headgate.Fallback
			}
			d.hear(i, r, &d.out[next])
			next++
		}
	}
}

// local reports whether memory answers for r when the store fails in a step.
func (r *Result) local(st step) bool {
	return r.Rule.OnStoreError == rules.StoreErrorLocal && (r.role != observe || st == charge)
}

// origin is the store from which something was taken.
type origin bool

const (
	fromStore    origin = false
	fromFallback origin = true
)

// origin returns the store that answered r.
func (r *Result) origin() origin { return origin(r.Decision.Reason == headgate.Fallback) }

// limit returns the limit that was checked in that store.
func (r *Result) limit() headgate.Limit {
	if r.origin() == fromFallback {
		return localLimit(r.Rule)
	}
	return r.Rule.Limit
}

// refunds fills d.pending with the ops that refund at now what was taken from one store
// at another time.
func (d *deciding) refunds(taken, now int64, from origin) {
	d.pending = d.pending[:0]
	for i := range d.results {
		r := &d.results[i]
		if r.origin() != from {
			continue
		}
		switch {
		case r.Decision.Lease != 0:
			d.pending = append(d.pending, headgate.Op{
				Key: r.Key, Scope: r.Rule.StoreScope(), Limit: r.limit(),
				Cost: r.Decision.Granted, At: now, Lease: r.Decision.Lease, Kind: headgate.Release,
			})
		case r.Rule.Concurrent():
			// It was admitted by credit and holds no slot: a refund would return
			// another request's slot.
		default:
			if op, ok := r.correction(0, elapsed(taken, now)); ok {
				op.At = now
				d.pending = append(d.pending, op)
			}
		}
		r.Decision.Granted, r.Decision.Lease = 0, 0
	}
	d.room()
}

// localLimit returns this process's share of the limit.
func localLimit(r *rules.Rule) headgate.Limit { return r.Limit.Share(r.LocalShare) }

// failed returns the answer of rule when neither the store nor memory answers.
func failed(rule *rules.Rule) headgate.Decision {
	if rule.OnStoreError == rules.StoreErrorDeny {
		return headgate.Decision{Reason: headgate.FailClosed, Limit: rule.Limit.Capacity()}
	}
	return headgate.Decision{Allowed: true, Reason: headgate.FailOpen, Limit: rule.Limit.Capacity()}
}
