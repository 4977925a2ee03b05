package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const method = "/grpc.health.v1.Health/Check"

// clock is a manual clock.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMicro(1_800_000_000_000_000 + c.at.Load()) }

func (c *clock) add(d time.Duration) { c.at.Add(d.Microseconds()) }

func newLimiter(options ...headgate.Option) (*headgate.Limiter, *clock) {
	c := &clock{}
	return headgate.New(memory.New(), append(options, headgate.WithClock(c.now))...), c
}

// dial runs a real server in memory and connects to it.
func dial(t testing.TB, server []grpc.ServerOption, client ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer(server...)
	healthpb.RegisterHealthServer(s, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	connection, err := grpc.NewClient("passthrough:///memory", append(client,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return healthpb.NewHealthClient(connection)
}

func check(c healthpb.HealthClient, pairs ...string) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), pairs...)
	_, err := c.Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func TestUnaryServer(t *testing.T) {
	limiter, now := newLimiter()
	c := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(
		grpclimit.UnaryServer(limiter, headgate.PerMinute(2), grpclimit.ByMetadata("X-Api-Key"), grpclimit.Name("per-key")),
	)})
	rows := []struct {
		after time.Duration
		key   string
		retry time.Duration // 0: it passes
	}{
		{0, "ann", 0},
		{0, "ann", 0},
		{10 * time.Second, "ann", 20 * time.Second},
		{0, "bob", 0},
		{19999999 * time.Microsecond, "ann", time.Microsecond},
		{time.Microsecond, "ann", 0},
		{0, "", 0},
		{0, "", 0},
		{0, "", 30 * time.Second}, // no identity
	}
	for i, row := range rows {
		now.add(row.after)
		var pairs []string
		if row.key != "" {
			pairs = []string{"x-api-key", row.key}
		}
		err := check(c, pairs...)
		retry, refused := grpclimit.RetryAfter(err)
		if refused != (row.retry > 0) || retry != row.retry || refused && status.Code(err) != codes.ResourceExhausted {
			t.Errorf("row %d: %v, retry after %s; want %s", i, err, retry, row.retry)
		}
	}
	quota := details[*errdetails.QuotaFailure](t, check(c))
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "limit:per-key" {
		t.Errorf("%v", quota)
	}
}

// details returns the detail of type T of an error.
func details[T any](t *testing.T, err error) T {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok {
			return d
		}
	}
	t.Fatalf("%v has no such detail", err)
	panic("unreachable")
}

func TestStreamServer(t *testing.T) {
	limiter, _ := newLimiter()
	c := dial(t, []grpc.ServerOption{grpc.StreamInterceptor(grpclimit.StreamServer(limiter, headgate.PerMinute(1)))})
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("stream %d: %v, want %s", i, err, want)
		}
		cancel()
	}
}

func TestClients(t *testing.T) {
	limiter, _ := newLimiter()
	perMinute := headgate.PerMinute(1)
	c := dial(t, nil,
		grpc.WithUnaryInterceptor(grpclimit.UnaryClient(limiter, perMinute, grpclimit.ByMetadata("to"))),
		grpc.WithStreamInterceptor(grpclimit.StreamClient(limiter, perMinute, grpclimit.Name("streams"))))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if err := check(c, "to", "ann"); status.Code(err) != want {
			t.Errorf("call %d: %v, want %s", i, err, want)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := c.Watch(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("stream %d: %v, want %s", i, err, want)
		}
		cancel()
	}
	if err := check(c, "to", "bob"); err != nil {
		t.Error(err)
	}
}

// call calls an interceptor directly, without a network.
func call(ctx context.Context, i grpc.UnaryServerInterceptor, name string) error {
	_, err := i(ctx, &healthpb.HealthCheckRequest{Service: name}, &grpc.UnaryServerInfo{FullMethod: method},
		func(context.Context, any) (any, error) { return nil, nil })
	return err
}

func TestSeveralLimitsAreChargedAllOrNone(t *testing.T) {
	limiter, _ := newLimiter()
	i := grpclimit.UnaryServer(limiter, headgate.PerMinute(3), grpclimit.All(), grpclimit.Name("all"),
		grpclimit.Also(headgate.PerHour(2), grpclimit.By(func(c *grpclimit.Call) (string, bool) {
			r, ok := c.Message.(*healthpb.HealthCheckRequest)
			return r.GetService(), ok
		})))
	for n, row := range []struct{ service, refused string }{
		{"a", ""}, {"a", ""}, {"a", "limit:all-2"}, {"a", "limit:all-2"}, {"b", ""}, {"b", "limit:all"},
	} {
		err := call(context.Background(), i, row.service)
		if (err != nil) != (row.refused != "") {
			t.Fatalf("call %d: %v", n, err)
		}
		if err != nil && details[*errdetails.QuotaFailure](t, err).GetViolations()[0].GetSubject() != row.refused {
			t.Errorf("call %d: %v, want %s", n, err, row.refused)
		}
	}
}

