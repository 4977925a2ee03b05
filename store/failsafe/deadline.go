package failsafe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// slotsPerTimeout is how many timers a Timeout is cut into. A call waits for
// up to 1/8 of the Timeout less than all of it, and 160 timers a second serve
// any number of calls.
const slotsPerTimeout = 8

// slot is the context of all calls that began within a short while. It does
// not allocate for each of them, as context.WithTimeout does (five times).
type slot struct {
	deadline time.Time
	until    int64 // calls that begin before share it
	done     chan struct{}
	expired  atomic.Bool
}

func (s *slot) Deadline() (time.Time, bool) { return s.deadline, true }
func (s *slot) Done() <-chan struct{}       { return s.done }
func (s *slot) Value(any) any               { return nil }

func (s *slot) Err() error {
	if s.expired.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (s *slot) expire() {
	s.expired.Store(true)
	close(s.done)
}

// Calls whose deadline is noticed by more than lateness too late wait for about
// as long again, at most longestGrace: then this process had no processor, their
// answers may have come in time, and whoever reads them needs one.
const (
	longestGrace = 25 * time.Millisecond
	lateness     = 2 * time.Millisecond
)

// fire is called when the timer fires.
func (s *slot) fire(now time.Time) {
	if late := now.Sub(s.deadline); late > lateness {
		time.AfterFunc(min(late, longestGrace), s.expire)
		return
	}
	s.expire()
}

// carrier is a slot with the values of the caller's context, such as a trace.
type carrier struct {
	*slot
	values context.Context
}

func (c carrier) Value(key any) any { return c.values.Value(key) }

// slots hands out contexts.
type slots struct {
	timeout time.Duration
	mu      sync.Mutex
	current atomic.Pointer[slot]
}

// at returns the slot of a call that begins now.
func (s *slots) at(now int64, clock time.Time) *slot {
	if c := s.current.Load(); c != nil && now < c.until {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.current.Load(); c != nil && now < c.until {
		return c
	}
	c := &slot{
		deadline: clock.Add(s.timeout),
		until:    now + int64(s.timeout/slotsPerTimeout),
		done:     make(chan struct{}),
	}
	time.AfterFunc(s.timeout, func() { c.fire(time.Now()) }) //nolint:forbidigo // deadlines are on the real clock
	s.current.Store(c)
	return c
}

// context returns the context for a call that begins now. own is false if the
// caller's deadline is the earlier one.
func (s *slots) context(ctx context.Context, now int64, clock time.Time) (bounded context.Context, own bool) {
	c := s.at(now, clock)
	if d, ok := ctx.Deadline(); ok && d.Before(c.deadline) {
		return ctx, false
	}
	if ctx == context.Background() {
		return c, true
	}
	return carrier{slot: c, values: ctx}, true
}
