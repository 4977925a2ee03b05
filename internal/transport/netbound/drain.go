package netbound

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

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
