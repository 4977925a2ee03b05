package headgate

import (
	"context"
	"strings"
	"time"
)

// Lease is what was taken of a limit of [Concurrent]: a place, or several, among
// those that may be under way at the same time. Its methods may be called by
// any number of goroutines. Its zero value was refused.
type Lease struct {
	limiter *Limiter
	op      Op

	mu       lock
	decision Decision
	timer    *time.Timer // of Keep
}

// Acquire takes n places of a limit of [Concurrent] for as long as its lease
// lasts:
//
//	lease, err := limiter.Acquire(ctx, "customer-42", headgate.Concurrent(20), 1)
//	if !lease.OK() {
//		return // 20 are under way
//	}
//	lease.Keep()
//	defer lease.Release(ctx)
//
// A refusal is no error: the Lease, which is never nil, is then not OK. Nor is
// it an error if the store could not answer and the failure policy lets pass;
// there is nothing to release then, and Release does nothing.
func (l *Limiter) Acquire(ctx context.Context, key string, limit Limit, n int64) (*Lease, error) {
	op := Op{Key: key, Limit: limit, Cost: n}
	d, err := l.Do(ctx, op)
	return l.LeaseOf(op, d), err
}

// LeaseOf returns the lease of an op that was asked about together with others,
// as by AllowAll, and answered with d.
func (l *Limiter) LeaseOf(op Op, d Decision) *Lease {
	op.At, op.Key = 0, strings.Clone(op.Key)
	return &Lease{limiter: l, op: op, mu: make(lock, 1), decision: d}
}

// OK reports whether the request may go ahead.
func (h *Lease) OK() bool { return h.Decision().Allowed }

// Decision returns what the store answered when the lease was taken or, since
// then, renewed.
func (h *Lease) Decision() Decision {
	h.mu.enter()
	defer h.mu.leave()
	return h.decision
}

// Release gives the places back at once. It reports false if they were free
// already, because the lease was released before or its time was over.
func (h *Lease) Release(ctx context.Context) (bool, error) {
	h.mu.enter()
	defer h.mu.leave()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	if h.decision.Lease == 0 {
		return false, nil
	}
	d, err := h.ask(ctx, Release)
	if err != nil {
		return false, err
	}
	h.decision.Lease = 0
	return d.Granted > 0, nil
}

// Renew makes the lease last from now on. It reports false if it has ended: the
// place may be another's, and a new one has to be taken.
func (h *Lease) Renew(ctx context.Context) (bool, error) {
	h.mu.enter()
	defer h.mu.leave()
	return h.renew(ctx)
}

func (h *Lease) renew(ctx context.Context) (bool, error) {
	if h.decision.Lease == 0 {
		return false, nil
	}
	d, err := h.ask(ctx, Renew)
	if err != nil {
		return false, err
	}
	if !d.Allowed {
		return false, nil
	}
	d.Reason = h.decision.Reason
	h.decision = d
	return true, nil
}

// Keep renews the lease by itself, three times in the time that it lasts, until
// Release. Should it have ended meanwhile, as the store could not be reached,
// Keep takes it anew if there is a place.
func (h *Lease) Keep() {
	h.mu.enter()
	defer h.mu.leave()
	if h.decision.Lease == 0 || h.timer != nil {
		return
	}
	every := max(h.op.Limit.Period()/3, time.Millisecond)
	h.timer = time.AfterFunc(every, func() {
		h.mu.enter()
		defer h.mu.leave()
		if h.timer == nil {
			return
		}
		ctx := context.Background()
		if ok, err := h.renew(ctx); err == nil && !ok && h.op.Limit.Valid() {
			if d, err := h.limiter.Do(ctx, h.op); err == nil && d.Allowed {
				h.decision = d
			}
		}
		h.timer.Reset(every)
	})
}

// ask asks the store that the lease was taken from about it.
func (h *Lease) ask(ctx context.Context, kind Kind) (Decision, error) {
	op := h.op
	op.Kind, op.Lease, op.Cost = kind, h.decision.Lease, h.decision.Granted
	var err error
	if op.At, err = h.limiter.stamp(); err != nil {
		return Decision{}, err
	}
	return h.limiter.origin(&op, &h.decision).Take(ctx, op)
}

// lock is a mutex: who has put something into it holds it. This package does
// without sync, so that the algorithms compile small to WebAssembly. The nil lock of
// a zero Lease, which never changes, is always free.
type lock chan struct{}

func (l lock) enter() {
	if l != nil {
		l <- struct{}{}
	}
}

func (l lock) leave() {
	if l != nil {
		<-l
	}
}
