package rls_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/door/rls"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// gate is a store that answers one call for each value from open, and records the most
// concurrent calls.
type gate struct {
	store.Store
	open        chan struct{}
	asked, most atomic.Int64
}

func newGate() *gate { return &gate{Store: memory.New(), open: make(chan struct{})} }

func (g *gate) wait() {
	n := g.asked.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
	<-g.open
	g.asked.Add(-1)
}

func (g *gate) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		g.wait()
		return store.ExecuteAll(ctx, g.Store, ops, out, mode)
	})
}

// many is a request of n descriptors, which take far more memory than their encoding.
func many(n int) *envoy.RateLimitRequest {
	r := request()
	for range n {
		r.Descriptors = append(r.Descriptors, descriptor("user", "ann"))
	}
	return r
}

// lists is a service with large requests.
type lists struct{ gate *gate }

func (l lists) description() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "test.Lists", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Ask",
		Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := read(&heavy{}); err != nil {
				return nil, err
			}
			l.gate.wait()
			return &emptypb.Empty{}, nil
		},
	}}}
}

// heavy is a message that takes 40 KiB.
type heavy struct{}

func (*heavy) Weigh([]byte, int) int64 { return 40 << 10 }
func (*heavy) ReadWire([]byte)         {}

// Large requests are decoded and answered only as memory allows, and all are answered.
func TestLargeRequestsAreAnsweredInTurns(t *testing.T) {
	const calls = 20
	for name, ask := range map[string]func(*fixture) error{
		"descriptors": func(f *fixture) error {
			_, err := f.client.ShouldRateLimit(context.Background(), many(20))
			return err
		},
		"another service": func(f *fixture) error {
			return f.connection.Invoke(context.Background(), "/test.Lists/Ask", &emptypb.Empty{}, &emptypb.Empty{})
		},
		"json": func(f *fixture) error {
			body, err := protojson.Marshal(many(20))
			if err != nil {
				return err
			}
			w := httptest.NewRecorder()
			f.service.JSON(nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(string(body))))
			if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
				return grpcstatus.Error(codes.Unknown, w.Body.String())
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			other := lists{g}
			f := start1(t, setup{
				rules: threeLimits, store: g, rls: rls.Options{MaxAnswering: 100 << 10},
				server: grpcserver.Options{Services: []grpcserver.Service{{Description: other.description(), Server: other}}},
			})
			done := make(chan error, calls)
			for range calls {
				go func() { done <- ask(f) }()
			}
			for range calls {
				g.open <- struct{}{} // if requests were not held back, all would be in the store by now
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if n := g.most.Load(); n > 2 {
				t.Errorf("%d were answered at once, want 2 at most", n)
			}
			if r := f.service.Answering(); r.Held() != 0 || r.Refused() != 0 {
				t.Errorf("%d bytes are held, %d refused", r.Held(), r.Refused())
			}
		})
	}
}

// An unread answer does not keep its request in memory.
func TestUnreadAnswersLetGoOfTheirRequests(t *testing.T) {
	f := start1(t, setup{rules: threeLimits, rls: rls.Options{MaxAnswering: 100 << 10}})
	r := f.rude(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for range 10 {
		if !r.asks(rateLimit, many(20)) {
			t.Fatal("not sent")
		}
	}
	// The client reads no answers, yet more are decided than fit in memory at once.
	if _, err := f.client.ShouldRateLimit(context.Background(), many(20)); err != nil {
		t.Fatal(err)
	}
	for f.service.Answering().Held() != 0 {
		f.ask(request(descriptor("none", "x")))
	}
}

// A caller that leaves while its request waits takes no memory.
func TestWaitingRequestsEndWithTheirCaller(t *testing.T) {
	g := newGate()
	f := start1(t, setup{rules: threeLimits, store: g, rls: rls.Options{MaxAnswering: 50 << 10}})
	first := make(chan error, 1)
	go func() {
		_, err := f.client.ShouldRateLimit(context.Background(), many(20))
		first <- err
	}()
	for g.asked.Load() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("nobody asks the store")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan error, 1)
	go func() {
		_, err := f.client.ShouldRateLimit(ctx, many(20))
		second <- err
	}()
	cancel()
	if err := <-second; grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	g.open <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	close(g.open)
	if _, err := f.client.ShouldRateLimit(context.Background(), many(20)); err != nil {
		t.Error(err)
	}
}
