package httplimit

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/base/steady"
	"github.com/headgate/headgate/internal/decide/adaptive"
)

// Adaptive finds out how many requests a handler can work on at once, and answers more with 503
// and a Retry-After of one to three seconds. In an overload, what is let in is then answered in
// time. It has no number that somebody has to know, and its zero value is ready:
//
//	var overload httplimit.Adaptive
//	http.ListenAndServe(":8080", overload.Limit(mux))
//
// What counts is the time until the header of an answer. Streams, WebSockets and long polls hold
// no place for long, and answers from 500 up do not count as fast. The time in which a read
// waits for the client does not count.
//
// Put it before the limits of [New], so that nothing is charged for what it refuses. An Adaptive
// must not be copied or changed after first use. See docs/run/overload.md.
type Adaptive struct {
	// Name is what the handlers need, such as the address of a database. Processes that need the
	// same find out together how much of it there is: give them one name.
	Name     string
	Min, Max int // requests at once; 0 is 3 and 1000
	// Critical, if not nil, says which requests matter most. A fifth of all places is kept for
	// them, on top of what the others may use.
	Critical func(*http.Request) bool

	once    sync.Once
	limiter *adaptive.Limiter
	clock   steady.Clock // one that is set back must not stop the limiter
}

// AdaptiveState is what an [Adaptive] does now.
type AdaptiveState struct {
	Limit    int           // requests at once, without those that are critical
	InFlight int           // that are waiting for the header of their answer
	Service  time.Duration // that a request takes without load, as last measured; 0 if not yet known
	Refused  int64         // requests, ever
}

// State returns what a does now, for metrics.
func (a *Adaptive) State() AdaptiveState {
	s := a.start().State()
	return AdaptiveState{Limit: s.Limit, InFlight: s.InFlight, Service: time.Duration(s.Service * float64(time.Second)), Refused: s.Refused}
}

func (a *Adaptive) start() *adaptive.Limiter {
	a.once.Do(func() {
		least := cmp.Or(a.Min, 3)
		a.clock.Start(steady.System{})
		a.limiter = adaptive.New(adaptive.Options{Min: least, Max: max(least, cmp.Or(a.Max, 1000)), Name: a.Name})
	})
	return a.limiter
}

// Limit returns a handler that passes to next what it can work on. Handlers of one Adaptive share
// its places. Limit panics if next is nil.
func (a *Adaptive) Limit(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the handler is nil") //nolint:forbidigo // as New does
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := a.start()
		class := adaptive.Class{Index: 1}
		if a.Critical != nil && a.Critical(r) {
			class = adaptive.Class{More: 0.25} // a fifth of all
		}
		taken, ok, _ := l.Take(a.clock.Now().UnixNano(), class)
		if !ok {
			answer.Overloaded(w, "the service is overloaded")
			return
		}
		var sent adaptive.Body
		if r.Body != nil && r.Body != http.NoBody {
			body := &read{ReadCloser: r.Body, clock: &a.clock}
			r = r.WithContext(r.Context())
			r.Body, sent = body, body
		}
		p := l.Hold(taken, sent, a.clock.Now)
		defer p.Cancel() // after a panic
		s := answer.Watch(w, func(status int) { leave(r.Context(), p, a.clock.Now(), status) })
		s.OnHijack = p.Cancel // a WebSocket ends when its client likes
		next.ServeHTTP(s, r)
		s.End()
	})
}

// leave gives the place of a request back when the handler has decided about the header. A tunnel
// ends when its client likes.
func leave(ctx context.Context, p *adaptive.Held, now time.Time, status int) {
	switch {
	case status == http.StatusSwitchingProtocols:
		p.Cancel()
	case ctx.Err() != nil: // the client has gone, or the time is over
		p.Done(now, adaptive.GaveUp)
	case status >= http.StatusInternalServerError:
		p.Done(now, adaptive.Failed)
	default:
		p.Done(now, adaptive.Answered)
	}
}

// read is a body that knows how long its reads have taken.
type read struct {
	io.ReadCloser
	clock *steady.Clock

	mu    sync.Mutex
	asked time.Time // when the read in progress began
	waits time.Duration
	all   bool
}

// Read implements io.Reader.
func (b *read) Read(to []byte) (int, error) {
	b.mu.Lock()
	b.asked = b.clock.Now()
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(to)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits, b.asked = b.waits+b.clock.Now().Sub(b.asked), time.Time{}
	b.all = b.all || err != nil
	return n, err
}

// Sending implements adaptive.Body.
func (b *read) Sending(now time.Time) (waited time.Duration, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if waited = b.waits; !b.asked.IsZero() {
		waited += max(now.Sub(b.asked), 0)
	}
	return waited, b.all
}
