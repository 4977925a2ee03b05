package store

import (
	"context"
	"strings"
	"time"
)

// Lease holds one or more slots of a limit of [Concurrency]; see headgate.Lease. It is safe
// for concurrent use. A nil Lease was refused.
type Lease struct {
	caller *Caller
	op     Op

	mu       lock
	decision Decision
	timer    *time.Timer // of Keep
}

// Lease returns the lease of an op that was answered with d.
func (c *Caller) Lease(op Op, d Decision) *Lease {
	op.At, op.Key = 0, strings.Clone(op.Key)
	return &Lease{caller: c, op: op, mu: make(lock, 1), decision: d}
}

// Release frees the slots. It reports false if they were free already, because the
// lease was released before or had ended. If the store does not answer, it returns the
// error and tries again in the background for as long as the lease may last.
func (h *Lease) Release(ctx context.Context) (bool, error) {
	if h == nil {
		return false, nil
	}
	h.mu.enter()
	defer h.mu.leave()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	return h.release(ctx, firstRetry, time.Duration(h.op.Rule.Period)*time.Microsecond)
}

// How long to wait before a release that failed is tried again, at first and at most.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// release is Release for a lease that lasts for some time yet.
func (h *Lease) release(ctx context.Context, pause, lasts time.Duration) (bool, error) {
	if h.decision.Lease == 0 {
		return false, nil
	}
	d, err := h.ask(ctx, KindRelease)
	if err == nil {
		h.decision.Lease = 0
		return d.Granted > 0, nil
	}
	if pause < lasts && isUnavailable(err) {
		h.timer = time.AfterFunc(pause, func() {
			h.mu.enter()
			defer h.mu.leave()
			_, _ = h.release(context.Background(), min(2*pause, lastRetry), lasts-pause)
		})
	}
	return false, err
}

// Renew makes the lease last its full time from now. It reports false if the lease has
// ended: its slots may be taken, and the caller must acquire new ones.
func (h *Lease) Renew(ctx context.Context) (bool, error) {
	if h == nil {
		return false, nil
	}
	h.mu.enter()
	defer h.mu.leave()
	return h.renew(ctx)
}

func (h *Lease) renew(ctx context.Context) (bool, error) {
	if h.decision.Lease == 0 {
		return false, nil
	}
	d, err := h.ask(ctx, KindRenew)
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
	if h == nil {
		return
	}
	h.mu.enter()
	defer h.mu.leave()
	if h.decision.Lease == 0 || h.timer != nil {
		return
	}
	every := max(time.Duration(h.op.Rule.Period)*time.Microsecond/3, time.Millisecond)
	var own *time.Timer
	own = time.AfterFunc(every, func() {
		h.mu.enter()
		defer h.mu.leave()
		if h.timer != own {
			return // Release came first
		}
		ctx := context.Background()
		if ok, err := h.renew(ctx); err == nil && !ok && h.op.Rule.Valid() {
			if d, err := h.caller.Do(ctx, h.op); err == nil && d.Allowed {
				h.decision = d
			}
		}
		own.Reset(every)
	})
	h.timer = own
}

// ask sends an op about the lease to the store that it was taken from.
func (h *Lease) ask(ctx context.Context, kind Kind) (Decision, error) {
	op := h.op
	op.Kind, op.Lease, op.Cost = kind, h.decision.Lease, h.decision.Granted
	var err error
	if op.At, err = h.caller.stamp(); err != nil {
		return Decision{}, err
	}
	return Execute(ctx, h.caller.origin(&op, &h.decision), op)
}

// lock is a mutex: the goroutine that has put a value into it holds it. It is held while the
// store is asked, so who waits for it must count as waiting for testing/synctest.
type lock chan struct{}

func (l lock) enter() { l <- struct{}{} }

func (l lock) leave() { <-l }
