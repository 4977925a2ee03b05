package headgate

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// Lease holds one or more slots of a limit of [Concurrent]. It is safe for concurrent
// use. The zero Lease was refused.
type Lease struct {
	limiter *Limiter
	op      store.Op

	mu       lock
	decision store.Decision
	timer    *time.Timer // of Keep
}

// Acquire takes n slots of a limit of [Concurrent], for as long as the lease lasts:
//
//	lease, err := limiter.Acquire(ctx, "customer-42", headgate.Concurrent(20), 1)
//	if !lease.OK() {
//		return // 20 are in progress
//	}
//	lease.Keep()
//	defer lease.Release(ctx)
//
// The returned Lease is never nil; if it is refused, it is not OK. If the store could
// not answer and the failure policy lets requests pass, the Lease is OK and Release
// does nothing.
func (l *Limiter) Acquire(ctx context.Context, key string, limit Limit, n int64) (*Lease, error) {
	op := store.Op{Key: key, Rule: limit.Rule(), Cost: n}
	d, err := l.Do(ctx, op)
	return l.LeaseOf(op, d), err
}

// LeaseOf returns the lease of an op that was part of a larger call, such as AllowAll,
// and answered with d.
func (l *Limiter) LeaseOf(op store.Op, d store.Decision) *Lease {
	op.At, op.Key = 0, strings.Clone(op.Key)
	return &Lease{limiter: l, op: op, mu: make(lock, 1), decision: d}
}

// OK reports whether the request may proceed.
func (h *Lease) OK() bool { return h.Decision().Allowed }

// Decision returns the store's answer to taking the lease, or to renewing it since.
func (h *Lease) Decision() Decision {
	h.mu.enter()
	defer h.mu.leave()
	return Decision(h.decision)
}

// Release frees the slots. It reports false if they were free already, because the
// lease was released before or had ended.
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
	d, err := h.ask(ctx, store.KindRelease)
	if err != nil {
		return false, err
	}
	h.decision.Lease = 0
	return d.Granted > 0, nil
}

// Renew makes the lease last its full time from now. It reports false if the lease has
// ended: its slots may be taken, and the caller must acquire new ones.
func (h *Lease) Renew(ctx context.Context) (bool, error) {
	h.mu.enter()
	defer h.mu.leave()
	return h.renew(ctx)
}

func (h *Lease) renew(ctx context.Context) (bool, error) {
	if h.decision.Lease == 0 {
		return false, nil
	}
	d, err := h.ask(ctx, store.KindRenew)
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

// Keep renews the lease automatically, three times per lease time, until Release. If
// the lease has ended because the store could not be reached, Keep acquires it again if
// slots are free.
func (h *Lease) Keep() {
	h.mu.enter()
	defer h.mu.leave()
	if h.decision.Lease == 0 || h.timer != nil {
		return
	}
	every := max(time.Duration(h.op.Rule.Period)*time.Microsecond/3, time.Millisecond)
	h.timer = time.AfterFunc(every, func() {
		h.mu.enter()
		defer h.mu.leave()
		if h.timer == nil {
			return
		}
		ctx := context.Background()
		if ok, err := h.renew(ctx); err == nil && !ok && h.op.Rule.Valid() {
			if d, err := h.limiter.Do(ctx, h.op); err == nil && d.Allowed {
				h.decision = d
			}
		}
		h.timer.Reset(every)
	})
}

// ask sends an op about the lease to the store that it was taken from.
func (h *Lease) ask(ctx context.Context, kind store.Kind) (store.Decision, error) {
	op := h.op
	op.Kind, op.Lease, op.Cost = kind, h.decision.Lease, h.decision.Granted
	var err error
	if op.At, err = h.limiter.stamp(); err != nil {
		return store.Decision{}, err
	}
	return store.Execute(ctx, h.limiter.origin(&op, &h.decision), op)
}

// lock is a mutex: the goroutine that has put a value into it holds it. This package
// avoids sync so that the algorithms compile small to WebAssembly. The nil lock of a
// zero Lease, which never changes, is always free.
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
