package redis

import (
	"context"
	"sync"
	"time"
)

const (
	// longestGrace limits how much longer a call waits if its deadline was noticed
	// late.
	longestGrace = 25 * time.Millisecond
	// lateness is the delay from which on a deadline counts as late.
	lateness = 2 * time.Millisecond
)

// graceFor returns how much longer a call waits if its deadline is noticed late. This
// process had no CPU then, the answer may have arrived in time, and reading it needs
// CPU: on a busy machine, about as long as the process has just waited for it.
func graceFor(late time.Duration) time.Duration {
	if late <= lateness {
		return 0
	}
	return min(late, longestGrace)
}

// callContext is the context of one call to the server. It ends at the call's deadline
// and is reused, because a new one costs several allocations. It does not end when the
// caller's context is cancelled during the call: the server may already have acted on
// the request, and its answer is at most one deadline away.
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

// end is called by the timer.
func (c *callContext) end(now time.Time) {
	if grace := graceFor(now.Sub(c.deadline)); grace > 0 {
		time.Sleep(grace) //nolint:forbidigo // deadlines are on the real clock
	}
	close(c.done)
}

// callContexts hands out callContexts.
type callContexts struct{ pool sync.Pool }

// get returns a context that ends after timeout, or at parent's deadline if that is
// earlier.
func (p *callContexts) get(parent context.Context, now time.Time, timeout time.Duration) *callContext {
	deadline := earlier(parent, now.Add(timeout))
	c, _ := p.pool.Get().(*callContext)
	if c == nil {
		c = &callContext{done: make(chan struct{})}
		c.Context, c.deadline = parent, deadline
		c.timer = time.AfterFunc(deadline.Sub(now), func() { c.end(time.Now()) }) //nolint:forbidigo // deadlines are on the real clock
		return c
	}
	c.Context, c.deadline = parent, deadline
	c.timer.Reset(deadline.Sub(now))
	return c
}

// earlier returns the deadline of ctx if it has one before t, else t.
func earlier(ctx context.Context, t time.Time) time.Time {
	if d, ok := ctx.Deadline(); ok && d.Before(t) {
		return d
	}
	return t
}

// put takes c back for reuse, unless it has ended. c must not be used afterwards.
func (p *callContexts) put(c *callContext) {
	if !c.timer.Stop() {
		return // its channel is closed or about to be
	}
	c.Context = context.Background()
	p.pool.Put(c)
}
