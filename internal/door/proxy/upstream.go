package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/transport/certs"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// upstream is the proxy's way to its upstream.
type upstream struct {
	url          *url.URL // http or https
	transport    *http.Transport
	ways         *ways         // transport, and others like it
	certificates *certs.Client // nil without proxy.upstream_tls
	open         atomic.Int64  // connections
	backend      *door.HTTP    // in this process, in place of an upstream; nil without
	served       chan error    // receives its result
}

// upstreamTimeout is how long it may take to connect to an upstream with TLS.
const upstreamTimeout = 10 * time.Second

// checkFiles checks the certificate files.
func checkFiles(c *config.Config) error {
	own := config.Own[Settings](c)
	if own.UpstreamTLS == (certs.ClientFiles{}) {
		return nil
	}
	if _, err := own.UpstreamTLS.Load(); err != nil {
		return door.CertificateError("proxy.upstream_tls", err)
	}
	return nil
}

// newUpstream returns the configured upstream, or backend if it is not nil.
func newUpstream(p *door.Process, backend http.Handler) (*upstream, error) {
	u := &upstream{transport: NewTransport()}
	if backend != nil {
		if err := u.serve(p, backend); err != nil {
			return nil, err
		}
	} else {
		u.reach(config.Own[Settings](p.Config).Upstream)
	}
	u.transport.DialContext = u.bounded(p.Part(toUpstream), u.transport.DialContext)
	if c := &config.Own[Settings](p.Config).UpstreamTLS; *c != (certs.ClientFiles{}) {
		var err error
		if u.certificates, err = certs.LoadClient(*c, p.Logger.With("for", "upstream")); err != nil {
			return nil, door.CertificateError("proxy.upstream_tls", err)
		}
	}
	u.complete(u.url.Scheme == "https")
	return u, nil
}

// complete makes the other transports of u, which are not clones: those would offer the
// versions of HTTP that the first does.
func (u *upstream) complete(encrypted bool) { //nolint:revive // a fact, not a mode
	u.ways = &ways{usual: u.transport, fresh: NewTransport()}
	p := u.transport.Protocols
	u.ways.h2c = p != nil && p.UnencryptedHTTP2() && !p.HTTP1()
	u.ways.fresh.DisableKeepAlives = true
	u.ways.fresh.DialContext, u.ways.fresh.Protocols = u.transport.DialContext, u.transport.Protocols
	if encrypted || u.ways.h2c {
		u.ways.first = NewTransport()
		u.ways.first.DisableKeepAlives = true
		u.ways.first.DialContext, u.ways.first.Protocols = u.transport.DialContext, new(http.Protocols)
		u.ways.first.Protocols.SetHTTP1(true)
	}
	if encrypted && u.certificates != nil {
		u.transport.DialTLSContext = dialTLS(u.certificates.Dialer(u.transport.DialContext, "h2", "http/1.1"))
		u.ways.fresh.DialTLSContext = u.transport.DialTLSContext
		u.ways.first.DialTLSContext = dialTLS(u.certificates.Dialer(u.transport.DialContext, "http/1.1"))
	}
}

// reach sets how to get to the configured URL.
func (u *upstream) reach(to *url.URL) {
	there := *to
	var by Reach
	switch there.Scheme {
	case "h2c":
		by.Cleartext, there.Scheme = true, "http"
	case "unix":
		by.Socket, there = there.Path, url.URL{Scheme: "http", Host: "localhost"}
	}
	by.Set(u.transport)
	u.url = &there
}

// serve serves the backend on a free loopback port.
func (u *upstream) serve(p *door.Process, backend http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	own := &door.Process{Name: toBackend, Settings: new(config.Door), Config: &config.Config{}, Asker: p.Asker, Timeouts: p.Timeouts}
	if u.backend, err = door.NewHTTP(own, door.HTTPOptions{Handler: backend, Endless: true}); err != nil {
		return errors.Join(err, l.Close())
	}
	u.url = &url.URL{Scheme: "http", Host: l.Addr().String()}
	u.served = make(chan error, 1)
	go func() { u.served <- u.backend.Serve(l) }()
	return nil
}

// close closes the backend and idle connections.
func (u *upstream) close(ctx context.Context) (err error) {
	if u.backend != nil {
		err = errors.Join(u.backend.Shutdown(ctx), <-u.served)
	}
	u.ways.close()
	return err
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// dialTLS returns call, which does a TLS handshake, with a timeout.
func dialTLS(call dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
		defer cancel()
		return call(ctx, network, address)
	}
}

// bounded returns call, limited to most open connections.
func (u *upstream) bounded(most int, call dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if u.open.Add(1) > int64(most) {
			u.open.Add(-1)
			return nil, ErrUpstreamFull
		}
		nc, err := call(ctx, network, address)
		if err != nil {
			u.open.Add(-1)
			return nil, err
		}
		c := &upstreamConn{Conn: nc, leave: sync.OnceFunc(func() { u.open.Add(-1) }), shared: u.transport.Protocols != nil}
		if of, ok := nc.(syscall.Conn); ok {
			c.raw, _ = of.SyscallConn()
		}
		return c, nil
	}
}

type upstreamConn struct {
	net.Conn
	leave func()
	raw   syscall.RawConn        // nil if it has none
	waits atomic.Pointer[prompt] // reads the body of an answer; nil for none

	shared  bool         // by many requests: HTTP/2 without TLS
	written atomic.Int64 // bytes
	refuses atomic.Bool  // the next request; see attempt
}

// Read implements net.Conn.
func (c *upstreamConn) Read(p []byte) (int, error) {
	b := c.waits.Load()
	if b == nil {
		return c.Conn.Read(p)
	}
	if n := ready(c.raw, p); n > 0 {
		return n, nil
	}
	b.pauses()
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *upstreamConn) Write(p []byte) (int, error) {
	if c.refuses.Load() {
		return 0, errEnded
	}
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *upstreamConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the underlying connection.
func (c *upstreamConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side, for tunnels.
func (c *upstreamConn) CloseWrite() error { return netbound.CloseWrite(c.Conn) }
