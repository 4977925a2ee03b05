package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/oneport"
	"github.com/headgate/headgate/internal/transport/overload"
)

// The doors that can be open.
const (
	DoorAPI   = "api"
	DoorGRPC  = "grpc"
	DoorRESP  = "resp"
	DoorAdmin = "admin"
	DoorProxy = "proxy"

	// DoorShared is the port that API, gRPC and the Redis protocol may share.
	DoorShared = config.DoorShared
)

// ListenError says that a door could not be opened.
type ListenError struct {
	// Door is its name, Address where it should have been.
	Door, Address string
	// Other is the setting of another door of this process that has the address,
	// or empty.
	Other string
	Err   error
}

// Error names the door, the address and the reason.
func (e *ListenError) Error() string {
	err := e.Err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without "listen tcp" and the address again
	}
	return fmt.Sprintf("cannot open %s on %s: %v", e.Door, e.Address, err)
}

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

// door is a listener and the server behind it.
type door struct {
	name     string
	listener net.Listener
	bound    *netbound.Listener  // listener too, if this bounds it
	over     *netbound.Listener  // that of the shared port which this is behind, if it is
	watched  *netbound.Watched   // what is below it; nil behind a shared port
	clients  *netbound.PerClient // likewise; nil if clients may have any number
	server   *http.Server        // or
	grpc     *rls.Server         // of the gRPC door, or
	resp     *resp.Server        // of the Redis protocol, or
	port     *oneport.Port       // of several doors
	started  bool                // port serves
	closing  atomic.Bool         // answers ask clients to close their connections
	cut      context.CancelFunc  // ends what is still going on
	done     chan struct{}       // closed when the server has returned
}

// listen opens the listeners of all doors.
func (a *App) listen(ctx context.Context) error {
	c := a.options.Config
	for _, d := range [...]struct{ name, address string }{
		{DoorAPI, c.Listen.API}, {DoorGRPC, c.Listen.GRPC}, {DoorRESP, c.Listen.RESP}, {DoorAdmin, c.Listen.Admin},
	} {
		if !isOpen(d.address) {
			continue
		}
		err := a.open(ctx, d.name, d.address)
		if d.name == DoorAdmin && a.options.AdminMayMove && d.address == config.DefaultAdmin && errors.Is(err, syscall.EADDRINUSE) {
			a.log.Warn("another process has the usual address of the admin door, so it is on a free port", "usual", d.address)
			err = a.open(ctx, d.name, "127.0.0.1:0")
		}
		if err != nil {
			return err
		}
	}
	if isOpen(c.Listen.Shared) {
		if err := a.openShared(ctx); err != nil {
			return err
		}
	}
	if a.proxyOpen() {
		if err := a.open(ctx, DoorProxy, c.Proxy.Listen); err != nil {
			return err
		}
	}
	if a.options.Backend != nil {
		return a.open(ctx, backendDoor, backendAddress)
	}
	return nil
}

func (a *App) open(ctx context.Context, name, address string) error {
	l, err := listenAt(ctx, address)
	if err != nil {
		e := &ListenError{Door: name, Address: address, Err: err}
		if errors.Is(err, syscall.EADDRINUSE) {
			e.Other = a.whoseIs(address)
		}
		return e
	}
	d := &door{name: name, done: make(chan struct{})}
	d.listener = a.wrap(d, l)
	a.add(d)
	return nil
}

// whoseIs returns the setting of the open door that is reached at an address, or
// an empty string.
func (a *App) whoseIs(address string) string {
	wanted, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	for _, d := range a.doors {
		has, ok := d.listener.Addr().(*net.TCPAddr)
		if ok && has.Port == wanted.Port && (has.IP.Equal(wanted.IP) || has.IP.IsUnspecified() || len(wanted.IP) == 0 || wanted.IP.IsUnspecified()) {
			return settingOf(d.name)
		}
	}
	return ""
}

// add notes a door, which is closed in the end.
func (a *App) add(d *door) {
	a.doors = append(a.doors, d)
	a.cleanup = append(a.cleanup, func() {
		_ = d.listener.Close() // a server has closed it already
		if d.port != nil {
			_ = d.port.Close()
		}
		if d.server != nil || d.grpc != nil || d.resp != nil || d.started {
			<-d.done
		}
	})
}

// listenAt listens at host:port or unix:PATH. A socket that a process left
// behind without closing it is in nobody's way.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	network, address := config.SplitAddress(address)
	l, err := lc.Listen(ctx, network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	var dialer net.Dialer
	if c, dialErr := dialer.DialContext(ctx, network, address); dialErr == nil {
		_ = c.Close()
		return nil, err // somebody answers there
	}
	if info, statErr := os.Lstat(address); statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	if removeErr := os.Remove(address); removeErr != nil {
		return nil, removeErr
	}
	return lc.Listen(ctx, network, address)
}

