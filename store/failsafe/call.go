package failsafe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate"
)

const (
	// maxInline is how many calls at once run on their callers' goroutines. A
	// client's queue to its server is bounded (rueidis: 1024 a connection)
	// and waits for room without looking at the context; this many fit.
	maxInline = 512
	// maxStuck bounds the goroutines that a store can keep which returns
	// neither an answer nor at the end of its context.
	maxStuck = 1024
)

// The ends of a call, whichever comes first.
const (
	running int32 = iota
	answered
	abandoned
)

// call is one question in a goroutine of its own. It has copies of everything,
// because its caller may be gone, with its memory, when the store reads them.
type call struct {
	ops  []headgate.Op
	out  []headgate.Decision
	err  error
	done chan struct{}
	end  atomic.Int32
}

// isolate runs ask on copies of ops in a goroutine of its own, and waits for
// it or for the end of ctx.
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
		<-c.done // it has answered in this very moment
	}
	copy(out, c.out)
	return c.err
}

// guarded is ask, and its panic as an error: in a goroutine of ours, where no caller
// could recover from it, it would end the process.
func guarded(ctx context.Context, ops []headgate.Op, out []headgate.Decision, ask asker) (err error) {
	defer recovered(&err)
	return ask(ctx, ops, out)
}

// recovered makes an error of a panic. It has to be deferred.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: it panicked: %v", headgate.ErrUnavailable, p)
	}
}

// asker calls a method of the inner store.
type asker func(ctx context.Context, ops []headgate.Op, out []headgate.Decision) error
