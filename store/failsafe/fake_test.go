package failsafe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

var errBroken = errors.New("connection refused")

// fake is a scriptable inner store.
type fake struct {
	mu     sync.Mutex
	answer func(store.Op) (store.Decision, error)
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
func (f *fake) one(ctx context.Context, op store.Op) (store.Decision, error) {
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
			return store.Decision{}, ctx.Err()
		}
	}
	if answer == nil {
		return store.Decision{Allowed: true, Granted: op.Cost}, nil
	}
	return answer(op)
}

func (f *fake) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		refused := false
		for i := range ops {
			d, err := f.one(ctx, ops[i])
			if err != nil {
				return err
			}
			out[i], refused = d, refused || !d.Allowed
		}
		if refused && mode == store.AllOrNothing {
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
		f.answer = func(store.Op) (store.Decision, error) { return store.Decision{}, errBroken }
	})
}

// works makes every call succeed.
func (f *fake) works() {
	f.set(func(f *fake) { f.answer, f.stall = nil, nil })
}

// refuses makes every take be refused until retry is over.
func (f *fake) refuses(retry time.Duration) {
	f.set(func(f *fake) {
		f.answer = func(op store.Op) (store.Decision, error) {
			return store.Decision{
				Reason: store.ReasonLimited, Limit: op.Rule.Most(), Remaining: 0,
				RetryAfter: retry, ResetAfter: time.Minute,
			}, nil
		}
	})
}
