package xds

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait before the next attempt: Base at first, each time
// 1.6 times as long, and never longer than Max; each wait is cut by a random
// part of up to a half, so that not everybody comes back at the same moment.
// Zero values mean 1 s and 30 s.
type Backoff struct{ Base, Max time.Duration }

// factor is by how much each wait is longer than the last.
const factor = 1.6

// waiter is a Backoff under way.
type waiter struct {
	Backoff
	next time.Duration
}

func (b Backoff) waiter() waiter {
	if b.Base <= 0 {
		b.Base = time.Second
	}
	if b.Max <= 0 {
		b.Max = 30 * time.Second
	}
	b.Max = max(b.Max, b.Base)
	return waiter{b, b.Base}
}

// reset begins anew with the shortest wait.
func (w *waiter) reset() { w.next = w.Base }

// step returns how long to wait now.
func (w *waiter) step() time.Duration {
	d := w.next
	w.next = min(time.Duration(float64(w.next)*factor), w.Max)
	return d - rand.N(d/2+1) //nolint:gosec // nobody gains by guessing it
}

// sleep waits, or until ctx is done.
func (w *waiter) sleep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.step())
	defer cancel()
	<-ctx.Done()
}
