package door

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/internal/transport/h2bound"
	"github.com/headgate/headgate/internal/transport/membound"
)

// streamCost is the approximate memory of an HTTP/2 stream in net/http, whatever it
// sends: its goroutine, its header and its response buffer.
const streamCost = 12 << 10

// boundHTTP2 counts the memory of HTTP/2 connections in room: a client may have
// hundreds of requests on each whose bodies never end or whose responses it does not
// read. It must be called before the server starts.
//
// It uses the server of x/net, which is the same as the one in net/http but accepts
// a connection that is not a tls.Conn.
func (h *HTTP) boundHTTP2(room *membound.Bound, log *slog.Logger) error {
	bound := h2bound.New(h2bound.Options{Room: room, StreamCost: streamCost, Logger: log})
	h.server.RegisterOnShutdown(bound.Stop)
	h.server.Handler = h2bound.Owing(h.server.Handler)
	server := new(http2.Server)                                     //nolint:staticcheck // deprecated, but no other accepts a connection
	if err := http2.ConfigureServer(h.server, server); err != nil { //nolint:staticcheck // as above
		return fmt.Errorf("cannot set up HTTP/2: %w", err)
	}
	h.server.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, nc *tls.Conn, h http.Handler) {
		ctx := context.Background()
		if based, ok := h.(interface{ BaseContext() context.Context }); ok { // as net/http passes it
			ctx = based.BaseContext()
		}
		c := bound.Wrap(nc, nc.NetConn())
		defer func() { _ = c.Close() }()
		server.ServeConn(c, &http2.ServeConnOpts{Context: h2bound.NewContext(ctx, c), BaseConfig: hs, Handler: h}) //nolint:staticcheck // as above
	}
	return nil
}
