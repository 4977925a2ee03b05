package door

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// The bounds on requests over HTTP, by default.
const (
	maxHeaderBytes = 64 << 10
	maxStreams     = 250
)

// HTTPOptions are what doors over HTTP differ in.
type HTTPOptions struct {
	Handler     http.Handler
	Write       time.Duration   // how long an answer may take, by default; 0 means 20 s
	Endless     bool            // requests may last for hours: no time-outs for reading and writing but configured ones
	Cleartext   bool            // has HTTP/2 also without TLS
	PassOptions bool            // gives OPTIONS * to the Handler like other requests
	Room        *membound.Bound // bounds what connections of HTTP/2 keep; nil for no bound
}

// Timeouts returns those of the door p: by what the process was made with, by
// the configuration, by default.
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
	bound   *netbound.Listener // of its connections; nil if nobody bounds them
	idle    time.Duration      // how long connections have to be idle at the end
	closing atomic.Bool        // answers ask clients to close their connections
	cut     context.CancelFunc // ends what is still going on
}

// NewHTTP returns what serves the door p, encrypted if there is a certificate.
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
			// Peers that are gone without a word, or read nothing.
			SendPingTimeout: time.Minute, PingTimeout: 20 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),

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
	if p.TLS != nil && o.Room != nil {
		if err := h.boundHTTP2(o.Room, p.Logger.With("door", p.Name)); err != nil {
			cut()
			return nil, err
		}
	}
	return h, nil
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
// been idle for as long as the configuration says.
func (h *HTTP) Shutdown(ctx context.Context) error {
	h.closing.Store(true)
	if h.bound != nil && h.idle > 0 {
		h.bound.Quiet(ctx, h.idle)
	}
	err := h.server.Shutdown(ctx)
	h.cut() // also ends upgraded connections, which the server has lost sight of
	if err != nil {
		_ = h.server.Close()
	}
	return err
}

//nolint:gochecknoglobals // an immutable header value
var connectionClose = []string{"close"}

// parting asks clients to close their connections once the door is closing: over
// HTTP/2, to open no more streams on them. What becomes another protocol is not
// asked, since its connection is no longer one of HTTP.
func (h *HTTP) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.closing.Load() && len(r.Header["Upgrade"]) == 0 {
			w.Header()["Connection"] = connectionClose
		}
		next.ServeHTTP(w, r)
	})
}

// Timeouts bound how slow callers over HTTP may be, so that those who send a
// letter a minute, or nothing, do not keep connections for ever. Zero values
// mean the defaults: 10 s, 10 s, 20 s (2 minutes at the admin door, for
// profiles) and 2 minutes.
type Timeouts struct {
	// Header is how long the header of a request may take to arrive, Read the
	// whole request, and Write everything from there to the end of the answer.
	// Read and Write are not for the proxy, whose bodies may last for hours.
	Header, Read, Write time.Duration
	Idle                time.Duration // how long a connection may be without a request
	// Body: how long a client of the proxy may be silent in a body; 0 leaves it to the configuration
	Body time.Duration
}
