package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// one is a limit of one concurrent call.
func one() headgate.Limit { return headgate.Concurrent(1).WithLease(time.Second) }

// A call holds its slot until its handler is done, however short the lease, and however
// the handler ends.
func TestPlacesOfUnaryCalls(t *testing.T) {
	for name, end := range map[string]func() error{
		"answered": func() error { return nil },
		"failed":   func() error { return errors.New("broken") },
		"a panic":  func() error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := headgate.New(memory.New(memory.WithClock(time.Now)), headgate.WithClock(time.Now))
				i := grpclimit.UnaryServer(limiter, one())
				next := func() codes.Code { return status.Code(call(t.Context(), i, method)) }
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
						time.Sleep(time.Minute)
						return nil, end()
					})
				}()
				for range 59 {
					synctest.Wait()
					if got := next(); got != codes.ResourceExhausted {
						t.Fatalf("a second of one: %s", got)
					}
					time.Sleep(time.Second)
				}
				<-done
				for range 2 {
					if got := next(); got != codes.OK {
						t.Errorf("the call is over and its place is not free: %s", got)
					}
				}
			})
		})
	}
}

// A stream holds its slot until it ends, on the server and on the client, also if the
// client leaves.
func TestPlacesOfStreams(t *testing.T) {
	atServer, atClient := headgate.New(memory.New()), headgate.New(memory.New())
	limit := headgate.Concurrent(1).WithLease(time.Hour)
	c := dial(t, []grpc.ServerOption{grpc.StreamInterceptor(grpclimit.StreamServer(atServer, limit, grpclimit.ByMetadata("k")))})
	limited := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClient(atClient, limit)))
	for name, c := range map[string]healthpb.HealthClient{"server": c, "client": limited} {
		open := func(ctx context.Context) error {
			stream, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		for range 3 {
			ctx, leave := context.WithCancel(t.Context())
			deadline := time.Now().Add(20 * time.Second)
			for err := open(ctx); err != nil; err = open(ctx) {
				if status.Code(err) != codes.ResourceExhausted || time.Now().After(deadline) {
					t.Fatalf("%s: who went away keeps its place: %v", name, err)
				}
			}
			if err := open(t.Context()); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: a second stream of one: %v", name, err)
			}
			leave()
		}
	}
}
