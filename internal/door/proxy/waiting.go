package proxy

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
)

// defaultWaiting is how many requests may wait if the options do not say.
const defaultWaiting = 10_000

// waitingRoom holds the requests that wait. It has so many places, since each
// costs memory, and keys there may be without number.
type waitingRoom struct {
	most    int64
	waiting atomic.Int64
	banned  atomic.Int64 // of these

	once    sync.Once
	closing chan struct{} // closed when this process stops
	until   time.Time     // by when all have to be gone; set before closing
}

func newWaitingRoom(most int64) waitingRoom {
	if most <= 0 {
		most = defaultWaiting
	}
	return waitingRoom{most: most, closing: make(chan struct{})}
}

// enter takes a place, and reports false if there is none.
func (r *waitingRoom) enter() bool {
	if r.waiting.Add(1) > r.most {
		r.waiting.Add(-1)
		return false
	}
	return true
}

func (r *waitingRoom) leave() { r.waiting.Add(-1) }

// pretend is enter for an answer to somebody banned. They have half of the room.
func (r *waitingRoom) pretend() bool {
	if r.banned.Add(1) > r.most/2 || !r.enter() {
		r.banned.Add(-1)
		return false
	}
	return true
}

// pretended is leave after pretend.
func (r *waitingRoom) pretended() {
	r.banned.Add(-1)
	r.leave()
}

// stay waits for d. It reports false, at once when that is known, if the client
// goes away before or this process stops.
func (r *waitingRoom) stay(ctx context.Context, d time.Duration, now func() time.Time) bool {
	turn := now().Add(d)
	timer := time.NewTimer(d) //nolint:forbidigo // a queue has to wait
	defer timer.Stop()
	closing := r.closing
	for {
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		case <-closing:
			if turn.After(r.until) {
				return false
			}
			closing = nil // its turn comes in time
		}
	}
}

// Drain tells those who wait that this process stops: at until whatever is
// still in flight is cut off. Requests whose turn comes later give it up at
// once and are answered; the others go on waiting. Further calls do nothing.
func (p *Proxy) Drain(until time.Time) {
	p.room.once.Do(func() {
		p.room.until = until
		close(p.room.closing)
	})
}

// Waiting returns how many requests wait now.
func (p *Proxy) Waiting() int { return int(p.room.waiting.Load()) }

// wait waits for the turn of an admitted request. If it has to give up, its
// place is freed, the request is answered and wait reports false.
func (p *Proxy) wait(w http.ResponseWriter, r *http.Request, v *engine.Verdict) bool {
	ctx := r.Context()
	detail, retry := "interrupted while waiting for its turn", time.Second
	if p.room.enter() {
		came := p.room.stay(ctx, v.Delay, p.options.Clock)
		p.room.leave()
		if came {
			return true
		}
	} else {
		detail, retry = "too many requests are waiting", v.Delay
	}
	verdict.Leave(ctx, p.options.Engine, p.options.Logger, v, p.options.Clock().UnixMicro())
	w.Header().Set("Retry-After", strconv.FormatInt(max(answer.Seconds(retry), 1), 10))
	answer.Problem(w, http.StatusServiceUnavailable, detail)
	return false
}
