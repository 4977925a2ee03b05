package metrics

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/observe/sse"
)

const (
	// TickEvery is how often live views hear of what happened.
	TickEvery = time.Second
	// historyTicks is how many ticks a new one is told at once: five minutes.
	historyTicks = 300
	// historyRules is how many rules each of these tells of.
	historyRules = 50
	// maxLive is how many live views there may be, liveBuffer how many ticks
	// they may be behind.
	maxLive    = 64
	liveBuffer = 30
)

// Live tells what happens, every second, to any number of views. Make it with
// NewLive.
type Live struct {
	hub      *sse.Hub[struct{}]
	observer *Observer
	clock    func() time.Time
	store    func() StoreTick

	ticks int

	mu      sync.Mutex
	history []Tick // the oldest first
}

// NewLive returns a Live of what m has seen. store says how the store is.
func NewLive(m *Observer, clock func() time.Time, store func() StoreTick) *Live {
	return &Live{hub: sse.NewHub[struct{}](maxLive, liveBuffer), observer: m, clock: clock, store: store}
}

// Close ends all connections.
func (l *Live) Close() { l.hub.Close() }

// Tick tells what happened since the last call. It is to be called every
// TickEvery, and keeps the observer tidy too.
func (l *Live) Tick() {
	now := l.clock()
	t := l.observer.Tick(now)
	t.Store = l.store()
	if l.ticks++; l.ticks%60 == 0 {
		l.observer.Prune(now)
	}
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

// Serve sends ticks to w until the client goes away or the Live closes. It
// reports false, and has written nothing, if there are too many views.
func (l *Live) Serve(w http.ResponseWriter, r *http.Request) bool {
	l.mu.Lock() // no tick comes between the history and the first one sent
	unlock := sync.OnceFunc(l.mu.Unlock)
	defer unlock()
	hello := func() []byte {
		defer unlock()
		text, err := json.Marshal(struct {
			T        time.Time `json:"t"`
			Interval int64     `json:"interval_ms"`
			Ticks    []Tick    `json:"ticks"`
		}{l.clock().UTC(), TickEvery.Milliseconds(), append([]Tick{}, l.history...)})
		if err != nil {
			return nil
		}
		return sse.Message("hello", text)
	}
	return l.hub.Serve(w, r, struct{}{}, hello)
}
