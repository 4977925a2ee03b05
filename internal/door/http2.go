package door

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// streamCost is the approximate memory of an HTTP/2 stream in net/http, whatever it
// sends: its goroutine, its header and its response buffer.
const streamCost = 12 << 10

// boundHTTP2 looks at the frames of HTTP/2 connections: a client may have hundreds of
// requests on each whose bodies never end or whose answers it does not read. It must be
// called before the server starts.
//
// It uses the server of x/net, which is the same as the one in net/http but accepts
// a connection that is not a tls.Conn.
func (h *HTTP) boundHTTP2(p *Process, o *HTTPOptions) error {
	bound := h2bound.New(h2bound.Options{
		Room: o.Room, StreamCost: streamCost, Unread: p.Unread, Terms: p.Terms, Logger: p.Logger.With("door", p.Name),
	})
	h.server.RegisterOnShutdown(bound.Stop)
	h.server.Handler = h2bound.Answers(h.server.Handler)
	if p.Heads != nil {
		h.server.Handler = boundHeads(p.Heads, h.server.Handler)
	}
	server, encryption := new(http2.Server), h.server.TLSConfig     //nolint:staticcheck // deprecated, but no other accepts a connection
	if err := http2.ConfigureServer(h.server, server); err != nil { //nolint:staticcheck // as above
		return fmt.Errorf("cannot set up HTTP/2: %w", err)
	}
	h.server.TLSConfig = encryption                                          // it adds one where there is none
	serve := func(hs *http.Server, c *h2bound.Conn, o http2.ServeConnOpts) { //nolint:staticcheck // as above
		defer func() { _ = c.Close() }()
		netbound.Framed(c, 2*int64(hs.MaxHeaderBytes)) // net/http stops there, and keeps less than twice as much
		nc := net.Conn(c)
		if o.SawClientPreface {
			nc = plain{c}
		}
		o.Context = context.Background()
		if based, ok := o.Handler.(interface{ BaseContext() context.Context }); ok { // as net/http passes it
			o.Context = based.BaseContext()
		}
		o.Context, o.BaseConfig = h2bound.NewContext(o.Context, c), hs
		server.ServeConn(nc, &o) //nolint:staticcheck // as above
	}
	h.server.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, nc *tls.Conn, h http.Handler) {
		serve(hs, bound.Wrap(nc, nc.NetConn()), http2.ServeConnOpts{Handler: h}) //nolint:staticcheck // as above
	}
	h.server.TLSNextProto[cleartext] = func(hs *http.Server, in *tls.Conn, h http.Handler) {
		if held, ok := in.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
			nc := held.UnencryptedNetConn()
			serve(hs, bound.WrapBegun(nc, nc), http2.ServeConnOpts{Handler: h, SawClientPreface: true}) //nolint:staticcheck // as above
		}
	}
	return nil
}

// cleartext is the key with which net/http passes on HTTP/2 connections without TLS, whose
// preface it has read, inside of a tls.Conn that is none.
const cleartext = "unencrypted_http2"

// plain is a connection without TLS. The server refuses what has a TLS state, but none that
// is safe.
type plain struct{ net.Conn }

// NetConn returns the connection below.
func (p plain) NetConn() net.Conn { return p.Conn }
