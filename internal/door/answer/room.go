package answer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMostAnswering is what large requests may take while they are answered,
// all together, in bytes.
const DefaultMostAnswering = 64 << 20

// ErrManyLarge says that large requests have taken all of their memory for long.
var ErrManyLarge = errors.New("too many large requests are in progress; try again")

// Room bounds what requests take in memory from when they are read until their
// answer is written: many times what they took on the wire, if they are lists of
// very little. Those that find no room wait for it in the order in which they
// came. The zero value is ready.
type Room struct {
	Most int64 // how many bytes they may take; 0 is DefaultMostAnswering

	refused atomic.Int64

	mu      sync.Mutex
	held    int64
	waiting []*waiter
}

type waiter struct {
	size  int64
	ready chan struct{} // closed when it has its room
}

// Enter waits until there is room for about n bytes, and returns what to give to
// [Room.Leave] later. Small requests, up to [SmallBody], need none. It returns
// ErrManyLarge if there is no room for as long as patience, and the error of ctx
// if that is done before.
func (r *Room) Enter(ctx context.Context, n int64, patience time.Duration) (taken int64, err error) {
	if n <= SmallBody {
		return 0, nil
	}
	most := r.most()
	n = min(n, most) // a giant alone
	r.mu.Lock()
	if len(r.waiting) == 0 && r.held+n <= most {
		r.held += n
		r.mu.Unlock()
		return n, nil
	}
	w := &waiter{size: n, ready: make(chan struct{})}
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrManyLarge)
	defer cancel()
	select {
	case <-w.ready:
		return n, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !r.leaves(w) {
		return n, nil // it has had its room since
	}
	r.refused.Add(1)
	return 0, err
}

// Leave gives back what Enter returned.
func (r *Room) Leave(taken int64) {
	if taken == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= taken
	r.admit()
}

// leaves takes w off those who wait, and reports whether it still did.
func (r *Room) leaves(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		if r.waiting[i] == w {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			r.admit() // perhaps there is room for the next one
			return true
		}
	}
	return false
}

// admit lets those in for whom there is room, in their order. It is called with
// mu held.
func (r *Room) admit() {
	for len(r.waiting) > 0 && r.held+r.waiting[0].size <= r.most() {
		w := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		r.held += w.size
		close(w.ready)
	}
}

func (r *Room) most() int64 {
	if r.Most == 0 {
		return DefaultMostAnswering
	}
	return r.Most
}

// Held returns how many bytes are taken.
func (r *Room) Held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Refused returns how many requests found no room in time.
func (r *Room) Refused() int64 { return r.refused.Load() }
