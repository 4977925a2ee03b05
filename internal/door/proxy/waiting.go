package proxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/answer"
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

var (
	errFull        = errors.New("too many requests are waiting")
	errInterrupted = errors.New("interrupted while waiting for its turn")
)

// wait waits for d. It returns errFull if too many wait already; banned requests may take
// half of the room. It returns errInterrupted, as soon as that is known, if the client goes
// away or this process stops before then.
func (p *Proxy) wait(ctx context.Context, d time.Duration, banned bool) error { //nolint:revive // a fact, not a mode
	r := &p.room
	if banned {
		defer r.banned.Add(-1)
		if r.banned.Add(1) > r.most/2 {
			return errFull
		}
	}
	defer r.waiting.Add(-1)
	if r.waiting.Add(1) > r.most {
		return errFull
	}
	turn := p.options.Clock().Add(d)
	timer := time.NewTimer(d) //nolint:forbidigo // real waiting
	defer timer.Stop()
	closing := r.closing
	for {
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return errInterrupted
		case <-closing:
			if turn.After(r.until) {
				return errInterrupted
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

// interrupted answers a request that did not wait for its turn.
func (*Proxy) interrupted(w http.ResponseWriter, why error, delay time.Duration) {
	retry := time.Second
	if errors.Is(why, errFull) {
		retry = delay
	}
	w.Header().Set("Retry-After", strconv.FormatInt(max(answer.Seconds(retry), 1), 10))
	answer.Problem(w, http.StatusServiceUnavailable, why.Error())
}
