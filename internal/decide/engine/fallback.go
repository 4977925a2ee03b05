package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// WithFallback makes store, usually this process's memory, answer for rules with
// on_store_error: local when the Engine's store cannot. It enforces the rule's local
// share of the limit; its decisions have the Reason headgate.ReasonFallback. Without it, such
// rules let requests pass, as with allow.
//
// The two stores are independent: after an outage the counts of the Engine's store
// apply again, without the requests that passed during it.
func WithFallback(store store.Store) Option { return func(e *Engine) { e.fallback = store } }

// WithTimeout limits how long a request waits for the store in total. The store must
// limit each call, but a request under rules that only observe makes two. 0, the
// default, adds no limit.
func WithTimeout(d time.Duration) Option { return func(e *Engine) { e.timeout = d } }

// fail answers the requests of a step that the store could not, which err names: each
// limit as its on_store_error says. Memory still charges all or nothing, and not at all
// if another rule refuses. A refund cannot be refused, and nothing is known about rules
// that only observe.
func (d *deciding) fail(ctx context.Context, st step, err error) {
	refuses := false
	for j, i := range d.asked {
		r := &d.results[i]
		if !store.Failed(err, j) {
			d.record(i, r, &d.out[j])
		} else {
			answer := failed(r.Rule)
			if d.record(i, r, &answer); r.role == refund || r.role == observe {
				r.Decision.Allowed, r.Decision.Reason = true, headgate.ReasonFailOpen
			}
		}
		refuses = refuses || !r.Decision.Allowed
	}
	if d.engine.fallback != nil {
		d.fallBack(ctx, st, err, refuses)
	}
	if st == enforce && !d.hidden {
		d.refundPart(ctx, err)
	}
}

// fallBack lets memory answer for the rules that want that.
func (d *deciding) fallBack(ctx context.Context, st step, err error, refuses bool) { //nolint:revive // a fact, not a mode
	d.pending = d.pending[:0]
	for j, i := range d.asked {
		if r := &d.results[i]; store.Failed(err, j) && r.local(st) {
			d.pending = extended(d.pending)
			op := &d.pending[len(d.pending)-1]
			d.fill(op, r, st)
			if op.Rule = localLimit(r.Rule).Rule(); r.passes() {
				op.Rule = soft.Widened(op.Rule)
			}
			if refuses && st.mode() == store.AllOrNothing {
				op.Kind = store.KindPeek
			}
		}
	}
	d.growOut()
	// The caller's deadline may have passed, but memory answers at once.
	if d.put(context.WithoutCancel(ctx), d.engine.fallback, st.mode()) != nil {
		return // then they answer as with allow
	}
	next := 0
	for j, i := range d.asked {
		if r := &d.results[i]; store.Failed(err, j) && r.local(st) {
			if answer := &d.out[next]; answer.Reason != headgate.ReasonNoLimit && answer.Reason != headgate.ReasonHeadroom {
				answer.Reason = headgate.ReasonFallback
			}
			d.record(i, r, &d.out[next])
			next++
		}
	}
}

// lost returns the failure after which the store is not called again: nil if only a part
// of it failed, such as one region.
func (d *deciding) lost() error {
	if d.failure == nil {
		return nil
	}
	if _, part := errors.AsType[*store.PartError](d.failure); part {
		return nil
	}
	return d.failure
}

// refundPart refunds what the answering part of the store took for a request that is
// refused because of a part that failed with err.
func (d *deciding) refundPart(ctx context.Context, err error) {
	if _, part := errors.AsType[*store.PartError](err); !part || !slices.ContainsFunc(d.asked, func(i int) bool { return !d.results[i].Decision.Allowed }) {
		return
	}
	d.pending = d.pending[:0]
	for j, i := range d.asked {
		r := &d.results[i]
		if store.Failed(err, j) {
			continue
		}
		has := &r.Decision
		if op, ok := r.refundOp(d.query.At); ok {
			d.pending = append(d.pending, op)
			has.Remaining += has.Granted
		}
		has.Granted, has.Delay, has.Lease, has.CountsUntil = 0, 0, 0, 0
	}
	d.growOut()
	// The caller's deadline may have passed while the part that failed was asked. What
	// cannot be given back now stays taken: the refusal is right anyway.
	_ = d.put(context.WithoutCancel(ctx), d.engine.store, store.Independent)
}

// local reports whether memory answers for r when the store fails in a step.
func (r *Result) local(st step) bool {
	return r.Rule.OnStoreError == rules.StoreErrorLocal && (r.role != observe || st == charge || r.passes())
}

// origin is the store from which something was taken.
type origin bool

const (
	fromStore    origin = false
	fromFallback origin = true
)

// origin returns the store that answered r.
func (r *Result) origin() origin { return origin(r.Decision.Reason == headgate.ReasonFallback) }

// limit returns the limit that was checked in that store.
func (r *Result) limit() headgate.Limit {
	if r.origin() == fromFallback {
		return localLimit(r.Rule)
	}
	return r.Rule.Limit
}

// refundOp returns the op that gives back at some time what r took just before, and whether
// there is anything to give back; see [store.RefundOf].
func (r *Result) refundOp(at int64) (op store.Op, ok bool) {
	op = store.Op{Key: r.Key, Scope: r.Rule.StoreScope(), Rule: r.limit().Rule(), Member: r.member, At: at, Share: r.Rule.FairOf(r.share)}
	ok = store.RefundOf(&op, &r.Decision)
	return op, ok
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
		op, ok := r.refundOp(now)
		if op.Kind == store.KindRefund {
			op.Duration -= elapsed(taken, now)
			ok = ok && op.Duration > 0
		} else {
			ok = ok && op.Lease != 0
		}
		if ok {
			d.pending = append(d.pending, op)
		}
		r.Decision.Granted, r.Decision.Lease = 0, 0
	}
	d.growOut()
}

// localLimit returns this process's share of the limit.
func localLimit(r *rules.Rule) headgate.Limit {
	return headgate.LimitOf(r.Limit.Rule().Share(r.LocalShare))
}

// failed returns the answer of rule when neither the store nor memory answers.
func failed(rule *rules.Rule) store.Decision {
	if rule.OnStoreError == rules.StoreErrorDeny {
		return store.Decision{Reason: headgate.ReasonFailClosed, Limit: rule.Limit.Burst()}
	}
	return store.Decision{Allowed: true, Reason: headgate.ReasonFailOpen, Limit: rule.Limit.Burst()}
}
