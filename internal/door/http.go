package door

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/unread"
)

// The default limits of requests over HTTP.
const (
	maxHeaderBytes = 64 << 10
	maxStreams     = 250
)

// HTTPOptions configure a door over HTTP.
type HTTPOptions struct {
	Handler     http.Handler
	Write       time.Duration   // the default write timeout; 0 means 20 s
	Endless     bool            // requests may last for hours: only configured read and write timeouts apply
	Cleartext   bool            // offers HTTP/2 without TLS as well
	PassOptions bool            // passes OPTIONS * to the Handler
	Room        *membound.Bound // bounds the memory of HTTP/2 connections; nil means no bound
}

// Timeouts returns the timeouts of the door p. Those the process was created with
// come first, then the configuration, then the defaults.
func (o *HTTPOptions) Timeouts(p *Process) Timeouts {
	given, h := &p.Timeouts, &p.Settings.HTTP
	t := Timeouts{
		Header: cmp.Or(given.Header, h.HeaderTimeout, 10*time.Second), Idle: cmp.Or(given.Idle, h.IdleTimeout, 2*time.Minute),
		Read: h.ReadTimeout, Write: h.WriteTimeout,
	}
	if !o.Endless {
		t.Read = cmp.Or(given.Read, h.ReadTimeout, 10*time.Second)
		t.Write = cmp.Or(given.Write, h.WriteTimeout, o.Write, 20*time.Second)
	}
	return t
}

// HTTP serves a door over HTTP.
type HTTP struct {
	server  *http.Server
	bound   *netbound.Listener // limits its connections; nil means no limit
	idle    time.Duration      // how long connections must be idle before shutdown closes them
	closing atomic.Bool        // responses ask clients to close their connections
	cut     context.CancelFunc // ends requests in progress
}

// NewHTTP returns the server of the door p, encrypted if there is a certificate.
func NewHTTP(p *Process, o HTTPOptions) (*HTTP, error) {
	base, cut := context.WithCancel(context.Background())
	h := &HTTP{cut: cut, bound: cmp.Or(p.Bound, p.Over), idle: p.Config.ShutdownIdle}
	t := o.Timeouts(p)
	h.server = &http.Server{
		Handler:           h.parting(o.Handler),
		ReadHeaderTimeout: t.Header,
		ReadTimeout:       t.Read,
		WriteTimeout:      t.Write,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    int(cmp.Or(p.Settings.HTTP.MaxHeader, maxHeaderBytes)),
		TLSConfig:         p.TLS,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: int(cmp.Or(p.Settings.HTTP.MaxStreams, maxStreams)),
			// Against peers that vanished. A slow one gets the ping after all that was sent before.
			SendPingTimeout: time.Minute, PingTimeout: unread.DefaultPause,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(serverLog{p.Logger.Handler()}, slog.LevelDebug),

		DisableGeneralOptionsHandler: o.PassOptions,
	}
	if o.Cleartext && p.TLS == nil {
		h.server.Protocols = new(http.Protocols)
		h.server.Protocols.SetHTTP1(true)
		h.server.Protocols.SetUnencryptedHTTP2(true)
	}
	switch {
	case p.Bound != nil:
		h.server.ConnState, h.server.ConnContext = p.Bound.ConnState, p.Bound.ConnContext
	case p.Over != nil:
		h.server.ConnState = p.Over.Follow
	}
	if p.TLS != nil || o.Cleartext {
		if err := h.boundHTTP2(p, &o); err != nil {
			cut()
			return nil, err
		}
	}
	return h, nil
}

// serverLog logs what net/http has to say: panics of handlers are faults of ours, and the rest is
// about single connections.
type serverLog struct{ slog.Handler }

// Enabled implements [slog.Handler]: Handle decides.
func (serverLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (l serverLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: panic serving ") || strings.HasPrefix(r.Message, "http2: panic serving ") {
		r.Level = slog.LevelError
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// Serve implements [Server].
func (h *HTTP) Serve(l net.Listener) error {
	serve := h.server.Serve
	if h.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return h.server.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown implements [Server]. A connection over HTTP/1 is closed when it has
// been idle for the configured time.
func (h *HTTP) Shutdown(ctx context.Context) error {
	h.closing.Store(true)
	if h.bound != nil {
		if h.idle > 0 {
			h.bound.Quiet(ctx, h.idle)
		}
		h.bound.HangUp()
	}
	err := h.server.Shutdown(ctx)
	h.cut() // also ends upgraded connections, which the server no longer tracks
	if err != nil {
		_ = h.server.Close()
	}
	return err
}

//nolint:gochecknoglobals // an immutable header value
var connectionClose = []string{"close"}

// parting asks clients to close their connections once the door is closing; over
// HTTP/2, to open no more streams. Upgrade requests are left alone, since their
// connection will no longer be HTTP. A connection also ends after a doubtful request.
func (h *HTTP) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.closing.Load() && len(r.Header["Upgrade"]) == 0 || doubtful(r) {
			w.Header()["Connection"] = connectionClose
		}
		next.ServeHTTP(w, r)
	})
}

// doubtful reports whether servers may disagree on where r ends, so that nothing after it
// must be read as a request. net/http hides the reason: it drops a Content-Length along with
// Transfer-Encoding, which the client may have meant, and, with HTTP/1.0, the
// Transfer-Encoding, and would read the body as the next request.
func doubtful(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}

// Timeouts limit how slow callers over HTTP may be, so that a client that sends
// next to nothing does not hold a connection forever. Zero values mean the
// defaults: 10 s, 10 s, 20 s (2 minutes at the admin door, for profiles) and
// 2 minutes.
type Timeouts struct {
	// Header limits the time until the header of a request has arrived, Read until
	// the whole request has, and Write from there to the end of the response.
	// Read and Write do not apply to the proxy, whose bodies may last for hours.
	Header, Read, Write time.Duration
	Idle                time.Duration // how long a connection may have no request
	// Body is how long a client of the proxy may pause within a body; 0 uses the configuration.
	Body time.Duration
}