// handler returns what serves a door.
func (a *App) handler(name string) (http.Handler, error) {
	c := a.options.Config
	switch name {
	case DoorAPI:
		return answer.Lingering(a.telemetry.Handler(a.named(a.guarded(a.sheddingAPI(a.api()))), routeOfAPI)), nil
	case DoorAdmin:
		h, err := admin.New(a.adminOptions())
		return answer.Lingering(h), err
	case DoorProxy:
		underscores, _ := proxy.ParseUnderscores(c.Proxy.Underscores)
		a.proxy = proxy.New(proxy.Options{
			Engine: a.engine, Domain: func() string { return a.state.Load().domain }, Upstream: a.upstream(), Clients: a.clients, Tokens: a.tokens(),
			TrustedProxies: c.TrustedProxies, Transport: a.telemetry.Transport(a.transport), Clock: a.options.Clock,
			Logger: a.log, Dialect: c.Headers, TellTime: c.DecisionTime, MaxWaiting: c.Proxy.MaxWaiting, Paths: c.Proxy.Paths,
			StatusPath: c.Queue.StatusPath, BodyTimeout: cmp.Or(a.options.Timeouts.Body, c.Proxy.BodyTimeout),
			ReadTimeout: a.boundsOf(DoorProxy).Read, Abandoned: proxy.Abandoned{
				Time: c.Proxy.Abandoned.Timeout, Bytes: c.Proxy.Abandoned.MaxBytes, Requests: c.Proxy.Abandoned.MaxRequests,
			},
			Underscores: underscores, Strangers: c.Proxy.Strangers, NoVia: c.Proxy.NoVia,
			CORS: proxy.CORS{Origins: c.Proxy.CORS.Origins, PassPreflights: c.Proxy.CORS.PassPreflights},
		})
		return a.telemetry.Handler(a.shedding(overload.Request, a.proxy), routeOfProxy), nil
	case backendDoor:
		return a.options.Backend, nil
	}
	return nil, fmt.Errorf("no such door: %s", name)
}

// upstream returns where the proxy sends requests, as a URL of http or https.
func (a *App) upstream() *url.URL {
	if a.options.Backend != nil {
		return &url.URL{Scheme: "http", Host: a.Addr(backendDoor)}
	}
	u := *a.options.Config.Proxy.Upstream
	switch u.Scheme {
	case "h2c":
		u.Scheme = "http"
	case "unix":
		return &url.URL{Scheme: "http", Host: "localhost"}
	}
	return &u
}

// reach returns how it is reached.
func (a *App) reach() (r proxy.Reach) {
	if u := a.options.Config.Proxy.Upstream; u != nil && a.options.Backend == nil {
		r.Cleartext = u.Scheme == "h2c"
		if u.Scheme == "unix" {
			r.Socket = u.Path
		}
	}
	return r
}

// api returns the HTTP API.
func (a *App) api() *httpapi.Handler {
	return httpapi.New(httpapi.Options{
		Engine: a.engine, Ready: a.readiness, Clock: a.options.Clock,
		Logger: a.log, Clients: a.clients, Dialect: a.options.Config.Headers, RateLimit: a.rateLimit.JSON(),
		ForwardAuth: a.forwardAuth(), Queue: http.HandlerFunc(a.queueStatus), WithoutExplain: !a.options.Config.Explains(),
		Bodies: a.capacity.rooms.api(),
	})
}

// bounds are what callers over HTTP may do.
type bounds struct {
	Timeouts
	header, streams int  // bytes, and requests of a connection of HTTP/2 under way
	cleartext       bool // HTTP/2 also without TLS

	room *membound.Bound // of connections of HTTP/2; nil for any
}

// serve answers at d in the background, encrypted if there is a certificate.
func (d *door) serve(handler http.Handler, b bounds, certificate *tls.Config, log *slog.Logger, failures chan<- error) error {
	base, cut := context.WithCancel(context.Background())
	d.cut = cut
	d.server = &http.Server{
		Handler:           d.parting(handler),
		ReadHeaderTimeout: b.Header,
		ReadTimeout:       b.Read,
		WriteTimeout:      b.Write,
		IdleTimeout:       b.Idle,
		MaxHeaderBytes:    b.header,
		TLSConfig:         certificate,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: b.streams,
			// Peers that are gone without a word, or read nothing.
			SendPingTimeout: time.Minute, PingTimeout: 20 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if d.name == DoorProxy {
		d.server.DisableGeneralOptionsHandler = true // OPTIONS * is a request like others
	}
	if b.cleartext && certificate == nil {
		d.server.Protocols = new(http.Protocols)
		d.server.Protocols.SetHTTP1(true)
		d.server.Protocols.SetUnencryptedHTTP2(true)
	}
	switch {
	case d.bound != nil:
		d.server.ConnState, d.server.ConnContext = d.bound.ConnState, d.bound.ConnContext
	case d.over != nil:
		d.server.ConnState = d.over.Follow
	}
	serve := d.server.Serve
	if certificate != nil {
		if b.room != nil {
			if err := d.boundHTTP2(b.room, log); err != nil {
				return err
			}
		}
		serve = func(l net.Listener) error { return d.server.ServeTLS(l, "", "") }
	}
	go func() {
		defer close(d.done)
		if err := serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
			failures <- fmt.Errorf("%s: %w", d.name, err)
		}
	}()
	return nil
}
