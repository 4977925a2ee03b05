package e2e

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/internal/config"
)

const envoyRules = `
domain: mesh
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
`

func dialGRPC(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func askEnvoy(t *testing.T, c *grpc.ClientConn) *envoy.RateLimitResponse {
	t.Helper()
	return askEnvoyAs(context.Background(), t, c)
}

func askEnvoyAs(ctx context.Context, t *testing.T, c *grpc.ClientConn) *envoy.RateLimitResponse {
	t.Helper()
	r, err := envoy.NewRateLimitServiceClient(c).ShouldRateLimit(ctx, &envoy.RateLimitRequest{
		Domain: "mesh",
		Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEnvoyAsks(t *testing.T) {
	f := run(t, envoyRules, nil, func(c *config.Config) {
		c.Door("grpc").Address, c.Door("admin").Address = "127.0.0.1:0", "127.0.0.1:0"
		c.Envoy = config.Envoy{LegacyHeaders: true, LimitHeader: "RateLimit-Limit"}
	})
	c := dialGRPC(t, f.Addr(doorGRPC))
	for i, want := range []envoy.RateLimitResponse_Code{envoy.RateLimitResponse_OK, envoy.RateLimitResponse_OK, envoy.RateLimitResponse_OVER_LIMIT} {
		r := askEnvoy(t, c)
		if r.GetOverallCode() != want {
			t.Errorf("request %d: %s, want %s", i, r.GetOverallCode(), want)
		}
		legacy := ""
		for _, h := range r.GetResponseHeadersToAdd() {
			if h.GetKey() == "RateLimit-Limit" {
				legacy = h.GetValue()
			}
		}
		if legacy != "2" {
			t.Errorf("request %d: RateLimit-Limit is %q", i, legacy)
		}
	}
	health, err := healthpb.NewHealthClient(c).Check(context.Background(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", health, err)
	}
	_, metrics := f.get(t, f.adminURL("/metrics"))
	for _, want := range []string{
		"\nheadgate_grpc_stream_bytes 0\n", "\nheadgate_grpc_answering_bytes 0\n", "\nheadgate_grpc_refused_total 0\n",
		"\nheadgate_room_bytes{door=\"resp\"} 0\n", "\nheadgate_room_evicted_total{door=\"api\"} 0\n",
		"\nheadgate_grpc_closed_total{reason=\"memory\"} 0\n", "\nheadgate_grpc_closed_total{reason=\"slow\"} 0\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if err := f.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// Reloaded rules keep the counts of the old ones.
func TestEnvoyAsksAfterAReload(t *testing.T) {
	f := run(t, envoyRules, nil, func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	c := dialGRPC(t, f.Addr(doorGRPC))
	askEnvoy(t, c)
	writeFile(t, f.config.Rules[0], "domain: mesh\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if left := askEnvoy(t, c).GetStatuses()[0].GetLimitRemaining(); left != 3 {
		t.Errorf("%d left of 5 after 2, want 3", left)
	}
}

func TestUnixSocketOfEnvoy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "rls.sock")
	// A socket left by a killed process.
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	there := func(c *config.Config) { c.Door("grpc").Address = "unix:" + socket }
	f := run(t, envoyRules, nil, there)
	if r := askEnvoy(t, dialGRPC(t, "unix:"+socket)); r.GetOverallCode() != envoy.RateLimitResponse_OK {
		t.Error(r)
	}
	// But not the socket of a running process.
	if err := newFixture(t, envoyRules, nil, there).Start(context.Background()); err == nil {
		t.Error("took the socket of another process")
	}
	_ = f
}
