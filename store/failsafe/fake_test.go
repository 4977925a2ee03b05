package failsafe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

var errBroken = errors.New("connection refused")

// fake is a scriptable inner store.
type fake struct {
	mu     sync.Mutex
	answer func(headgate.Op) (headgate.Decision, error)
	// stall makes calls wait until it is closed.
	stall chan struct{}
	// deaf makes them wait even if their context is done.
	deaf   bool
	asked  atomic.Int64
	closed bool
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// one answers one op.
func (f *fake) one(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	f.asked.Add(1)
	f.mu.Lock()
	answer, stall, deaf := f.answer, f.stall, f.deaf
	f.mu.Unlock()
	if stall != nil {
		done := ctx.Done()
		if deaf {
			done = nil
		}
		select {
		case <-stall:
		case <-done:
			return headgate.Decision{}, ctx.Err()
		}
	}
	if answer == nil {
		return headgate.Decision{Allowed: true, Granted: op.Cost}, nil
	}
	return answer(op)
}

func (f *fake) Do(ctx context.Context, b *headgate.Batch) {
	b.Each(func(ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
		refused := false
		for i := range ops {
			d, err := f.one(ctx, ops[i])
			if err != nil {
				return err
			}
			out[i], refused = d, refused || !d.Allowed
		}
		if refused && mode == headgate.AllOrNothing {
			for i := range out[:len(ops)] {
				out[i].Granted = 0
			}
		}
		return nil
	})
}

func (f *fake) Close() error {
	f.set(func(f *fake) { f.closed = true })
	return nil
}

// fails makes every call fail at once.
func (f *fake) fails() {
	f.set(func(f *fake) {
		f.answer = func(headgate.Op) (headgate.Decision, error) { return headgate.Decision{}, errBroken }
	})
}

// works makes every call succeed.
func (f *fake) works() {
	f.set(func(f *fake) { f.answer, f.stall = nil, nil })
}

// refuses makes every take be refused until retry is over.
func (f *fake) refuses(retry time.Duration) {
	f.set(func(f *fake) {
		f.answer = func(op headgate.Op) (headgate.Decision, error) {
			return headgate.Decision{
				Reason: headgate.Limited, Limit: op.Limit.Capacity(), Remaining: 0,
				RetryAfter: retry, ResetAfter: time.Minute,
			}, nil
		}
	})
}
