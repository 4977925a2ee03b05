package grpclimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// A call that is canceled while it waits is refunded what has not been refilled since.
// A full refund would give others' tokens back too.
func TestGivenUpAfterSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New(), headgate.WithClock(time.Now))
		queue := headgate.PerMinute(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(10).WithName("queue")
		bucket := headgate.PerSecond(1).WithBurst(10).WithName("bucket")
		one := func(*grpclimit.Call) (string, bool) { return "one", true }
		limit := grpclimit.UnaryServer(limiter, queue, grpclimit.By(one),
			grpclimit.Also(bucket, grpclimit.Cost(func(*grpclimit.Call) int64 { return 5 })))
		call := func(ctx context.Context) error {
			_, err := limit(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		if _, err := limiter.Allow(t.Context(), "one", queue); err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if call(ctx) == nil {
				t.Error("its turn has come")
			}
		})
		synctest.Wait()
		time.Sleep(4 * time.Second) // of the bubble: 4 of the 5 are refilled
		if d, err := limiter.AllowN(t.Context(), "one", bucket, 5); err != nil || d.Remaining != 4 {
			t.Fatalf("%+v, %v", d, err)
		}
		giveUp()
		group.Wait()
		if d, err := limiter.Peek(t.Context(), "one", bucket); err != nil || d.Remaining != 5 {
			t.Errorf("%d left of 10, want 5: %v", d.Remaining, err)
		}
	})
}

// Waiting uses the limiter's clock, not real time.
func TestWaitGoesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64
		limiter := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return time.Unix(1_700_000_000, passed.Load()) }))
		limit := grpclimit.UnaryServer(limiter, headgate.PerHour(1), grpclimit.All(), grpclimit.Wait(2*time.Hour))
		call := func() error {
			_, err := limit(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error)
		go func() { answered <- call() }()
		synctest.Wait()
		begin := time.Now()
		passed.Store(int64(time.Hour))
		if err := <-answered; err != nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// A call that waits for its turn holds no slot. If no slot is free at its turn, it is
// refused and charged nothing.
func TestWhoWaitsHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New(), headgate.WithClock(time.Now))
		queue := headgate.PerSecond(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(9).WithName("queue")
		places := headgate.Concurrent(1).WithLease(time.Minute).WithName("places")
		by := func(name string) grpclimit.By { return func(*grpclimit.Call) (string, bool) { return name, true } }
		begin := time.Now()
		call := func(who string, takes time.Duration) chan string {
			limit := grpclimit.UnaryServer(limiter, queue, by(who), grpclimit.Also(places, by("all")))
			answered := make(chan string, 1)
			go func() {
				_, err := limit(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
					time.Sleep(takes)
					return nil, nil
				})
				answered <- status.Code(err).String() + " at " + time.Since(begin).String()
			}()
			synctest.Wait()
			return answered
		}
		want := func(answered chan string, want string) {
			t.Helper()
			if got := <-answered; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want(call("a", 0), "OK at 0s")
		waits := call("a", 0)
		want(call("b", 0), "OK at 0s")
		want(waits, "OK at 1s")
		waits = call("a", 0)
		slow := call("c", 10*time.Second)
		want(waits, "ResourceExhausted at 2s")
		if d, err := limiter.Peek(t.Context(), "a", queue); err != nil || d.Delay > time.Second {
			t.Errorf("its place in the queue is not free: %+v, %v", d, err)
		}
		want(slow, "OK at 11s")
	})
}
