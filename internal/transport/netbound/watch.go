package netbound

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Watched is a listener that counts failures to accept connections, for example for lack
// of file descriptors, and logs each period of failures once. Servers retry silently
// after a pause.
type Watched struct {
	net.Listener
	log    *slog.Logger
	failed atomic.Int64 // all failures
	since  atomic.Int64 // failures of the current period; 0 if there is none

	yield *yield // nil if new connections never wait
	turn  *turn  // of yield
	// said is when it was last logged that connections are held back, saying that their end
	// must be logged too. Only used while they are held back.
	said   time.Time
	saying bool

	drain
}

// Watch watches l.
func Watch(l net.Listener, log *slog.Logger) *Watched {
	return &Watched{Listener: l, log: log, drain: drain{drained: make(chan struct{}), ended: make(chan struct{})}}
}

// Failed returns how often accepting a connection failed.
func (w *Watched) Failed() int64 { return w.failed.Load() }

// Accept implements net.Listener.
func (w *Watched) Accept() (net.Conn, error) {
	if w.yield != nil {
		w.yield.before()
	}
	nc, err := w.Listener.Accept()
	switch {
	case err != nil && w.draining.Load() && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)):
		return w.lastComer()
	case err == nil:
		if w.since.Load() > 0 {
			w.log.Info("accepting connections again", "failed", w.since.Swap(0))
		}
	case passes(err):
		w.failed.Add(1)
		if w.since.Add(1) == 1 {
			w.log.Error("cannot accept connections", "err", err, "hint", "the process may need more file descriptors: LimitNOFILE=, ulimit -n")
		}
	}
	return nc, err
}

// Pauses after accepting a connection failed: they double from the first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// AcceptAll passes every connection of l to handle, which must not block, until ctx is
// done and l is closed; then it returns nil. After a temporary error, such as no file
// descriptors, it tries again after a pause; [Watched] logs it. It returns any other
// error.
func AcceptAll(ctx context.Context, l net.Listener, handle func(net.Conn)) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			handle(nc)
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is how it ends
		case !passes(err):
			return err
		}
		pause = min(max(2*pause, firstPause), lastPause)
		waiting, cancel := context.WithTimeout(ctx, pause)
		<-waiting.Done()
		cancel()
	}
}

// passes reports whether an error is temporary. Package net deprecates Temporary because
// it includes timeouts; for a listener it is well defined, and net/http uses it too.
func passes(err error) bool {
	temporary, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && temporary.Temporary()
}

// drain is how a listener stops.
type drain struct {
	draining atomic.Bool
	drained  chan struct{} // closed with the listener below
	ended    chan struct{} // closed by Close
	shut     sync.Once
	shutErr  error
	end      sync.Once

	mu      sync.Mutex
	asked   bool
	waiting []net.Conn // connected before the listener was shut down
}

// drainTime is how long Drain waits for Accept.
const drainTime = 200 * time.Millisecond

// Drain accepts no more connections except those that the system has already established:
// closing the listener would reset them, with their requests. Accept, which must be
// running, returns these and then waits for Close.
func (w *Watched) Drain(ctx context.Context) {
	bounded, ok := w.Listener.(interface{ SetDeadline(t time.Time) error })
	if !ok || w.draining.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if bounded.SetDeadline(time.Unix(1, 0)) == nil { // Accept returns at once
		select {
		case <-w.drained:
		case <-ctx.Done(): // Accept is not running
		}
	}
	w.shutDown()
}

// lastComer returns a connection that was established before the listener was drained. If
// there are no more, it waits for Close.
func (w *Watched) lastComer() (net.Conn, error) {
	if nc := w.pop(); nc != nil {
		return nc, nil
	}
	w.shutDown()
	<-w.ended
	return nil, &net.OpError{Op: "accept", Net: w.Addr().Network(), Addr: w.Addr(), Err: net.ErrClosed}
}

func (w *Watched) pop() net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked {
		w.asked, w.waiting = true, acceptWaiting(w.Listener)
	}
	if len(w.waiting) == 0 {
		return nil
	}
	nc := w.waiting[0]
	w.waiting = w.waiting[1:]
	return nc
}

// shutDown closes the listener below, once.
func (w *Watched) shutDown() {
	w.shut.Do(func() {
		w.shutErr = w.Listener.Close()
		close(w.drained)
		if w.turn != nil {
			w.turn.close()
		}
	})
}

// Close implements net.Listener.
func (w *Watched) Close() error {
	w.shutDown()
	w.end.Do(func() { close(w.ended) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, nc := range w.waiting { // not accepted
		_ = nc.Close()
	}
	w.asked, w.waiting = true, nil
	return w.shutErr
}

// Values of conn.idle other than a time, which is in nanoseconds since 1970. The time is
// only recorded while Quiet is running.
const (
	notHTTP   = iota // or not known yet
	forSince         // idle since before Quiet
	hasAnswer = -1   // at work
)

// Follow records the state of a connection of a net/http server for Quiet only. It is for
// servers behind a port that others share.
func (l *Listener) Follow(nc net.Conn, state http.ConnState) { l.follow(find(nc), nc, state) }

func (l *Listener) follow(c *conn, nc net.Conn, state http.ConnState) {
	if c == nil {
		return
	}
	c.head.follow(nc, state)
	c.unasked.Store(state == http.StateNew)
	switch {
	case state != http.StateNew && state != http.StateIdle:
		c.idle.Store(hasAnswer)
	case l.quieting.Load():
		c.idle.Store(time.Now().UnixNano()) //nolint:forbidigo // sockets go by the real clock
	default:
		c.idle.Store(forSince)
	}
}

// quietTick is how often Quiet checks the connections.
const quietTick = 5 * time.Millisecond

// Quiet waits until every connection of a net/http server is closed, or has been idle for
// that long since Quiet was called. A stopping server may then close the rest: no client
// is about to send a request. It waits for at most twice that time, until those at work
// become idle, and not longer than ctx. Answers should ask clients to close in the
// meantime.
func (l *Listener) Quiet(ctx context.Context, idle time.Duration) {
	begin := time.Now() //nolint:forbidigo // sockets go by the real clock
	ctx, cancel := context.WithDeadline(ctx, begin.Add(2*idle))
	defer cancel()
	l.quieting.Store(true)
	tick := time.NewTicker(quietTick) //nolint:forbidigo // as above
	defer tick.Stop()
	for now := begin; !l.isQuiet(begin, now.Add(-idle)); {
		select {
		case now = <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// HangUp closes the connections that have not sent a request, or, if the policy is ByRead,
// anything. It is for a server that stops: net/http waits five seconds for a first request
// then, and a gRPC server until its handshake timeout.
func (l *Listener) HangUp() {
	l.mu.Lock()
	var silent []*conn
	for c := range l.conns {
		if c.unasked.Load() || l.options.Policy == ByRead && !c.begun.Load() {
			silent = append(silent, c)
		}
	}
	l.mu.Unlock()
	for _, c := range silent {
		_ = c.Conn.Close() // its server notices, and closes it again
	}
}

// isQuiet reports whether every connection has been idle since before a time. For those
// that were idle before begin, it counts from begin.
func (l *Listener) isQuiet(begin, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := begin.After(since)
	for c := range l.conns {
		switch at := c.idle.Load(); {
		case at == notHTTP:
		case at == hasAnswer, at == forSince && late, at > forSince && at > since.UnixNano():
			return false
		}
	}
	return true
}
