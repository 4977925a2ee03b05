package app

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/request/token"
	"github.com/headgate/headgate/internal/transport/netbound"
	"github.com/headgate/headgate/internal/transport/overload"
)

const (
	// ownDescriptors are what the process opens itself: rules, snapshot, queue,
	// certificates, listeners, Redis, a control plane, a collector.
	ownDescriptors = 128
	// toUpstream is the claim of the proxy's connections to its upstream.
	toUpstream = "upstream"
	// wellOff is how many connections a door should have room for; with less the
	// log warns.
	wellOff = 1000
	// sampleEvery is how often it is seen what runs short.
	sampleEvery = 250 * time.Millisecond
)

// capacity is what the process has, and what it does when that is not enough.
type capacity struct {
	limit    int            // of file descriptors; 0 if it is not known
	reserved int            // of those, for the process and the admin door
	parts    map[string]int // of the others, by door
	load     *overload.Manager
	upstream upstreamRoom
	rooms    rooms
	wrong    map[string]*token.Failures // by door
}

// claims are what the doors want of the file descriptors.
func (a *App) claims() (names []string, list []overload.Claim) {
	c := a.options.Config
	claim := func(name string, chosen int64) {
		names = append(names, name)
		list = append(list, overload.Claim{Want: int(cmp.Or(chosen, maxConnections)), Chosen: chosen > 0})
	}
	for _, d := range []struct {
		name   string
		open   bool
		chosen int64
	}{
		{DoorAPI, isOpen(c.Listen.API), c.API.HTTP.MaxConnections},
		{DoorGRPC, isOpen(c.Listen.GRPC), c.GRPC.MaxConnections},
		{DoorRESP, isOpen(c.Listen.RESP), c.RESP.MaxConnections},
		{DoorShared, isOpen(c.Listen.Shared), c.Shared.MaxConnections},
		{DoorProxy, a.proxyOpen(), c.Proxy.HTTP.MaxConnections},
		{toUpstream, a.proxyOpen(), c.Proxy.MaxUpstream},
		{backendDoor, a.options.Backend != nil, 0},
	} {
		if d.open {
			claim(d.name, d.chosen)
		}
	}
	return names, list
}

// divide divides the file descriptors among the doors.
func (a *App) divide() {
	limit, known := a.options.Descriptors, a.options.Descriptors > 0
	if !known {
		limit, known = overload.RaiseLimit()
	}
	names, claims := a.claims()
	a.capacity.parts = map[string]int{}
	a.capacity.wrong = map[string]*token.Failures{}
	for _, door := range []string{DoorAPI, DoorGRPC, DoorAdmin, DoorRESP} {
		a.capacity.wrong[door] = token.NewFailures(a.log.With("door", door), a.options.Clock)
	}
	admin := int(cmp.Or(a.options.Config.Admin.HTTP.MaxConnections, maxAdminConnections))
	if !known {
		a.capacity.parts[DoorAdmin] = admin
		for i, c := range claims {
			a.capacity.parts[names[i]] = c.Want
		}
		return
	}
	admin = min(admin, max(limit/16, 16))
	a.capacity.limit, a.capacity.reserved = limit, ownDescriptors+admin
	a.capacity.parts[DoorAdmin] = admin
	for i, part := range overload.Divide(limit-a.capacity.reserved, claims) {
		a.capacity.parts[names[i]] = part
	}
	a.sayDescriptors(names, claims)
}

// sayDescriptors logs who has how many, and warns if that is few.
func (a *App) sayDescriptors(names []string, claims []overload.Claim) {
	have := &a.capacity
	said := []any{"limit", have.limit, "reserved", have.reserved}
	wanted, poor := have.reserved, false
	for i, c := range claims {
		part := have.parts[names[i]]
		said = append(said, names[i], part)
		wanted += c.Want
		poor = poor || part < c.Want && (c.Chosen || part < wellOff)
	}
	if poor {
		a.log.Warn("the limit of file descriptors is too small, the doors take fewer connections",
			append(said, "wanted", wanted, "hint", "raise it: LimitNOFILE= of systemd, ulimit -Hn of a shell, --ulimit nofile of docker")...)
		return
	}
	a.log.Info("file descriptors", said...)
}

// openOverload begins to see what runs short.
func (a *App) openOverload() {
	resources := a.options.Resources
	if memory := a.options.Config.Overload.Memory; memory > 0 {
		debug.SetMemoryLimit(memory)
	}
	if memory, limited := overload.Heap(); limited {
		resources = append(resources, memory)
	}
	if a.capacity.limit > 0 {
		// More than elevated it never is: a door that is full makes room itself.
		resources = append(resources, overload.Resource{
			Name: "descriptors", At: [3]float64{0.95}, Pressure: a.descriptorPressure(),
		})
	}
	a.capacity.load = overload.New(a.log, resources...)
	a.every(sampleEvery, func() {
		if a.opened.Load() { // else the doors are not all there yet
			a.capacity.load.Sample()
		}
	})
}

