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

// Watched is a listener that counts, and logs once for each time it lasts, that
// cannot accept connections since something has run out, such as file
// descriptors. Servers try again after a pause and say nothing.
type Watched struct {
	net.Listener
	log    *slog.Logger
	failed atomic.Int64 // in all
	since  atomic.Int64 // of those, since it began; 0 while all is well

	drain
}

// Watch watches l.
func Watch(l net.Listener, log *slog.Logger) *Watched {
	return &Watched{Listener: l, log: log, drain: drain{drained: make(chan struct{}), ended: make(chan struct{})}}
}

// Failed returns how often a connection could not be accepted.
func (w *Watched) Failed() int64 { return w.failed.Load() }

// Accept implements net.Listener.
func (w *Watched) Accept() (net.Conn, error) {
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

// The pauses after a connection could not be accepted: they double from the
// first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// AcceptAll hands every connection of l to handle, which must not take long,
// until ctx is done and l is closed; it then returns nil. After an error that
// passes, such as having no file descriptors left, it tries again after a pause,
// for others will be closed; [Watched] tells of it. Any other error is returned.
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

// passes reports whether an error says of itself that it passes. What package
// net deprecates about Temporary is that time-outs are among it; of a listener
// it means what it says, and package net/http goes by it too.
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
	waiting []net.Conn // had connected when it was asked
}

// drainTime is how long Drain waits for Accept.
const drainTime = 200 * time.Millisecond

// Drain accepts no more connections but those that the system has made already:
// to close the listener would reset them, with the requests on them. Accept, which
// somebody has to call meanwhile, returns them and then waits for Close.
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
		case <-ctx.Done(): // nobody accepts
		}
	}
	w.shutDown()
}

// lastComer returns a connection that was there when the listener began to drain.
// When there are no more it waits for Close.
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
	})
}

// Close implements net.Listener.
func (w *Watched) Close() error {
	w.shutDown()
	w.end.Do(func() { close(w.ended) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, nc := range w.waiting { // nobody wants them
		_ = nc.Close()
	}
	w.asked, w.waiting = true, nil
	return w.shutErr
}

// What conn.idle is besides a time, in nanoseconds since 1970. The time is not
// asked for before somebody wants to know it.
const (
	notHTTP   = iota // or nothing is known yet
	forSince         // idle since before Quiet
	hasAnswer = -1   // at work
)

// Follow notes what a server of net/http is doing with a connection, for Quiet
// alone: it is for servers behind a port that has others too.
func (l *Listener) Follow(nc net.Conn, state http.ConnState) { l.follow(find(nc), state) }

func (l *Listener) follow(c *conn, state http.ConnState) {
	switch {
	case c == nil:
	case state != http.StateNew && state != http.StateIdle:
		c.idle.Store(hasAnswer)
	case l.quieting.Load():
		c.idle.Store(time.Now().UnixNano()) //nolint:forbidigo // sockets go by the real clock
	default:
		c.idle.Store(forSince)
	}
}

// quietTick is how often it is seen whether all is quiet.
const quietTick = 5 * time.Millisecond

// Quiet waits until every connection of a server of net/http has gone, or has been
// idle for so long since Quiet began: then a server that stops may close those
// that are left, for no client is about to send a request on them. It waits twice
// that time at most, for those at work to become idle, and not beyond ctx. The
// answers should ask clients to close meanwhile.
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

// isQuiet reports whether every connection has been idle since before a time.
// Those that were so before begin count from then.
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
