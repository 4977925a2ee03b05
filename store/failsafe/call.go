package failsafe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
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

// callInner lets the inner store answer b. A panic becomes the error of all groups: it is
// unknown which of them have answers, and in our own goroutine no caller could recover
// from it.
func (s *Store) callInner(ctx context.Context, b *store.Batch) {
	defer func() {
		if p := recover(); p != nil {
			b.Fail(fmt.Errorf("%w: panic: %v", store.ErrUnavailable, p))
		}
	}()
	s.inner.Do(ctx, b)
}

// isolate is ask for a copy of b in its own goroutine, and waits until it or ctx ends:
// the caller of b may be gone, with its memory, when the store reads it.
func (s *Store) isolate(ctx context.Context, b *store.Batch) {
	if s.stuck.Load() >= maxStuck {
		b.Fail(errStuck)
		return
	}
	own := &store.Batch{Ops: slices.Clone(b.Ops), Out: make([]store.Decision, len(b.Ops)), Groups: slices.Clone(b.Groups)}
	for i := range own.Ops {
		own.Ops[i].Key, own.Ops[i].Share = strings.Clone(own.Ops[i].Key), own.Ops[i].Share.Clone()
	}
	var end atomic.Int32
	done := make(chan struct{})
	go func() {
		earlier := ctx
		if d, ok := ctx.Deadline(); ok && len(own.Groups) > 1 {
			// The inner store gets slightly less time than our caller, or the answers that
			// did arrive would be lost too.
			before, cancel := context.WithDeadline(ctx, d.Add(-s.options.Timeout/slotsPerTimeout))
			defer cancel()
			earlier = before
		}
		s.callInner(earlier, own)
		if !end.CompareAndSwap(running, answered) {
			s.stuck.Add(-1)
		}
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.stuck.Add(1)
		if end.CompareAndSwap(running, abandoned) {
			b.Fail(ErrTimeout)
			return
		}
		s.stuck.Add(-1)
		<-done // it answered at this moment
	}
	copy(b.Out, own.Out)
	copy(b.Groups, own.Groups)
	b.Created, b.Changed, b.Recorded = own.Created, own.Changed, own.Recorded
}

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
