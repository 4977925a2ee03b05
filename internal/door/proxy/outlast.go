package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/decide/admission"
)

// Abandoned limits what the proxy does for requests whose client has gone, if a rule
// must know how they end: their cost, or when their slot is free.
type Abandoned struct {
	// Time is how long it continues to read the upstream's answer; 0 means a minute,
	// and below 0 not at all.
	Time     time.Duration
	Bytes    int64 // how much of the answer it reads; 0 means 16 MiB
	Requests int64 // for how many requests at once; 0 means 1,000
}

// orDefault returns a with defaults in place of zeros.
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

// lastWord is how long Finish waits until the requests that it cut off are charged.
const lastWord = time.Second

// outlast is a request that continues at the upstream when its client has gone. It is
// the client's http.ResponseWriter, and then discards the answer.
type outlast struct {
	http.ResponseWriter
	proxy  *Proxy
	upload *upload            // nil without a body
	left   func() error       // Err of the client's context
	cancel context.CancelFunc // ends the upstream's work
	pass   *admission.Pass
	place  *adaptive.Held // at the upstream
	ended  bool           // the answer is complete; used by the handler alone

	mu      sync.Mutex
	gone    bool  // the client
	counted bool  // in outlasting.abandoned
	over    bool  // the handler returns
	nothing bool  // nothing is left to learn from the answer
	room    int64 // bytes of the answer that may still be read
	timer   *time.Timer
}

// outlasting are the requests that may outlast their clients.
type outlasting struct {
	mu        sync.Mutex
	all       map[*outlast]struct{}
	abandoned int64
	empty     chan struct{} // closed when there are none; nil if nothing waits for that
}

// outlast forwards r to the upstream. If the client goes away the request continues,
// within limits: it has rules that must know how it ends.
func (p *Proxy) outlast(w http.ResponseWriter, r *http.Request, x *exchange) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	o := &outlast{ResponseWriter: w, proxy: p, upload: x.upload, cancel: cancel, pass: &x.pass, place: x.place, left: r.Context().Err, room: p.options.Abandoned.Bytes}
	x.outlast = o
	p.outlasting.enter(o)
	stop := context.AfterFunc(r.Context(), o.leave)
	defer func() {
		stop()
		o.end()
		result := resultOf(x.answer, x.fault)
		result.Ended, result.Gone, result.Broken = o.ended, o.isGone(), x.upload.broken() != nil
		x.pass.Settle(r.Context(), result)
		p.outlasting.exit(o)
	}()
	x.writer = quieted(o, r)
	p.sends(x)
	p.reverse.ServeHTTP(x.writer, r.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
	if o.isGone() && r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // as httputil does: a discarded answer must not look complete
	}
}

// leave notes that the client has gone. The upstream's work continues if there is
// something to learn from it, up to Abandoned.Requests.
func (o *outlast) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.over || o.upload.late() {
		return
	}
	o.gone = true
	o.place.Done(o.proxy.options.Clock(), adaptive.GaveUp)
	most := o.proxy.patience()
	if o.nothing || most <= 0 {
		o.cancel()
		return
	}
	if o.counted = o.proxy.outlasting.abandon(o.proxy.options.Abandoned.Requests); !o.counted {
		o.pass.Lapse() // the upstream may continue: its lease frees the slot when it expires
		o.cancel()
		return
	}
	// Ends a write that waits for the client.
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	o.timer = time.AfterFunc(most, o.cancel)
}

// patience returns how long an abandoned request may continue from now on.
func (p *Proxy) patience() time.Duration {
	most := p.options.Abandoned.Time
	select {
	case <-p.room.closing:
		return min(most, p.room.until.Sub(p.options.Clock()))
	default:
		return most
	}
}

// answers notes that the header of the answer has arrived. It returns the body to read
// in place of its own.
func (o *outlast) answers(res *http.Response) io.ReadCloser {
	tunnel := res.StatusCode == http.StatusSwitchingProtocols
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nothing = tunnel || !o.pass.Learns(resultOf(res, nil))
	if o.gone && o.nothing {
		o.cancel()
	}
	if tunnel {
		o.ended = true // a tunnel is complete whenever either side ends it
		return res.Body
	}
	return &watched{res.Body, o}
}

// watched is the body of an answer. It notes its end.
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

// errAbandoned ends the copying of an answer that no client will receive.
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

// end is called when the request is over.
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

// abandon counts a request that continues without its client. It reports false if
// there are most of them already.
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

// none returns a channel that is closed when there are no requests.
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

// Finish waits for requests that continue without their clients, and cuts them off when
// ctx is done. A server's Shutdown does not wait for them. They are charged when Finish
// returns, and all slots are free.
func (p *Proxy) Finish(ctx context.Context) {
	defer p.lingering.end()
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
	case <-time.After(lastWord): //nolint:forbidigo // limits the time to stop
	}
}
