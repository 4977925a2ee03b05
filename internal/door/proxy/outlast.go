package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
)

// Abandoned bounds what the proxy does for requests whose client has gone, where
// a rule wants to know how they end: what they cost, or when their place is free.
type Abandoned struct {
	// Time is how long it goes on reading the upstream's answer; 0 means a
	// minute, and less than that not at all.
	Time     time.Duration
	Bytes    int64 // how much of it; 0 means 16 MiB
	Requests int64 // of how many at once; 0 means 1,000
}

// orDefault returns the bounds with defaults where they say nothing.
func (a Abandoned) orDefault() Abandoned {
	if a.Time == 0 {
		a.Time = time.Minute
	}
	if a.Bytes <= 0 {
		a.Bytes = 16 << 20
	}
	if a.Requests <= 0 {
		a.Requests = 1000
	}
	return a
}

// lastWord is how long Finish waits for what it has cut off, until it has been
// charged.
const lastWord = time.Second

// outlast is a request that goes on at the upstream when its client has gone. It
// is the client's http.ResponseWriter, and swallows the answer then.
type outlast struct {
	http.ResponseWriter
	proxy  *Proxy
	upload *upload            // nil without a body
	left   func() error       // of the client's context
	cancel context.CancelFunc // ends the upstream's work
	hold   *engine.Hold       // nil if no place has to be kept to the end
	costs  *engine.Verdict    // nil if no cost has to be learned
	ended  bool               // the answer has come to its end; of the handler alone

	mu      sync.Mutex
	gone    bool  // the client
	counted bool  // among the abandoned
	over    bool  // the handler returns
	nothing bool  // nothing is left to learn from the answer
	room    int64 // bytes of the answer
	timer   *time.Timer
}

// outlasting are the requests that may outlast their clients.
type outlasting struct {
	mu        sync.Mutex
	all       map[*outlast]struct{}
	abandoned int64
	empty     chan struct{} // closed when there are none, if somebody waits for that
}

// outlast lets r pass to the upstream, whose work goes on within bounds if the
// client goes away: v has rules that want to know how it ends.
func (p *Proxy) outlast(w http.ResponseWriter, r *http.Request, x *exchange, v *engine.Verdict, hold *engine.Hold) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	o := &outlast{ResponseWriter: w, proxy: p, upload: x.upload, cancel: cancel, hold: hold, left: r.Context().Err, room: p.options.Abandoned.Bytes}
	if v.HasCostAfter() {
		o.costs = v
	}
	x.outlast = o
	p.outlasting.enter(o)
	stop := context.AfterFunc(r.Context(), o.leave)
	defer func() {
		stop()
		o.end()
		if o.costs != nil {
			p.settleCosts(r.Context(), x, v)
		}
		if !o.ended && !isDial(x.fault) && (x.upload.broken() != nil || isTimeout(x.fault)) {
			hold.Lapse() // the upstream may go on with what it has of the request
		}
		hold.End()
		p.outlasting.exit(o)
	}()
	p.reverse.ServeHTTP(o, r.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
	if o.isGone() && r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // as httputil does: what was swallowed must not look as if it were all
	}
}

// leave notes that the client has gone. The upstream's work goes on if there is
// something to learn from it, and room.
func (o *outlast) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.over || o.upload.late() {
		return
	}
	o.gone = true
	most := o.proxy.patience()
	if o.nothing || most <= 0 {
		o.cancel()
		return
	}
	if o.counted = o.proxy.outlasting.abandon(o.proxy.options.Abandoned.Requests); !o.counted {
		o.hold.Lapse() // the upstream may work on: the place is free when its lease ends
		o.cancel()
		return
	}
	// A write that waits for the client ends.
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	o.timer = time.AfterFunc(most, o.cancel)
}

// patience is how long an abandoned request may go on from now.
func (p *Proxy) patience() time.Duration {
	most := p.options.Abandoned.Time
	select {
	case <-p.room.closing:
		return min(most, p.room.until.Sub(p.options.Clock()))
	default:
		return most
	}
}

// answers notes that the header of the answer is there. It returns the body to
// read in place of its own.
func (o *outlast) answers(res *http.Response) io.ReadCloser {
	tunnel := res.StatusCode == http.StatusSwitchingProtocols
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nothing = tunnel || o.hold == nil && o.costs != nil && tellsAll(o.costs, res)
	if o.gone && o.nothing {
		o.cancel()
	}
	if tunnel {
		o.ended = true // it ends when either side has had enough
		return res.Body
	}
	return &watched{res.Body, o}
}

// watched is the body of an answer whose end is noted.
type watched struct {
	io.ReadCloser
	outlast *outlast
}

// Read implements io.Reader.
func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.outlast.ended = true
	}
	return n, err
}

// errAbandoned ends the copying of an answer that nobody will get.
var errAbandoned = errors.New("the client has gone, and the rest of the answer is too long")

// Write implements io.Writer.
func (o *outlast) Write(b []byte) (int, error) {
	if !o.isGone() {
		n, err := o.ResponseWriter.Write(b)
		if err == nil {
			return n, nil
		}
		o.leave()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.room -= int64(len(b)); o.room < 0 {
		o.cancel()
		return 0, errAbandoned
	}
	return len(b), nil
}

// Unwrap returns the writer below, for http.ResponseController.
func (o *outlast) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *outlast) isGone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone || o.left() != nil && !o.upload.late()
}

// end is called when nothing more comes of the request.
func (o *outlast) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.timer != nil {
		o.timer.Stop()
	}
	o.cancel()
}

func (s *outlasting) enter(o *outlast) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*outlast]struct{}{}
	}
	s.all[o] = struct{}{}
}

// abandon counts a request that goes on without its client, and reports false
// if there are most of them already.
func (s *outlasting) abandon(most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned >= most {
		return false
	}
	s.abandoned++
	return true
}

func (s *outlasting) exit(o *outlast) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.all, o); o.counted {
		s.abandoned--
	}
	if len(s.all) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// none returns a channel that is closed when there are none.
func (s *outlasting) none() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	return s.empty
}

// Finish waits for requests that go on without their clients, and cuts them off
// when ctx is done. On return they have been charged: a server does not wait for
// requests whose connection has gone.
func (p *Proxy) Finish(ctx context.Context) {
	none := p.outlasting.none()
	select {
	case <-none:
		return
	case <-ctx.Done():
	}
	p.outlasting.mu.Lock()
	for o := range p.outlasting.all {
		o.cancel()
	}
	p.outlasting.mu.Unlock()
	select {
	case <-none:
	case <-time.After(lastWord): //nolint:forbidigo // a bound on stopping
	}
}

// hold keeps the places that v has taken under rules that limit what is under
// way, until End of what it returns.
func (p *Proxy) hold(ctx context.Context, v *engine.Verdict) *engine.Hold {
	if !v.HasLeases() {
		return nil // without making anything
	}
	return p.options.Engine.Hold(ctx, v, engine.HoldOptions{Clock: p.options.Clock, Failed: p.leaseFailed})
}

// leaseFailed is told of places that could not be kept or given back.
func (p *Proxy) leaseFailed(err error) {
	p.options.Logger.Debug("lease not renewed or released", "err", err)
}
