package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// dialer connects in the background, so that a connection that takes longer than a
// decision may wait is still made: the call that requested it fails at its deadline,
// and a later one finds the connection ready.
type dialer struct {
	closed func()      // if not nil, called when a connection ends
	quiet  atomic.Bool // while set, it is not called

	mu      sync.Mutex
	pending map[string]chan dialed
}

type dialed struct {
	conn net.Conn
	err  error
}

func newDialer(closed func()) *dialer {
	return &dialer{closed: closed, pending: make(map[string]chan dialed)}
}

// dial has the signature of rueidis.ClientOption.DialCtxFn.
func (d *dialer) dial(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
	began := time.Now() //nolint:forbidigo // deadlines are on the real clock
	for {
		ready := d.connecting(address, nd, config)
		select {
		case result, ok := <-ready:
			if !ok {
				continue // another call has taken the connection: make one more
			}
			if ctx.Err() != nil {
				ready <- result // for the next one
				return nil, ctx.Err()
			}
			d.forget(address, ready)
			close(ready)
			return d.opening(ctx, result, began)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connecting returns where a connection to address will arrive.
func (d *dialer) connecting(address string, nd *net.Dialer, config *tls.Config) chan dialed {
	d.mu.Lock()
	defer d.mu.Unlock()
	ready, ok := d.pending[address]
	if !ok {
		ready = make(chan dialed, 1)
		d.pending[address] = ready
		go connect(ready, address, *nd, config) // it outlives the call that asked for it
	}
	return ready
}

// opening returns the connection for a call that began then.
func (d *dialer) opening(ctx context.Context, result dialed, began time.Time) (net.Conn, error) {
	if result.err != nil {
		return nil, result.err
	}
	limit, ok := ctx.Deadline()
	if latest := began.Add(stallTimeout); !ok || limit.After(latest) {
		limit = latest
	}
	return &wire{Conn: result.conn, limit: limit, closed: d.ended}, nil
}

// ended is called when a connection ends.
func (d *dialer) ended() {
	if d.closed != nil && !d.quiet.Load() {
		d.closed()
	}
}

// forget makes the next dial of address connect again.
func (d *dialer) forget(address string, ready chan dialed) {
	d.mu.Lock()
	if d.pending[address] == ready {
		delete(d.pending, address)
	}
	d.mu.Unlock()
}

func connect(ready chan<- dialed, address string, nd net.Dialer, config *tls.Config) {
	timeout := nd.Timeout
	if timeout <= 0 {
		timeout = stallTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var result dialed
	if config != nil {
		td := tls.Dialer{NetDialer: &nd, Config: config}
		result.conn, result.err = td.DialContext(ctx, "tcp", address)
	} else {
		result.conn, result.err = nd.DialContext(ctx, "tcp", address)
	}
	ready <- result
}

// close closes the connections that were never used.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for address, ready := range d.pending {
		delete(d.pending, address)
		go func() {
			if result := <-ready; result.conn != nil {
				_ = result.conn.Close()
			}
		}()
	}
}

// wire is a connection that corrects two problems in how the client uses connections.
//
// If the deadline of the connecting call passes before its handshake starts, the client
// sends a last command and waits a second for the answer, and all callers that want
// that connection wait too. So a wire ends at that call's deadline until the server has
// sent something.
//
// If the deadline is noticed late because this process had no CPU, an answer that has
// already arrived is still read.
type wire struct {
	net.Conn
	limit  time.Time
	closed func()

	heard    atomic.Bool
	deadline atomic.Int64 // in nanoseconds since the epoch; 0 for none
	once     sync.Once
}

// SetDeadline implements net.Conn.
func (w *wire) SetDeadline(t time.Time) error {
	if !w.heard.Load() && (t.IsZero() || t.After(w.limit)) {
		t = w.limit
	}
	if t.IsZero() {
		w.deadline.Store(0)
	} else {
		w.deadline.Store(t.UnixNano())
	}
	return w.Conn.SetDeadline(t)
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.heard.Load() {
		w.heard.Store(true)
	}
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	deadline := w.deadline.Swap(0) // once per deadline
	now := time.Now()              //nolint:forbidigo // deadlines are on the real clock
	grace := graceFor(now.Sub(time.Unix(0, deadline)))
	if deadline == 0 || !w.heard.Load() || grace == 0 {
		return n, err
	}
	if w.SetReadDeadline(now.Add(grace)) != nil {
		return n, err
	}
	return w.Conn.Read(p)
}

// Close implements net.Conn.
func (w *wire) Close() error {
	if w.closed != nil {
		w.once.Do(w.closed)
	}
	return w.Conn.Close()
}
