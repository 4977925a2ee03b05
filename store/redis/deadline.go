package redis

import (
	"context"
	"sync"
	"time"
)

const (
	// longestGrace bounds how much longer a call waits whose deadline has been
	// noticed late.
	longestGrace = 25 * time.Millisecond
	// lateness is how late that has to be.
	lateness = 2 * time.Millisecond
)

// graceFor returns how much longer a call waits whose deadline is noticed by so
// much too late. Then this process had no processor, its answer may have come in
// time, and reading it needs CPU: on a busy machine about as long as it
// has just been waited for.
func graceFor(late time.Duration) time.Duration {
	if late <= lateness {
		return 0
	}
	return min(late, longestGrace)
}

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

// end is called when the timer fires.
func (c *callContext) end(now time.Time) {
	if grace := graceFor(now.Sub(c.deadline)); grace > 0 {
		time.Sleep(grace) //nolint:forbidigo // deadlines are on the real clock
	}
	close(c.done)
}

// callContexts hands out callContexts.
type callContexts struct{ pool sync.Pool }

// get returns a context that ends after timeout, or with parent's deadline if
// that is earlier.
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

// put takes c back, which must not be used any more, unless it has ended.
func (p *callContexts) put(c *callContext) {
	if !c.timer.Stop() {
		return // its channel is closed, or is about to be
	}
	c.Context = context.Background()
	p.pool.Put(c)
}
