package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// reference is the model behind a lock: the simplest conforming store.
type reference struct {
	mu     sync.Mutex
	model  *model
	closed bool
	now    func() int64
}

func (r *reference) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	out := make([]headgate.Decision, 1)
	err := r.Do(ctx, []headgate.Op{op}, out, headgate.Independent)
	return out[0], err
}

func (r *reference) Do(_ context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return headgate.ErrClosed
	case len(out) < len(ops):
		return errors.New("too little room")
	}
	nows := make([]int64, len(ops))
	for i := range ops {
		if err := ops[i].Validate(); err != nil {
			return err
		}
		if nows[i] = ops[i].At; nows[i] == 0 {
			nows[i] = r.now()
		}
	}
	r.model.do(ops, nows, out, mode)
	return nil
}

func (r *reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// TestReference: the suite accepts a store that conforms.
func TestReference(t *testing.T) {
	Run(t, Harness{Open: func(*testing.T) headgate.Store { return &reference{model: newModel()} }})
}

// TestReferenceWithItsOwnClock: the suite also accepts one that ignores Op.At.
func TestReferenceWithItsOwnClock(t *testing.T) {
	var now int64
	clock := func() int64 { return now }
	Run(t, Harness{
		Open: func(*testing.T) headgate.Store {
			now = t0
			return &reference{model: newModel(), now: clock}
		},
		Now:     clock,
		Advance: func(d time.Duration) { now += int64(d / time.Microsecond) },
	})
}