func TestCostAndMethods(t *testing.T) {
	limiter, _ := newLimiter()
	cost := int64(3)
	of := grpclimit.Cost(func(*grpclimit.Call) int64 { return cost })
	i := grpclimit.UnaryServer(limiter, headgate.PerMinute(4), grpclimit.ByMethod(), of)
	if err := call(context.Background(), i, ""); err != nil {
		t.Error(err)
	}
	if retry, ok := grpclimit.RetryAfter(call(context.Background(), i, "")); !ok || retry != 30*time.Second {
		t.Errorf("retry after %s, want the time of two", retry)
	}
	cost = 5
	err := call(context.Background(), i, "")
	if _, ok := grpclimit.RetryAfter(err); ok || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("what never fits: %v", err)
	}
	other := grpclimit.UnaryServer(limiter, headgate.PerMinute(0), grpclimit.Methods("/package.Service/Other"))
	if err := call(context.Background(), other, ""); err != nil {
		t.Errorf("another method: %v", err)
	}
}

func TestByPeer(t *testing.T) {
	limiter, _ := newLimiter()
	i := grpclimit.UnaryServer(limiter, headgate.PerMinute(1))
	for n, row := range []struct {
		peer net.Addr
		ok   bool
	}{
		{&net.TCPAddr{IP: net.ParseIP("198.51.100.7"), Port: 1}, true},
		{&net.TCPAddr{IP: net.ParseIP("198.51.100.7"), Port: 2}, false},
		{&net.TCPAddr{IP: net.ParseIP("198.51.100.8"), Port: 1}, true},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 1}, true},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::2"), Port: 1}, false}, // the same /64
		{&net.UnixAddr{Name: "/run/a", Net: "unix"}, true},
		{nil, true},
		{nil, false},
	} {
		ctx := context.Background()
		if row.peer != nil {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: row.peer})
		}
		if err := call(ctx, i, ""); (err == nil) != row.ok {
			t.Errorf("call %d from %v: %v", n, row.peer, err)
		}
	}
}

func TestJoinKeepsPartsApart(t *testing.T) {
	by := grpclimit.Join(grpclimit.ByMetadata("a"), grpclimit.ByMetadata("b"))
	key := func(pairs ...string) string {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
		k, ok := by(&grpclimit.Call{Context: ctx})
		if ok != (len(pairs) > 0) {
			t.Errorf("%q: found %t", pairs, ok)
		}
		return k
	}
	if key("a", "x", "b", "yz") == key("a", "xy", "b", "z") || key("a", "x") == key("b", "x") {
		t.Error("different parts give the same key")
	}
	key()
}

// hasty is a store that does not answer callers without time.
type hasty struct{ store.Store }

func (h hasty) Do(ctx context.Context, b *store.Batch) {
	if ctx.Err() != nil {
		b.Fail(headgate.ErrUnavailable)
		return
	}
	h.Store.Do(ctx, b)
}

// The deadline of a call is the client's choice, and does not lift its limits.
func TestDeadlinesOfClients(t *testing.T) {
	limiter := headgate.New(hasty{memory.New()})
	i := grpclimit.UnaryServer(limiter, headgate.PerDay(2))
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for n, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if err := call(ctx, i, ""); status.Code(err) != want {
			t.Errorf("call %d: %v", n, err)
		}
	}
}

func TestStoreDown(t *testing.T) {
	down := memory.New()
	_ = down.Close()
	var heard error
	i := grpclimit.UnaryServer(headgate.New(down, headgate.WithFailurePolicy(headgate.FailClosed)), headgate.PerMinute(1),
		grpclimit.OnError(func(_ context.Context, err error) { heard = err }))
	err := call(context.Background(), i, "")
	if retry, ok := grpclimit.RetryAfter(err); status.Code(err) != codes.Unavailable || !ok || retry != time.Second || !errors.Is(heard, headgate.ErrUnavailable) {
		t.Errorf("%v, %v", err, heard)
	}
	if err := call(context.Background(), grpclimit.UnaryServer(headgate.New(down), headgate.PerMinute(1)), ""); err != nil {
		t.Errorf("a store that fails open: %v", err)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New(memory.WithClock(time.Now)))
		i := grpclimit.UnaryServer(limiter, headgate.PerMinute(60).WithBurst(1), grpclimit.Wait(90*time.Second), grpclimit.All())
		began := time.Now()
		for n := range 4 {
			if err := call(context.Background(), i, ""); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != time.Duration(n)*time.Second {
				t.Errorf("call %d after %s", n, waited)
			}
		}
		// The wait would exceed the deadline: refused at once.
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := call(ctx, i, ""); status.Code(err) != codes.ResourceExhausted || time.Since(began) != 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		// The caller leaves.
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		if err := call(ctx, i, ""); status.Code(err) != codes.Canceled {
			t.Errorf("%v", err)
		}
	})
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New(memory.WithClock(time.Now)))
		limit := headgate.PerMinute(60).WithAlgorithm(headgate.LeakyBucket).WithBurst(3)
		i := grpclimit.UnaryServer(limiter, limit, grpclimit.All())
		began := time.Now()
		for n := range 3 {
			if err := call(context.Background(), i, ""); err != nil || time.Since(began) != time.Duration(n)*time.Second {
				t.Errorf("call %d after %s: %v", n, time.Since(began), err)
			}
		}
		// A caller that leaves frees its place in the queue.
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		if err := call(ctx, i, ""); status.Code(err) != codes.Canceled {
			t.Errorf("%v", err)
		}
		began = time.Now()
		if err := call(context.Background(), i, ""); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
