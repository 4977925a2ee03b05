package redis

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of one call to the server: it ends at the call's
// deadline and is used again for another call, because a fresh one costs
// several allocations. It does not end when the caller's context is cancelled
// in the middle: what the server was asked it may have done already, and its
// answer is at most one deadline away.
type callContext struct {
	context.Context // for Value only
	deadline        time.Time
	done            chan struct{}
	timer           *time.Timer
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *callContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// callContexts hands out callContexts.
type callContexts struct{ pool sync.Pool }

// get returns a context that ends after timeout, or with parent's deadline if
// that is earlier.
func (p *callContexts) get(parent context.Context, now time.Time, timeout time.Duration) *callContext {
	deadline := now.Add(timeout)
	if d, ok := parent.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c, _ := p.pool.Get().(*callContext)
	if c == nil {
		c = &callContext{done: make(chan struct{})}
		c.Context, c.deadline = parent, deadline
		c.timer = time.AfterFunc(deadline.Sub(now), func() { close(c.done) })
		return c
	}
	c.Context, c.deadline = parent, deadline
	c.timer.Reset(deadline.Sub(now))
	return c
}

// put takes c back, which nobody may use any more, unless it has ended.
func (p *callContexts) put(c *callContext) {
	if !c.timer.Stop() {
		return // its channel is closed, or is about to be
	}
	c.Context = context.Background()
	p.pool.Put(c)
}
