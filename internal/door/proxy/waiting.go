package proxy

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/verdict"
)

// defaultWaiting is the default of Options.MaxWaiting.
const defaultWaiting = 10_000

// waitingRoom holds the requests that wait. It is limited, since each costs memory and
// there may be any number of keys.
type waitingRoom struct {
	most    int64
	waiting atomic.Int64
	banned  atomic.Int64 // those of waiting that are banned

	once    sync.Once
	closing chan struct{} // closed when this process stops
	until   time.Time     // when all must be gone; set before closing
}

func newWaitingRoom(most int64) waitingRoom {
	if most <= 0 {
		most = defaultWaiting
	}
	return waitingRoom{most: most, closing: make(chan struct{})}
}

// enter adds a request. It reports false if the room is full.
func (r *waitingRoom) enter() bool {
	if r.waiting.Add(1) > r.most {
		r.waiting.Add(-1)
		return false
	}
	return true
}

func (r *waitingRoom) leave() { r.waiting.Add(-1) }

// enterBanned is enter for a banned request. They may take half of the room.
func (r *waitingRoom) enterBanned() bool {
	if r.banned.Add(1) > r.most/2 || !r.enter() {
		r.banned.Add(-1)
		return false
	}
	return true
}

func (r *waitingRoom) leaveBanned() {
	r.banned.Add(-1)
	r.leave()
}

// stay waits for d. It reports false, as soon as that is known, if the client goes away
// or this process stops before then.
func (r *waitingRoom) stay(ctx context.Context, d time.Duration, now func() time.Time) bool {
	turn := now().Add(d)
	timer := time.NewTimer(d) //nolint:forbidigo // real waiting
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
			closing = nil // there is enough time
		}
	}
}

// Drain prepares for the end of this process: at until, requests still in progress are
// cut off. Waiting requests whose turn comes later are answered at once; the others
// keep waiting. Further calls do nothing.
func (p *Proxy) Drain(until time.Time) {
	p.room.once.Do(func() {
		p.room.until = until
		close(p.room.closing)
	})
}

// Waiting returns how many requests are waiting.
func (p *Proxy) Waiting() int { return int(p.room.waiting.Load()) }

// wait waits for the turn of an admitted request. If it has to give up, it frees the
// request's place in line, answers the request and reports false.
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
