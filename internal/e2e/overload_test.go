package e2e

import (
	"context"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/transport/overload"
)

// pressed is an App with all doors and a resource whose pressure the test sets.
type pressed struct {
	*fixture
	t        *testing.T
	pressure atomic.Uint64
}

func newPressed(t *testing.T) *pressed {
	t.Helper()
	f := newFixture(t, loginRules, hello, func(c *config.Config) {
		c.Door("admin").Address, c.Door("grpc").Address, c.Door("resp").Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	})
	p := &pressed{fixture: f, t: t}
	var err error
	f.App, err = app.New(app.Options{
		Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollInterval: time.Hour,
		Resources: []overload.Resource{{
			Name: "memory", At: [3]float64{0.80, 0.90, 0.95},
			Pressure: func() float64 { return math.Float64frombits(p.pressure.Load()) },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return p
}

// press sets the pressure and waits for a level.
func (p *pressed) press(to float64, level string) {
	p.t.Helper()
	p.pressure.Store(math.Float64bits(to))
	p.eventually("headgate_overload_level " + level + "\n")
}

// eventually waits until the metrics have a line.
func (p *pressed) eventually(line string) {
	p.t.Helper()
	tick, deadline := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for {
		_, text := p.get(p.t, p.adminURL("/metrics"))
		if strings.Contains(text, line) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.t.Fatalf("no %q in\n%s", line, text)
		}
	}
}

// ask returns the result of a request at each door, over existing connections.
func (p *pressed) ask(calls *grpc.ClientConn, redis func(string) string) map[string]string {
	p.t.Helper()
	got := map[string]string{}
	for name, url := range map[string]string{
		"api health": p.apiURL("/healthz"), "proxy": p.proxyURL("/other"), "forward-auth": p.apiURL("/v1/auth"),
		"admin health": p.adminURL("/healthz"), "admin rules": p.adminURL("/v1/rules"), "live": p.adminURL("/v1/live?x=1"), "renew": p.apiURL("/v1/renew"), // GET is not allowed
	} {
		res, _ := p.get(p.t, url, "X-Forwarded-Uri", "/") // otherwise forward-auth takes it for an image
		got[name] = http.StatusText(res.StatusCode)
		if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "1" {
			p.t.Errorf("%s: no Retry-After", name)
		}
	}
	_, err := pb.NewRateLimitServiceClient(calls).ShouldRateLimit(p.t.Context(), &pb.RateLimitRequest{})
	got["grpc"] = status.Code(err).String()
	_, err = healthpb.NewHealthClient(calls).Check(p.t.Context(), &healthpb.HealthCheckRequest{})
	got["grpc health"] = status.Code(err).String()
	_, err = headgatev1.NewLimiterClient(calls).Renew(p.t.Context(), &headgatev1.RenewRequest{Lease: "x"})
	got["grpc renew"] = status.Code(err).String()
	_, err = headgatev1.NewLimiterClient(calls).Reserve(p.t.Context(), &headgatev1.ReserveRequest{})
	got["grpc reserve"] = status.Code(err).String()
	got["redis"], got["redis ping"] = redis("CL.THROTTLE k 1 1 1\r\n"), redis("PING\r\n")
	return got
}

// The least important load is shed first; health, rules and reload are always answered.
func TestOverloadShedsTheLeastImportantFirst(t *testing.T) {
	p := newPressed(t)
	calls, err := grpc.NewClient(p.Addr(doorGRPC), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = calls.Close() }()
	nc := p.dial(t, doorRESP)
	redis := func(command string) string {
		if _, err := nc.Write([]byte(command)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 512)
		n, err := nc.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		word, _, _ := strings.Cut(strings.TrimRight(string(answer[:n]), "\r\n"), " ")
		word, _, _ = strings.Cut(word, "\r")
		return word
	}
	const ok, no = "OK", "Service Unavailable"
	calm := map[string]string{
		"api health": ok, "proxy": ok, "forward-auth": ok, "admin health": ok, "admin rules": ok, "live": "Bad Request",
		"grpc": codes.InvalidArgument.String(), "grpc health": codes.OK.String(), "redis": "*5", "redis ping": "+PONG",
		"renew": "Method Not Allowed", "grpc renew": codes.NotFound.String(), "grpc reserve": codes.InvalidArgument.String(),
	}
	with := func(changes ...string) map[string]string {
		m := map[string]string{}
		maps.Copy(m, calm)
		for i := 0; i < len(changes); i += 2 {
			m[changes[i]] = changes[i+1]
		}
		return m
	}
	for _, row := range []struct {
		pressure float64
		level    string
		want     map[string]string
	}{
		{0.5, "0", calm},
		{0.85, "1", with("live", no)},
		{0.92, "2", with("live", no)},
		{0.97, "3", with("live", no, "proxy", no, "forward-auth", no, "grpc", codes.Unavailable.String(), "grpc reserve", codes.Unavailable.String(), "redis", "-BUSY")},
		{0.1, "0", calm},
	} {
		p.press(row.pressure, row.level)
		got := p.ask(calls, redis)
		for name, want := range row.want {
			if got[name] != want {
				t.Errorf("at %.2f: %s: %s, want %s", row.pressure, name, got[name], want)
			}
		}
		for _, door := range []string{doorAPI, doorProxy, doorAdmin} {
			if !newcomer(t.Context(), p.Addr(door)) {
				t.Errorf("at %.2f: no newcomer at %s", row.pressure, door)
			}
		}
		if err := p.Reload(); err != nil {
			t.Errorf("at %.2f: %v", row.pressure, err)
		}
	}
	if n := strings.Count(p.journal.text.String(), "overload: shedding load"); n != 3 {
		t.Errorf("said %d times", n)
	}
	p.eventually(`headgate_overload_shed_total{load="request"}`)
}

// Probes open a connection each. They are answered however little memory is left, even
// while many connections are silent, whose number does not grow.
func TestProbesAreAnsweredWhileOverloaded(t *testing.T) {
	p := newPressed(t)
	doors := []string{doorAPI, doorGRPC, doorRESP}
	for _, door := range doors {
		for range 50 {
			p.dial(t, door)
		}
	}
	for _, row := range []struct {
		pressure float64
		level    string
	}{{0.92, "2"}, {0.97, "3"}} {
		p.press(row.pressure, row.level)
		for range 20 {
			for _, path := range []string{"/healthz", "/readyz", "/healthcheck"} {
				if !newcomerAt(t.Context(), p.apiURL(path)) {
					t.Fatalf("level %s: %s does not answer", row.level, path)
				}
			}
			calls, err := grpc.NewClient(p.Addr(doorGRPC), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := healthpb.NewHealthClient(calls).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				t.Fatalf("level %s: grpc: %v", row.level, err)
			}
			_ = calls.Close()
			nc := p.dial(t, doorRESP)
			if _, err := nc.Write([]byte("PING\r\n")); err != nil {
				t.Fatal(err)
			}
			pong := make([]byte, 7)
			if _, err := io.ReadFull(nc, pong); err != nil || string(pong) != "+PONG\r\n" {
				t.Fatalf("level %s: redis: %q, %v", row.level, pong, err)
			}
		}
	}
	p.eventually(`headgate_overload_shed_total{load="connection"}`)
}

// newcomer reports whether a new connection is served.
func newcomer(ctx context.Context, address string) bool {
	return newcomerAt(ctx, "http://"+address+"/healthz")
}

// newcomerAt reports whether a new connection that requests a URL is served.
func newcomerAt(ctx context.Context, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return true
}

// With few file descriptors every door gets few connections, and the log says so.
func TestFewDescriptors(t *testing.T) {
	for _, row := range []struct {
		limit  int
		api    int64
		warns  int
		metric string
	}{
		{1_000_000, 0, 0, `headgate_connections_max{door="api"} 10000`},
		{1_000_000, 20_000, 0, `headgate_connections_max{door="api"} 20000`},
		{5000, 0, 0, `headgate_connections_max{door="api"} 1520`},
		{5000, 100, 0, `headgate_connections_max{door="upstream"} 2230`},
		{5000, 4900, 1, `headgate_connections_max{door="api"} 4544`},
		{700, 0, 1, `headgate_connections_max{door="api"} 176`},
	} {
		f := newFixture(t, loginRules, hello, func(c *config.Config) {
			c.Door("admin").Address, c.Door("api").HTTP.MaxConnections = "127.0.0.1:0", row.api
		})
		var err error
		f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollInterval: time.Hour, Descriptors: row.limit})
		if err != nil {
			t.Fatal(err)
		}
		f.start(t)
		if n := strings.Count(f.journal.text.String(), "file descriptor limit is too low"); n != row.warns {
			t.Errorf("%d: warned %d times", row.limit, n)
		}
		if _, text := f.get(t, f.adminURL("/metrics")); !strings.Contains(text, row.metric+"\n") {
			t.Errorf("%d: no %s in\n%s", row.limit, row.metric, text)
		}
		_ = f.Stop(t.Context())
	}
}

// If its default address is taken and was not configured, the admin door uses another
// port.
func TestAdminDoorMoves(t *testing.T) {
	if l, err := net.Listen("tcp", admin.DefaultAddress); err == nil {
		defer func() { _ = l.Close() }() // otherwise another process has it
	}
	f := newFixture(t, loginRules, nil, func(c *config.Config) { c.Door("admin").Address = admin.DefaultAddress })
	if err := f.Start(t.Context()); err == nil {
		t.Fatal("the address was free")
	}
	var err error
	f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollInterval: time.Hour, AdminMayMove: true})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	if res, _ := f.get(t, f.adminURL("/metrics")); res.StatusCode != http.StatusOK || f.Addr(doorAdmin) == admin.DefaultAddress {
		t.Errorf("%d at %s", res.StatusCode, f.Addr(doorAdmin))
	}
	f.journal.await(t, "default admin address is in use")
}
