package answer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMostAnswering is the default memory of all large requests being answered, in
// bytes.
const DefaultMostAnswering = 64 << 20

// ErrManyLarge says that large requests have used all of their memory for too long.
var ErrManyLarge = errors.New("too many large requests are in progress; try again")

// Room bounds the memory of requests, from reading them until their answer is written.
// Lists of many small elements take many times their size on the wire. Requests wait
// for memory in the order of arrival. The zero value is ready to use.
type Room struct {
	Most int64 // in bytes; 0 means DefaultMostAnswering

	refused atomic.Int64

	mu      sync.Mutex
	held    int64
	waiting []*waiter
}

type waiter struct {
	size  int64
	ready chan struct{} // closed when its memory is granted
}

// Enter waits for about n bytes of memory and returns the amount to pass to
// [Room.Leave] later. Requests up to [SmallBody] take none. It returns ErrManyLarge
// if it has waited for patience, or the error of ctx if that is done first.
func (r *Room) Enter(ctx context.Context, n int64, patience time.Duration) (taken int64, err error) {
	if n <= SmallBody {
		return 0, nil
	}
	most := r.most()
	n = min(n, most) // a larger request runs alone
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
		return n, nil // it was admitted just now
	}
	r.refused.Add(1)
	return 0, err
}

// Leave returns the memory that Enter took.
func (r *Room) Leave(taken int64) {
	if taken == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= taken
	r.admit()
}

// leaves removes w from the waiting ones and reports whether it was still waiting.
func (r *Room) leaves(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		if r.waiting[i] == w {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			r.admit() // the next one may be smaller
			return true
		}
	}
	return false
}

// admit admits waiting requests in order while there is memory. The caller holds mu.
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

// Refused returns how many requests got no memory in time.
func (r *Room) Refused() int64 { return r.refused.Load() }
