package rls_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// fixture is a service over TCP with a manual clock.
type fixture struct {
	t          testing.TB
	service    *rls.Service
	server     *grpcserver.Server
	address    string
	connection *grpc.ClientConn
	client     envoy.RateLimitServiceClient
	now        atomic.Int64 // microseconds
}

// start is 21 Nov 2026, 12:00:15 UTC.
const start = 1_795_262_415_000_000

type setup struct {
	rules  string
	mark   func(*rules.Rule) // sets what rule files cannot
	rls    rls.Options
	server grpcserver.Options
	engine []engine.Option
	store  store.Store
}

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	return rs
}

func newService(t testing.TB, s setup) *fixture {
	t.Helper()
	f := &fixture{t: t}
	f.now.Store(start)
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rs := parse(t, s.rules)
	if s.mark != nil {
		for _, r := range rs.Rules() {
			s.mark(r)
		}
	}
	if s.store == nil {
		s.store = memory.New()
	}
	s.rls.Engine = engine.New(s.store, rs, s.engine...)
	s.rls.Clients, s.rls.Logger = clients, slog.New(slog.DiscardHandler)
	if s.rls.Clock == nil {
		s.rls.Clock = func() time.Time { return time.UnixMicro(f.now.Load()) }
	}
	f.service = rls.New(s.rls)
	s.server.Services = append([]grpcserver.Service{{Description: rls.Description(), Server: f.service, Own: true}}, s.server.Services...)
	s.server.HealthNames, s.server.Room = []string{rls.HealthName}, f.service.Answering()
	f.server = grpcserver.New(s.server)
	return f
}

// serve serves at l until the test ends, and returns a connection to it.
func (f *fixture) serve(l net.Listener, options ...grpc.DialOption) *grpc.ClientConn {
	f.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.server.Serve(l) }()
	f.address = l.Addr().String()
	target := f.address
	if l.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	connection, err := grpc.NewClient(target, options...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.connection = connection
	f.client = envoy.NewRateLimitServiceClient(connection)
	f.t.Cleanup(func() {
		_ = connection.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := f.server.Shutdown(ctx); err != nil {
			f.t.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			f.t.Errorf("Serve: %v", err)
		}
	})
	return connection
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func start1(t testing.TB, s setup) *fixture {
	t.Helper()
	f := newService(t, s)
	f.serve(listen(t))
	return f
}

// descriptor returns a descriptor with pairs of key and value.
func descriptor(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func hits(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func refund(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(n, d)
}

func limited(n uint32, unit typev3.RateLimitUnit, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return d
}

func request(descriptors ...*common.RateLimitDescriptor) *envoy.RateLimitRequest {
	return &envoy.RateLimitRequest{Domain: "api", Descriptors: descriptors}
}

func (f *fixture) ask(r *envoy.RateLimitRequest) *envoy.RateLimitResponse {
	f.t.Helper()
	response, err := f.client.ShouldRateLimit(context.Background(), r)
	if err != nil {
		f.t.Fatalf("ShouldRateLimit: %v", err)
	}
	if len(response.GetStatuses()) != len(r.GetDescriptors()) {
		f.t.Fatalf("%d statuses for %d descriptors", len(response.GetStatuses()), len(r.GetDescriptors()))
	}
	return response
}

// headers returns response_headers_to_add by their lower-case names.
func headers(r *envoy.RateLimitResponse) map[string]string {
	all := map[string]string{}
	for _, h := range r.GetResponseHeadersToAdd() {
		all[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	return all
}

const (
	ok   = envoy.RateLimitResponse_OK
	over = envoy.RateLimitResponse_OVER_LIMIT
)

// step is one request of a trace, with the expected overall code and each descriptor's
// code and remaining.
type step struct {
	request   *envoy.RateLimitRequest
	overall   envoy.RateLimitResponse_Code
	codes     []envoy.RateLimitResponse_Code
	remaining []uint32
}

func (f *fixture) trace(steps []step) {
	f.t.Helper()
	for i, s := range steps {
		response := f.ask(s.request)
		if response.GetOverallCode() != s.overall {
			f.t.Errorf("step %d: %s, want %s", i, response.GetOverallCode(), s.overall)
		}
		for j, status := range response.GetStatuses() {
			if status.GetCode() != s.codes[j] || status.GetLimitRemaining() != s.remaining[j] {
				f.t.Errorf("step %d: descriptor %d is %s with %d left, want %s with %d",
					i, j, status.GetCode(), status.GetLimitRemaining(), s.codes[j], s.remaining[j])
			}
		}
	}
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %q, want %q", name, got[name], value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q is too much", name, got[name])
		}
	}
}
