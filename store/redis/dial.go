package redis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// dialer connects in the background, so that a connection that takes longer to
// make than a decision may wait is made all the same: the call that asked for
// it fails at its deadline, and a later one finds it ready.
type dialer struct {
	mu      sync.Mutex
	pending map[string]chan dialed
}

type dialed struct {
	conn net.Conn
	err  error
}

func newDialer() *dialer { return &dialer{pending: make(map[string]chan dialed)} }

// dial has the signature of rueidis.ClientOption.DialCtxFn.
func (d *dialer) dial(ctx context.Context, address string, nd *net.Dialer, config *tls.Config) (net.Conn, error) {
	d.mu.Lock()
	ready, ok := d.pending[address]
	if !ok {
		ready = make(chan dialed, 1)
		d.pending[address] = ready
		go connect(ready, address, *nd, config) //nolint:gosec // the connection outlives the call that asked for it
	}
	d.mu.Unlock()
	select {
	case result := <-ready:
		d.forget(address, ready)
		return result.conn, result.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forget makes the next dial of address connect anew.
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

// close closes the connections that nobody has fetched.
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