// descriptorPressure returns what tells how many of the descriptors for
// connections are in use; all, while some could not be accepted.
func (a *App) descriptorPressure() func() float64 {
	var failedBefore atomic.Int64
	total := a.capacity.limit - a.capacity.reserved
	return func() float64 {
		used, failed := int64(0), int64(0)
		for _, d := range a.doors {
			if d.watched != nil {
				failed += d.watched.Failed()
			}
			switch {
			case d.name == DoorAdmin:
			case d.bound != nil:
				used += d.bound.Stats().Open
			case d.resp != nil && d.watched != nil: // not behind the shared port
				used += d.resp.Stats().Connections
			}
		}
		used += a.capacity.upstream.open.Load()
		if failedBefore.Swap(failed) != failed {
			return 1
		}
		return float64(used) / float64(max(total, 1))
	}
}

// sheds reports whether some load is to be refused now.
func (a *App) sheds(l overload.Load) bool {
	return a.capacity.load != nil && a.capacity.load.Sheds(l)
}

// shedding refuses what h serves while the process has too much to do.
func (a *App) shedding(l overload.Load, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.sheds(l) {
			defer answer.Unwanted(w, r, r.Body)()
			w.Header().Set("Retry-After", "1")
			answer.Problem(w, http.StatusServiceUnavailable, "overloaded: this process is short of memory or file descriptors")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// sheddingAPI does so for the API, where probes are always answered, and what ends
// something.
func (a *App) sheddingAPI(h http.Handler) http.Handler {
	extra, request := a.shedding(overload.Extra, h), a.shedding(overload.Request, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/healthcheck", "/v1/release", "/v1/renew", "/v1/commit", "/v1/cancel":
			h.ServeHTTP(w, r)
		case "/v1/explain":
			extra.ServeHTTP(w, r)
		default:
			request.ServeHTTP(w, r)
		}
	})
}

// upstreamRoom bounds the connections to the upstream.
type upstreamRoom struct{ open, refused atomic.Int64 }

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// bounded returns dial for at most that many connections at once.
func (u *upstreamRoom) bounded(most int, call dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if u.open.Add(1) > int64(most) {
			u.open.Add(-1)
			u.refused.Add(1)
			return nil, proxy.ErrUpstreamFull
		}
		nc, err := call(ctx, network, address)
		if err != nil {
			u.open.Add(-1)
			return nil, err
		}
		return &upstreamConn{Conn: nc, leave: sync.OnceFunc(func() { u.open.Add(-1) })}, nil
	}
}

type upstreamConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *upstreamConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the connection below.
func (c *upstreamConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side, as a tunnel does whose other end has.
func (c *upstreamConn) CloseWrite() error { return netbound.CloseWrite(c.Conn) }

// overloadMetrics tells what runs short, and what was shed.
func (a *App) overloadMetrics(c *metrics.Asked) {
	level := c.Gauge("headgate_overload_level", "What is shed: 0 nothing, 1 extras, 2 new connections too, 3 requests too.")
	pressure := c.Gauge("headgate_overload_pressure", "How much of a resource is in use; 1 is all.", "resource")
	shed := c.Counter("headgate_overload_shed_total", "What was refused to stay alive.", "load")
	limit := c.Gauge("headgate_connections_max", "How many connections a door has room for.", "door")
	wrong := c.Counter("headgate_auth_failures_total", "Wrong tokens and passwords.", "door")
	failed := c.Counter("headgate_accept_errors_total", "Connections that could not be accepted, for want of file descriptors or so.", "door")
	c.Ask(func(out chan<- prometheus.Metric) {
		if m := a.capacity.load; m != nil {
			level(out, float64(m.Level()))
			m.Pressures(func(name string, p float64) { pressure(out, p, name) })
			for l := range overload.Loads {
				shed(out, float64(m.Shed(overload.Load(l))), overload.Load(l).String())
			}
		}
		for door, f := range a.capacity.wrong {
			wrong(out, float64(f.Total()), door)
		}
		for name, part := range a.capacity.parts {
			limit(out, float64(part), name)
		}
		for _, d := range a.doors {
			if d.watched != nil {
				failed(out, float64(d.watched.Failed()), d.name)
			}
		}
	})
}
