package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// failed counts failed logins.
func failed() grpclimit.Option {
	return grpclimit.ChargeOn(codes.Unauthenticated, codes.PermissionDenied)
}

func ends(err error) func(context.Context) error { return func(context.Context) error { return err } }

// answers are the ways in which a call ends at a server, and whether it counts.
func answers(leave func()) map[string]struct {
	end    func(context.Context) error
	counts bool
} {
	return map[string]struct {
		end    func(context.Context) error
		counts bool
	}{
		"right":        {ends(nil), false},
		"wrong":        {ends(status.Error(codes.Unauthenticated, "wrong")), true},
		"forbidden":    {ends(status.Error(codes.PermissionDenied, "no")), true},
		"wrapped":      {ends(errors.Join(errors.New("login"), status.Error(codes.Unauthenticated, "wrong"))), true},
		"broken":       {ends(errors.New("broken")), false},
		"own deadline": {ends(context.DeadlineExceeded), false},
		"a panic":      {func(context.Context) error { panic("broken") }, true},
		"gone":         {func(ctx context.Context) error { leave(); return ctx.Err() }, true},
		"gone, right":  {func(context.Context) error { leave(); return nil }, true},
		"too late": {func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, true},
	}
}

// serverStream is a stream with a context.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

// Calls and streams of a server count by the status they end with; one whose status
// nobody saw counts.
func TestCallsCountByTheirStatus(t *testing.T) {
	limit := headgate.PerDay(5).WithAlgorithm(headgate.FixedWindow).WithName("failed")
	for name := range answers(nil) {
		for _, kind := range []string{"unary", "stream"} {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, leave := context.WithTimeout(t.Context(), time.Minute)
					defer leave()
					limiter, row := headgate.New(memory.New()), answers(leave)[name]
					func() {
						defer func() { _ = recover() }()
						if kind == "unary" {
							i := grpclimit.UnaryServer(limiter, limit, failed())
							_, _ = i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) { return nil, row.end(ctx) })
							return
						}
						i := grpclimit.StreamServer(limiter, limit, failed())
						_ = i(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method}, func(any, grpc.ServerStream) error { return row.end(ctx) })
					}()
					d, err := limiter.Peek(t.Context(), "", limit)
					if counts := d.Remaining == 4; err != nil || counts != row.counts {
						t.Errorf("%d left: %v", d.Remaining, err)
					}
				})
			})
		}
	}
}

// A client counts by the code that it gets, of a stream when it has ended. A stream that
// is not read to its end counts.
func TestClientsCountByTheStatus(t *testing.T) {
	limiter := headgate.New(memory.New())
	unary, streams := headgate.PerDay(100).WithName("unary"), headgate.PerDay(100).WithName("streams")
	on := grpclimit.ChargeOn(codes.NotFound)
	c := dial(t, nil, grpc.WithUnaryInterceptor(grpclimit.UnaryClient(limiter, unary, on)),
		grpc.WithStreamInterceptor(grpclimit.StreamClient(limiter, streams, on)))
	used := func(limit headgate.Limit) int64 {
		d, err := limiter.Peek(t.Context(), "", limit)
		if err != nil {
			t.Fatal(err)
		}
		return 100 - d.Remaining
	}
	for i, want := range []int64{0, 1} {
		_, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: []string{"", "unknown"}[i]})
		if got := used(unary); got != want {
			t.Errorf("call %d, %v: %d count", i, err, got)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	stream, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if got := used(streams); err != nil || got != 1 {
		t.Errorf("an open stream: %v, %d count", err, got)
	}
	leave()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	for range 1000 { // the stream ends in another goroutine
		if used(streams) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := used(streams); got != 0 {
		t.Errorf("a cancelled stream: %d count", got)
	}
	closed, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Watch(closed, &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("a stream is opened without a caller")
	}
	if got := used(streams); got != 0 {
		t.Errorf("a stream that is not opened: %d count", got)
	}
}

// Of 100 parallel guesses exactly five reach the handler. Right ones are given back.
func TestParallelGuesses(t *testing.T) {
	var reached atomic.Int64
	i := grpclimit.UnaryServer(headgate.New(memory.New()), headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), failed())
	call := func(answer error) error {
		_, err := i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			reached.Add(1)
			return nil, answer
		})
		return err
	}
	for n := range 20 {
		if err := call(nil); err != nil {
			t.Errorf("right login %d: %v", n, err)
		}
	}
	reached.Store(0)
	var wg sync.WaitGroup
	var wrong, refused atomic.Int64
	for range 100 {
		wg.Go(func() {
			switch status.Code(call(status.Error(codes.Unauthenticated, "wrong"))) { //nolint:exhaustive // the counts tell about others
			case codes.Unauthenticated:
				wrong.Add(1)
			case codes.ResourceExhausted:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if reached.Load() != 5 || wrong.Load() != 5 || refused.Load() != 95 {
		t.Errorf("%d reached the handler, %d wrong, %d refused", reached.Load(), wrong.Load(), refused.Load())
	}
}

// silent is a store whose refunds do not end by themselves.
type silent struct{ store.Store }

func (s silent) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if ops[0].Kind == store.KindRefund {
			<-ctx.Done()
			return errors.Join(headgate.ErrUnavailable, ctx.Err())
		}
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// A store that does not answer delays the answer by a second at most.
func TestRefundsDoNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		i := grpclimit.UnaryServer(headgate.New(silent{memory.New()}), headgate.PerDay(5), failed(),
			grpclimit.OnError(func(_ context.Context, err error) { errs = append(errs, err) }))
		began := time.Now()
		err := call(t.Context(), i, method)
		if took := time.Since(began); took != time.Second || err != nil || len(errs) != 1 || !errors.Is(errs[0], headgate.ErrUnavailable) {
			t.Errorf("%v after %s, errors %v", err, took, errs)
		}
	})
}

func TestChargeOnMistakes(t *testing.T) {
	limiter, fine := headgate.New(memory.New()), headgate.PerMinute(5)
	for _, row := range []struct {
		limit headgate.Limit
		also  []grpclimit.Option
		want  string
	}{
		{fine, []grpclimit.Option{grpclimit.ChargeOn()}, "ChargeOn has no values"},
		{fine, []grpclimit.Option{grpclimit.ChargeOn(codes.OK, 17)}, "gRPC has no code 17"},
		{fine, []grpclimit.Option{grpclimit.Also(headgate.PerHour(1), failed())}, "ChargeOn inside Also has no effect"},
		{headgate.Concurrent(1), []grpclimit.Option{failed()}, "has no effect on Concurrent"},
		{headgate.Concurrent(1), []grpclimit.Option{failed(), grpclimit.Also(fine)}, ""},
		{fine, []grpclimit.Option{failed(), grpclimit.ChargeOn(codes.NotFound)}, ""},
	} {
		err := grpclimit.Validate(limiter, row.limit, row.also...)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}
