package failsafe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxInline is how many concurrent calls run on their callers' goroutines. A
	// client's queue to its server is limited (rueidis: 1024 per connection), and
	// waiting for space in it ignores the context; this many calls fit.
	maxInline = 512
	// maxStuck limits the goroutines that are lost in a store that neither answers nor
	// returns when its context ends.
	maxStuck = 1024
)

// How a call ended.
const (
	running int32 = iota
	answered
	abandoned
)

// call is one call in its own goroutine. It holds copies of everything, because its
// caller may be gone, with its memory, when the store reads them.
type call struct {
	ops  []headgate.Op
	out  []headgate.Decision
	err  error
	done chan struct{}
	end  atomic.Int32
}

// isolate runs ask on copies of ops in its own goroutine, and waits until it or ctx
// ends.
func (s *Store) isolate(ctx context.Context, ops []headgate.Op, out []headgate.Decision, ask asker) error {
	if s.stuck.Load() >= maxStuck {
		return errStuck
	}
	c := &call{
		ops: slices.Clone(ops), out: make([]headgate.Decision, len(ops)), done: make(chan struct{}),
	}
	for i := range c.ops {
		c.ops[i].Key = strings.Clone(c.ops[i].Key)
	}
	go func() {
		c.err = guarded(ctx, c.ops, c.out, ask)
		if !c.end.CompareAndSwap(running, answered) {
			s.stuck.Add(-1)
		}
		close(c.done)
	}()
	select {
	case <-c.done:
	case <-ctx.Done():
		s.stuck.Add(1)
		if c.end.CompareAndSwap(running, abandoned) {
			return ErrTimeout
		}
		s.stuck.Add(-1)
		<-c.done // it answered at this moment
	}
	copy(out, c.out)
	return c.err
}

// guarded is ask, but returns a panic as an error: in our own goroutine, where no
// caller can recover from it, a panic would end the process.
func guarded(ctx context.Context, ops []headgate.Op, out []headgate.Decision, ask asker) (err error) {
	defer recovered(&err)
	return ask(ctx, ops, out)
}

// recovered turns a panic into an error. It must be deferred.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic: %v", headgate.ErrUnavailable, p)
	}
}

// asker calls a method of the inner store.
type asker func(ctx context.Context, ops []headgate.Op, out []headgate.Decision) error

// slotsPerTimeout is how many timers a Timeout is divided into. A call waits up to 1/8
// less than the Timeout, and 160 timers a second serve any number of calls.
const slotsPerTimeout = 8

// slot is the context shared by all calls that start within a short time. Unlike
// context.WithTimeout, which allocates five times per call, it does not allocate for
// each.
type slot struct {
	deadline time.Time
	until    int64 // calls that start before then share it
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

// If a deadline is noticed late, by more than lateness, the calls wait for about as
// long again, but at most longestGrace: this process had no CPU, their answers may have
// come in time, and reading them needs CPU.
const (
	longestGrace = 25 * time.Millisecond
	lateness     = 2 * time.Millisecond
)

// fire is called by the timer.
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

// at returns the slot of a call that starts now.
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

// context returns the context for a call that starts now. own is false if the caller's
// deadline is earlier.
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
