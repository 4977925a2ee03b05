package headgate

import (
	"context"

	"github.com/headgate/headgate/store"
)

// Lease holds one or more slots of a limit of [Concurrent]. It is safe for concurrent
// use. The zero Lease was refused.
type Lease struct {
	// Decision is the store's answer. If it is allowed, the request may proceed.
	Decision Decision

	lease *store.Lease
}

// Acquire takes a slot of a limit of [Concurrent], for as long as the lease lasts:
//
//	lease, err := limiter.Acquire(ctx, "customer-42", headgate.Concurrent(20))
//	if !lease.Decision.Allowed {
//		return // 20 are in progress
//	}
//	lease.Keep()
//	defer lease.Release(ctx)
//
// The returned Lease is never nil. If the store could not answer and the failure policy
// lets requests pass, its Decision is allowed and Release does nothing.
func (l *Limiter) Acquire(ctx context.Context, key string, limit Limit) (*Lease, error) {
	return l.AcquireN(ctx, key, limit, 1)
}

// AcquireN takes n slots if all of them are free, and none otherwise; see
// [Limiter.Acquire].
func (l *Limiter) AcquireN(ctx context.Context, key string, limit Limit, n int64) (*Lease, error) {
	op := store.Op{Key: key, Rule: limit.Rule(), Cost: n}
	d, err := l.caller.Do(ctx, op)
	return &Lease{Decision: Decision(d), lease: l.caller.Lease(op, d)}, err
}

// Release frees the slots. It reports false if they were free already, because the
// lease was released before or had ended. If the store does not answer, it returns the
// error and tries again in the background for as long as the lease may last.
func (h *Lease) Release(ctx context.Context) (bool, error) { return h.lease.Release(ctx) }

// Renew makes the lease last its full time from now. It reports false if the lease has
// ended: its slots may be taken, and the caller must acquire new ones.
func (h *Lease) Renew(ctx context.Context) (bool, error) { return h.lease.Renew(ctx) }

// Keep renews the lease automatically, three times per lease time, until Release. If
// the lease has ended because the store could not be reached, Keep acquires it again if
// slots are free.
func (h *Lease) Keep() { h.lease.Keep() }
