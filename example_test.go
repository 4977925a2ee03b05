package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// A clock that the examples set, so that their output is always the same.
func exampleClock() func() time.Time {
	return func() time.Time { return time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC) }
}

func ExampleLimiter_Allow() {
	store := memory.New()
	defer store.Close()
	limiter := headgate.New(store, headgate.WithClock(exampleClock()))
	perUser := headgate.PerMinute(4)

	for range 5 {
		d, err := limiter.Allow(context.Background(), "user 42", perUser)
		if err != nil {
			fmt.Println(err) // the decision is the failure policy's
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// true 3 0s
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 15s
}

func ExampleLimiter_AllowAll() {
	db := memory.New()
	defer db.Close()
	limiter := headgate.New(db, headgate.WithClock(exampleClock()))
	ops := []store.Op{
		{Scope: "per user", Key: "42", Rule: headgate.PerMinute(100).Rule(), Cost: 1},
		{Scope: "logins", Key: "42", Rule: headgate.PerMinute(1).WithAlgorithm(headgate.SlidingLog).Rule(), Cost: 1},
	}
	out := make([]store.Decision, len(ops))

	for range 2 {
		d, _ := limiter.Caller().AllowAll(context.Background(), ops, out)
		fmt.Println(d.Allowed, d.Limit, "and of the other limit are left", out[0].Remaining)
	}
	// Output:
	// true 1 and of the other limit are left 99
	// false 1 and of the other limit are left 99
}

// A request whose price is known only afterwards.
func ExampleLimiter_Charge() {
	store := memory.New()
	defer store.Close()
	limiter := headgate.New(store, headgate.WithClock(exampleClock()))
	tokens := headgate.PerMinute(1000)
	ctx := context.Background()

	before, _ := limiter.AllowN(ctx, "key", tokens, 0) // out of debt?
	after, _ := limiter.Charge(ctx, "key", tokens, 1500)
	fmt.Println(before.Allowed, after.Allowed, after.RetryAfter)
	// Output:
	// true false 30s
}

func ExampleLimiter_Reserve() {
	store := memory.New()
	defer store.Close()
	limiter := headgate.New(store, headgate.WithClock(exampleClock()))
	ctx, perSecond := context.Background(), headgate.PerSecond(1)

	for range 3 {
		r, _ := limiter.Reserve(ctx, "mail", perSecond, 1, time.Second)
		fmt.Println(r.Decision.Allowed, r.Decision.Delay)
		if r.Decision.Delay > 0 {
			_ = r.Cancel(ctx) // no need any more: the place is free again
		}
	}
	// Output:
	// true 0s
	// true 1s
	// true 1s
}

func ExampleLimiter_Wait() {
	store := memory.New()
	defer store.Close()
	limiter := headgate.New(store, headgate.WithClock(exampleClock()))

	err := limiter.WaitN(context.Background(), "report", headgate.PerDay(5), 6)
	var limited *headgate.LimitedError
	fmt.Println(errors.As(err, &limited), err)
	// Output:
	// true rate limited: the cost is more than the limit can ever allow
}

func ExamplePerCalendar() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(headgate.PerCalendar(200, headgate.Day, berlin))
	// Output:
	// 200/day fixed_window in Europe/Berlin
}

func ExampleLimit_Validate() {
	fmt.Println(headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog).WithBurst(10).Validate())
	// Output:
	// invalid limit: only token_bucket and leaky_bucket have a burst
}

func ExampleAppendKey() {
	fmt.Printf("%q\n", headgate.AppendKey(nil, "a_b", "c"))
	fmt.Printf("%q\n", headgate.AppendKey(nil, "a", "b_c"))
	// Output:
	// "\x03a_b\x01c"
	// "\x01a\x03b_c"
}
