package rls_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/transport/certs"
)

func TestHealth(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	health := healthpb.NewHealthClient(connection)
	check := func(service string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != want {
			t.Errorf("%q: %v, %v; want %s", service, r, err, want)
		}
	}
	for _, service := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		check(service, healthpb.HealthCheckResponse_SERVING)
	}
	f.server.SetServing(false)
	check("ratelimit", healthpb.HealthCheckResponse_NOT_SERVING)
	f.server.SetServing(true)
	check("ratelimit", healthpb.HealthCheckResponse_SERVING)
	if _, err := health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: "other"}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
}

// grpcurl needs reflection.
func TestReflection(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	stream, err := reflectionpb.NewServerReflectionClient(connection).ServerReflectionInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []*reflectionpb.ServerReflectionRequest{
		{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}},
		{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"}},
	} {
		if err := stream.Send(ask); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil || r.GetErrorResponse() != nil || !strings.Contains(r.String(), "envoy.") {
			t.Errorf("%v: %v, %v", ask, r, err)
		}
	}
	_ = stream.CloseSend()
	old, err := reflectionalpha.NewServerReflectionClient(connection).ServerReflectionInfo(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	//nolint:staticcheck // older tools use it
	if err := old.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if r, err := old.Recv(); err != nil || !strings.Contains(r.String(), "envoy.") {
		t.Errorf("v1alpha: %v, %v", r, err)
	}
	_ = old.CloseSend()
}

func TestUnixSocket(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", filepath.Join(t.TempDir(), "rls.sock"))
	if err != nil {
		t.Fatal(err)
	}
	f := newService(t, setup{rules: threeLimits})
	f.serve(l)
	f.trace([]step{{request(descriptor("user", "ann")), ok, codesOf{ok}, left{2}}})
}

func TestLargeRequestsAreRefused(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, server: grpcserver.Options{MaxMessage: 4096}})
	_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("user", strings.Repeat("x", 5000))))
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want ResourceExhausted", err)
	}
	f.trace([]step{{request(descriptor("user", strings.Repeat("x", 3000))), ok, codesOf{ok}, left{2}}})
}

// Old connections are closed so that load is rebalanced, and no call fails.
func TestConnectionsAge(t *testing.T) {
	accepted := make(chan struct{}, 64)
	f := newService(t, setup{rules: threeLimits, server: grpcserver.Options{MaxConnectionAge: 20 * time.Millisecond}})
	f.serve(&counting{listen(t), accepted})
	for range 3 {
		// The channel reconnects when it has something to send.
		for again := false; !again; {
			f.ask(request(descriptor("none", "x")))
			select {
			case <-accepted:
				again = true
			default:
			}
		}
	}
}

type counting struct {
	net.Listener
	accepted chan<- struct{}
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	select {
	case l.accepted <- struct{}{}:
	default:
	}
	return c, err
}

func TestShutdownCutsOffWhatDoesNotEnd(t *testing.T) {
	f := newService(t, setup{rules: threeLimits})
	connection := f.serve(listen(t))
	watch, err := healthpb.NewHealthClient(connection).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(ctx) }()
	// Health watchers are notified first.
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", r, err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("Shutdown says that nothing was cut off")
	}
}

func TestTLS(t *testing.T) {
	a, other := certtest.New(t), certtest.New(t)
	cert, key := a.Issue("server", 2)
	a.Issue("envoy", 3, "envoy.internal")
	plain := certs.Files{Cert: cert, Key: key}
	mutual := certs.Files{Cert: cert, Key: key, ClientCA: a.CA(), ClientNames: []string{"gateway.internal", "envoy.internal"}}
	for _, row := range []struct {
		name   string
		files  certs.Files
		client *tls.Config
		ok     bool
	}{
		{"server only", plain, a.Client(""), true},
		{"server of another authority", plain, other.Client(""), false},
		{"mutual", mutual, a.Client("envoy"), true},
		{"mutual, without a certificate", mutual, a.Client(""), false},
		{"mutual, with another name", mutual, a.Client("server"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			server, err := certs.Load(row.files, certs.Options{Protocols: []string{"h2"}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			f := newService(t, setup{rules: threeLimits, server: grpcserver.Options{TLS: server.Config()}})
			f.serve(listen(t), grpc.WithTransportCredentials(credentials.NewTLS(row.client)))
			_, err = f.client.ShouldRateLimit(context.Background(), request(descriptor("user", "ann")))
			if (err == nil) != row.ok || err != nil && grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("%v, want ok: %t", err, row.ok)
			}
		})
	}
}

// Many callers share one connection.
func TestConcurrentRequests(t *testing.T) {
	f := start1(t, setup{rules: "domain: api\nlimits: [{name: all, rate: 500/day, algorithm: fixed_window}]"})
	const callers, each = 16, 50
	allowed := make(chan int, callers)
	for range callers {
		go func() {
			n := 0
			for range each {
				r, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("a", "b"), descriptor()))
				if err == nil && r.GetOverallCode() == envoy.RateLimitResponse_OK {
					n++
				}
			}
			allowed <- n
		}()
	}
	total := 0
	for range callers {
		total += <-allowed
	}
	if total != 250 { // two descriptors each
		t.Errorf("%d requests passed, want 250", total)
	}
}
