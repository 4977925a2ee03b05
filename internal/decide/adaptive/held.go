package adaptive

import (
	"sync"
	"time"
)

// longSending is how long a request may hold its place before its client has sent all of it, if
// it is that what the time goes into.
const longSending = time.Second

// Body is what a client sends with a request.
type Body interface {
	// Sending returns how long reads have waited for the client until now, and whether it has
	// sent all.
	Sending(now time.Time) (waited time.Duration, all bool)
}

// Held is the place of a request. It is given back once, by what comes first: an end that
// somebody notices, or that the request has taken too long to be work. A nil Held is none. It is
// safe for concurrent use.
type Held struct {
	of       *Limiter
	clock    func() time.Time
	body     Body
	patience time.Duration

	mu    sync.Mutex
	timer *time.Timer
	place Place
	gone  bool
	late  bool // it lapsed, and the request has not ended
}

// Hold holds a place that has been taken. The body may be nil.
func (l *Limiter) Hold(p Place, body Body, clock func() time.Time) *Held {
	h := &Held{of: l, clock: clock, body: body, patience: l.Patience(), place: p}
	first := h.patience
	if body != nil {
		first = min(first, longSending)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(first, h.expire)
	return h
}

// expire gives the place back, or waits for longer: the time that the client takes to send the
// request is none that the upstream takes.
func (h *Held) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return
	}
	now := h.clock()
	waited, all := h.waits(now)
	held := time.Duration(now.UnixNano() - h.place.started)
	left := h.patience + waited - held
	switch {
	case !all && waited >= longSending/2 && held >= longSending:
		h.end(h.of.Cancel)
	case left > 0:
		h.timer.Reset(left)
	default:
		h.late = true
		h.end(h.of.Lapse)
	}
}

// Done gives the place back at the end of the request, as [Limiter.Done].
func (h *Held) Done(now time.Time, how End) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late {
		h.late = false
		h.of.Late(now.UnixNano(), how)
	}
	if !h.gone {
		h.waits(now)
		h.end(func(p Place) { h.of.Done(p, now.UnixNano(), how) })
	}
}

// Cancel gives the place back, as [Limiter.Cancel].
func (h *Held) Cancel() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late = false; !h.gone {
		h.waits(h.clock())
		h.end(h.of.Cancel)
	}
}

// waits notes how long the upstream has waited for the client.
func (h *Held) waits(now time.Time) (waited time.Duration, all bool) {
	if h.body == nil {
		return 0, true
	}
	waited, all = h.body.Sending(now)
	h.place.Waited(waited)
	return waited, all
}

func (h *Held) end(by func(Place)) {
	h.gone = true
	h.timer.Stop()
	by(h.place)
}
