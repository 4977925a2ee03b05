package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/xds"
)

// controlPlane serves snapshots at address, or at a free one if that is empty.
func controlPlane(t *testing.T, address string) (at string, set func(version string, c ...types.Resource), stop func()) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, snapshots, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop()
		cancel()
		<-done
	})
	t.Cleanup(stop)
	set = func(version string, c ...types.Resource) {
		t.Helper()
		snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: c})
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshots.SetSnapshot(context.Background(), "n1", snapshot); err != nil {
			t.Fatal(err)
		}
	}
	return l.Addr().String(), set, stop
}

// loginLimit is a resource with a limit for logins.
func loginLimit(limit uint32, unit conf.RateLimitUnit) types.Resource {
	return &conf.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*conf.RateLimitDescriptor{{
		Key: "path", Value: "/login", RateLimit: &conf.RateLimitPolicy{Unit: unit, RequestsPerUnit: limit},
	}}}
}

// followingPlane runs a process that uses a control plane.
func followingPlane(t *testing.T, address string, guard config.Guard) *fixture {
	t.Helper()
	f := newFixture(t, loginRules, nil, withAdmin, func(c *config.Config) {
		c.RulesFrom, c.Rules, c.Door("grpc").Address, c.Door("admin").Address = config.FromXDS, nil, "127.0.0.1:0", "127.0.0.1:0"
		c.XDS = config.XDS{Address: address, NodeID: "n1"}
		c.Reload.Guard = guard
	})
	var err error
	f.App, err = app.New(app.Options{
		Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now,
		Backoff: xds.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return f
}

func TestRulesFromAControlPlane(t *testing.T) {
	address, set, stop := controlPlane(t, "127.0.0.1:0")
	f := followingPlane(t, address, config.GuardWarn)
	serving := healthOf(t, f.Addr(doorGRPC))

	// There are no rules yet, so the process must not get requests.
	if res, body := f.get(t, f.apiURL("/readyz")); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "waiting") {
		t.Errorf("before: %d %q", res.StatusCode, body)
	}
	if serving() {
		t.Error("healthy over gRPC before there are rules")
	}
	if err := f.Reload(); err != nil {
		t.Errorf("SIGHUP: %v, want that it does nothing", err)
	}

	left := func() string {
		t.Helper()
		res, err := f.client.Post(f.apiURL("/v1/check"), "application/json",
			strings.NewReader(`{"domain":"shop","attributes":{"path":"/login"}}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = read(t, res)
		return res.Header.Get("X-RateLimit-Remaining") + "/" + res.Header.Get("X-RateLimit-Limit")
	}
	set("1", loginLimit(5, conf.RateLimitUnit_HOUR))
	f.journal.await(t, "rules reloaded")
	if got := left(); got != "4/5" {
		t.Errorf("first snapshot: %s, want 4/5", got)
	}
	f.await(t, func() bool {
		res, _ := f.get(t, f.apiURL("/readyz"))
		return res.StatusCode == http.StatusOK && serving()
	})

	set("2", loginLimit(10, conf.RateLimitUnit_HOUR))
	f.journal.await(t, "rules reloaded")
	if got := left(); got != "8/10" {
		t.Errorf("update: %s, want 8/10", got)
	}

	set("3", loginLimit(99, conf.RateLimitUnit_UNKNOWN))
	f.journal.await(t, "rules from the control plane refused")
	if got := left(); got != "7/10" {
		t.Errorf("bad update: %s, want 7/10", got)
	}
	if res, body := f.get(t, f.apiURL("/readyz?verbose")); res.StatusCode != http.StatusOK || !strings.Contains(body, "xds:shop:") {
		t.Errorf("bad update: %d %s", res.StatusCode, body)
	}
	if succeeded, failed := f.reloads(t); succeeded != 2 || failed != 1 || f.metric(t, "headgate_reload_last_successful") != "0" {
		t.Errorf("bad update: %d succeeded, %d failed", succeeded, failed)
	}

	stop() // the rules stay active
	f.journal.await(t, "no connection to the control plane")
	if got := left(); got != "6/10" {
		t.Errorf("control plane gone: %s, want 6/10", got)
	}
	_, set, _ = controlPlane(t, address)
	set("1", loginLimit(20, conf.RateLimitUnit_HOUR))
	f.journal.await(t, "rules reloaded")
	if got := left(); got != "15/20" {
		t.Errorf("control plane back: %s, want 15/20", got)
	}

	set("2") // like after a restart, with nothing in its cache yet
	f.journal.await(t, "rules from the control plane refused")
	if got := left(); got != "14/20" {
		t.Errorf("all removed: %s, want 14/20", got)
	}
	set("3", &conf.RateLimitConfig{Name: "shop", Domain: "shop"})
	f.journal.await(t, "no rules: all requests are allowed")
	if got := left(); got != "/" {
		t.Errorf("a resource without descriptors: %s, want no limit", got)
	}
}

// Once an operator has accepted rules of a control plane, the previous rules are a
// change if it sends them again.
func TestAcceptedRulesOfAControlPlane(t *testing.T) {
	address, set, _ := controlPlane(t, "127.0.0.1:0")
	f := followingPlane(t, address, config.GuardRefuse)
	other := &conf.RateLimitConfig{Name: "other", Domain: "other", Descriptors: []*conf.RateLimitDescriptor{{
		Key: "user", RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_DAY, RequestsPerUnit: 1},
	}}}
	both := []types.Resource{loginLimit(5, conf.RateLimitUnit_HOUR), other}
	set("1", both...)
	f.journal.await(t, "rules reloaded")
	set("2", both[0])
	f.journal.await(t, "rules from the control plane refused")
	f.expectRules(t, 2)
	f.change(t, "accept", http.StatusOK)
	f.journal.await(t, "rules reloaded")
	f.expectRules(t, 1)
	set("3", both...)
	f.journal.await(t, "rules reloaded")
	f.expectRules(t, 2)
}

// healthOf returns a function that calls the health service of a gRPC door.
func healthOf(t *testing.T, address string) func() bool {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() bool {
		t.Helper()
		res, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetStatus() == healthpb.HealthCheckResponse_SERVING
	}
}

func TestWrongTLSFilesOfTheControlPlane(t *testing.T) {
	f := newFixture(t, loginRules, nil)
	f.config.RulesFrom, f.config.Rules = config.FromXDS, nil
	f.config.XDS = config.XDS{Address: "127.0.0.1:1", TLS: true, CA: "nowhere.pem"}
	_, err := app.New(app.Options{Config: f.config, Logger: f.journal.logger()})
	if err == nil || !strings.Contains(err.Error(), "xds: ca: nowhere.pem: no such file") {
		t.Errorf("%v", err)
	}
}
