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

// streamCost is what a stream of HTTP/2 takes in net/http whatever it sends, about:
// its goroutine, its header and the buffer of its answer.
const streamCost = 12 << 10

// boundHTTP2 lets what the connections of HTTP/2 keep count in room: a client may
// have hundreds of requests on each whose bodies do not end, or whose answers it
// does not read. It comes before the server is started.
//
// The server is that of x/net, which is the same as the one in net/http but can be
// given a connection that is not of package tls.
func (h *HTTP) boundHTTP2(room *membound.Bound, log *slog.Logger) error {
	bound := h2bound.New(h2bound.Options{Room: room, StreamCost: streamCost, Logger: log})
	h.server.RegisterOnShutdown(bound.Stop)
	h.server.Handler = h2bound.Owing(h.server.Handler)
	server := new(http2.Server)                                     //nolint:staticcheck // deprecated, but there is no other that takes a connection
	if err := http2.ConfigureServer(h.server, server); err != nil { //nolint:staticcheck // as above
		return fmt.Errorf("cannot set up HTTP/2: %w", err)
	}
	h.server.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, nc *tls.Conn, h http.Handler) {
		ctx := context.Background()
		if based, ok := h.(interface{ BaseContext() context.Context }); ok { // as net/http hands it over
			ctx = based.BaseContext()
		}
		c := bound.Wrap(nc, nc.NetConn())
		defer func() { _ = c.Close() }()
		server.ServeConn(c, &http2.ServeConnOpts{Context: h2bound.NewContext(ctx, c), BaseConfig: hs, Handler: h}) //nolint:staticcheck // as above
	}
	return nil
}
