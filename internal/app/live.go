package app

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/sse"
)

const (
	// tickEvery is how often live views hear of what happened.
	tickEvery = time.Second
	// historyTicks is how many ticks a new one is told at once: five minutes.
	historyTicks = 300
	// historyRules is how many rules each of these tells of.
	historyRules = 50
	// maxLive is how many live views there may be, liveBuffer how many ticks
	// they may be behind.
	maxLive    = 64
	liveBuffer = 30
)

// live tells what happens, every second, to any number of views.
type live struct {
	hub *sse.Hub[struct{}]

	mu      sync.Mutex
	history []metrics.Tick // the oldest first
}

// openLive begins to tick.
func (a *App) openLive() {
	a.live.hub = sse.NewHub[struct{}](maxLive, liveBuffer)
	ticks := 0
	a.every(tickEvery, func() {
		a.tick()
		if ticks++; ticks%60 == 0 {
			a.metrics.Prune(a.options.Clock())
		}
	})
}

// tick tells what happened since the last one.
func (a *App) tick() {
	t := a.metrics.Tick(a.options.Clock())
	s := a.storeStatus()
	t.Store = metrics.StoreTick{Circuit: s.Circuit, Keys: s.Keys}
	l := &a.live
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, t.Shorten(historyRules))
	if len(l.history) > historyTicks {
		l.history = append(l.history[:0:0], l.history[len(l.history)-historyTicks:]...)
	}
	if len(l.hub.Readers()) == 0 {
		return
	}
	if text, err := json.Marshal(&t); err == nil {
		l.hub.Send(sse.Message("tick", text))
	}
}

// serveLive answers GET /v1/live.
func (a *App) serveLive(w http.ResponseWriter, r *http.Request) {
	if !onlyParameters(w, r) {
		return
	}
	l := &a.live
	l.mu.Lock() // no tick comes between the history and the first one sent
	unlock := sync.OnceFunc(l.mu.Unlock)
	defer unlock()
	hello := func() []byte {
		defer unlock()
		text, err := json.Marshal(struct {
			T        time.Time      `json:"t"`
			Interval int64          `json:"interval_ms"`
			Ticks    []metrics.Tick `json:"ticks"`
		}{a.options.Clock().UTC(), tickEvery.Milliseconds(), append([]metrics.Tick{}, l.history...)})
		if err != nil {
			return nil
		}
		return sse.Message("hello", text)
	}
	if !l.hub.Serve(w, r, struct{}{}, hello) {
		answer.Problem(w, http.StatusServiceUnavailable, "too many live views are open")
	}
}

// endStreams ends what would go on for ever, so that the admin door can close.
func (a *App) endStreams() {
	if a.live.hub != nil {
		a.live.hub.Close()
		a.events.Close()
	}
}
