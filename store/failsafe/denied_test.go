package failsafe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/memory"
)

func cached(f store.Store) *failsafe.Store {
	return failsafe.New(f, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 1024}})
}

// TestDenyCacheTrace: one key is refused for 100 ms.
func TestDenyCacheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.refuses(100 * time.Millisecond)
		s := cached(f)
		begin := time.Now()
		for _, step := range []struct {
			at     time.Duration
			cost   int64
			reason store.Reason
			retry  time.Duration
		}{
			{0, 3, store.ReasonLimited, 100 * time.Millisecond},
			{0, 3, store.ReasonCached, 100 * time.Millisecond},
			{30 * time.Millisecond, 3, store.ReasonCached, 70 * time.Millisecond},
			{30 * time.Millisecond, 5, store.ReasonLimited, 100 * time.Millisecond}, // a larger cost might have to wait longer
			{30 * time.Millisecond, 2, store.ReasonLimited, 100 * time.Millisecond}, // a smaller one might pass
			{40 * time.Millisecond, 3, store.ReasonCached, 60 * time.Millisecond},
			{40 * time.Millisecond, 5, store.ReasonCached, 90 * time.Millisecond},
			{40 * time.Millisecond, 2, store.ReasonCached, 90 * time.Millisecond},
			{40 * time.Millisecond, 6, store.ReasonLimited, 100 * time.Millisecond}, // more than could ever fit
			{99*time.Millisecond + 999*time.Microsecond, 3, store.ReasonCached, time.Microsecond},
			{100 * time.Millisecond, 3, store.ReasonLimited, 100 * time.Millisecond}, // it may pass again: call the store
		} {
			time.Sleep(step.at - time.Since(begin))
			o := op("k")
			o.Cost = step.cost
			d, err := store.Execute(t.Context(), s, o)
			if err != nil || d.Allowed || d.Reason != step.reason || d.RetryAfter != step.retry || d.Limit != 5 {
				t.Fatalf("at %s, cost %d: %+v, %v; want %s, %s", step.at, step.cost, d, err, step.reason, step.retry)
			}
		}
		if got := s.Stats().CacheHits; got != 6 {
			t.Errorf("%d hits", got)
		}
	})
}

// TestDenyCacheOfLargerCosts: only the store says when a larger cost may pass, except
// for a window that is available all at once.
func TestDenyCacheOfLargerCosts(t *testing.T) {
	for _, limit := range []headgate.Limit{
		headgate.PerMinute(5), headgate.PerMinute(5).WithAlgorithm(store.FixedWindow), headgate.PerMinute(5).WithAlgorithm(store.SlidingLog),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := cached(memory.New(memory.WithClock(time.Now)))
			take := func(cost int64) store.Decision {
				d, err := store.Execute(t.Context(), s, store.Op{Key: "k", Scope: "s", Rule: limit.Rule(), Cost: cost})
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			for range 5 {
				take(1)
				time.Sleep(time.Second)
			}
			take(1) // also refused
			d := take(3)
			if is := d.Reason == store.ReasonCached; is != (limit.Algorithm() == store.FixedWindow) {
				t.Errorf("%s: %s", limit, d.Reason)
			}
			time.Sleep(d.RetryAfter - time.Microsecond)
			if take(3).Allowed {
				t.Errorf("%s: passes before %s", limit, d.RetryAfter)
			}
			time.Sleep(time.Microsecond)
			if !take(3).Allowed {
				t.Errorf("%s: does not pass after %s", limit, d.RetryAfter)
			}
		})
	}
}

// TestDenyCacheIsBelievedFor250ms: the maximum age, even for a cost that can never fit.
func TestDenyCacheIsBelievedFor250ms(t *testing.T) {
	for _, retry := range []time.Duration{time.Hour, store.Never} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.refuses(retry)
			s := cached(f)
			for _, want := range []int64{1, 1, 2} {
				d, err := store.Execute(t.Context(), s, op("k"))
				if err != nil || f.asked.Load() != want {
					t.Fatalf("asked %d times, want %d (%v)", f.asked.Load(), want, err)
				}
				if d.Reason == store.ReasonCached && retry == store.Never && d.RetryAfter != store.Never {
					t.Errorf("%+v", d)
				}
				time.Sleep(125 * time.Millisecond)
			}
		})
	}
}

// TestDenyCacheKeepsApart: a refusal is only used for its own key, scope, limit and
// kind, and only for kinds that take.
func TestDenyCacheKeepsApart(t *testing.T) {
	denying := headgate.Per(5, time.Minute).WithAlgorithm(store.SlidingLog).WithRefusalsCounted()
	for _, tt := range []struct {
		name   string
		change func(*store.Op)
	}{
		{"key", func(o *store.Op) { o.Key = "other" }},
		{"scope", func(o *store.Op) { o.Scope = "other" }},
		{"moved border", func(o *store.Op) { o.Key, o.Scope = "", "sk" }},
		{"limit", func(o *store.Op) { o.Rule = headgate.PerMinute(6).Rule() }},
		{"burst", func(o *store.Op) { o.Rule = headgate.LimitOf(o.Rule).WithBurst(9).Rule() }},
		{"algorithm", func(o *store.Op) { o.Rule = headgate.LimitOf(o.Rule).WithAlgorithm(store.SlidingWindow).Rule() }},
		{"up to", func(o *store.Op) { o.Kind = store.KindTakeUpTo }},
		{"peek", func(o *store.Op) { o.Kind = store.KindPeek }},
		{"reserve", func(o *store.Op) { o.Kind = store.KindReserve }},
		{"dry run", func(o *store.Op) { o.Cost = 0 }},
		{"counts refusals", func(o *store.Op) { o.Rule = denying.Rule() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			f.refuses(time.Minute)
			s := cached(f)
			if _, err := store.Execute(t.Context(), s, op("k")); err != nil {
				t.Fatal(err)
			}
			other := op("k")
			tt.change(&other)
			if d, err := store.Execute(t.Context(), s, other); err != nil || d.Reason == store.ReasonCached {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	f := &fake{}
	f.refuses(time.Minute)
	s := cached(f)
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("x", 60)} {
		o := op("k")
		o.Rule = headgate.PerCalendar(5, store.Day, zone).Rule()
		if d, err := store.Execute(t.Context(), s, o); err != nil || d.Reason == store.ReasonCached {
			t.Errorf("zone %s: %+v, %v", zone, d, err)
		}
	}
	f.asked.Store(0)
	for range 3 { // every refused request must reach the log
		o := op("k")
		o.Rule = denying.Rule()
		_, _ = store.Execute(t.Context(), s, o)
	}
	if f.asked.Load() != 3 {
		t.Errorf("a limit that counts refusals was asked %d times out of 3", f.asked.Load())
	}
}

// TestDenyCacheForgets: new budget takes effect at once, in Take and in Do, even if
// giving it seems to have failed.
func TestDenyCacheForgets(t *testing.T) {
	for _, kind := range []store.Kind{store.KindRefund, store.KindGrant, store.KindReset, store.KindCharge} {
		for _, how := range []string{"take", "do", "large do", "failing"} {
			t.Run(fmt.Sprintf("%s by %s", kind, how), func(t *testing.T) {
				f := &fake{}
				f.refuses(time.Minute)
				s := cached(f)
				_, _ = store.Execute(t.Context(), s, op("k"))
				give := op("k")
				give.Kind, give.Rule = kind, headgate.PerMinute(50).Rule() // the same key under any limit
				ops := []store.Op{give}
				switch how {
				case "take":
					_, _ = store.Execute(t.Context(), s, give)
				case "large do":
					for i := range 20 {
						ops = append(ops, op(fmt.Sprint(i)))
					}
					fallthrough
				case "do":
					_ = store.ExecuteAll(t.Context(), s, ops, make([]store.Decision, len(ops)), store.Independent)
				case "failing":
					f.fails()
					_, _ = store.Execute(t.Context(), s, give)
				}
				f.works()
				if d, err := store.Execute(t.Context(), s, op("k")); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
	}
}

// TestDenyCacheOvertaken: a refusal in progress while the key gets budget is not
// remembered.
func TestDenyCacheOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		stall := make(chan struct{})
		f.refuses(time.Minute)
		f.set(func(f *fake) { f.stall = stall })
		s := cached(f)
		go func() { _, _ = store.Execute(context.Background(), s, op("k")) }()
		synctest.Wait() // it is in the store
		f.set(func(f *fake) { f.stall = nil })
		give := op("k")
		give.Kind = store.KindRefund
		_, _ = store.Execute(t.Context(), s, give)
		close(stall)
		synctest.Wait()
		f.works()
		if d, _ := store.Execute(t.Context(), s, op("k")); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// TestDenyCacheInDo: an all-or-nothing Do is refused if one op is known to be;
// otherwise every op must be known.
func TestDenyCacheInDo(t *testing.T) {
	f := &fake{answer: func(o store.Op) (store.Decision, error) {
		if o.Key == "full" {
			return store.Decision{Reason: store.ReasonLimited, RetryAfter: time.Minute}, nil
		}
		return store.Decision{Allowed: true, Granted: 1}, nil
	}}
	s := cached(f)
	ask := func(mode store.Mode, keys ...string) (asked int64, out []store.Decision) {
		t.Helper()
		ops := make([]store.Op, len(keys))
		for i, k := range keys {
			ops[i] = op(k)
		}
		out = make([]store.Decision, len(keys))
		before := f.asked.Load()
		if err := store.ExecuteAll(t.Context(), s, ops, out, mode); err != nil {
			t.Fatal(err)
		}
		return f.asked.Load() - before, out
	}
	if n, _ := ask(store.AllOrNothing, "free", "full"); n != 2 {
		t.Fatalf("asked %d", n)
	}
	n, out := ask(store.AllOrNothing, "free", "full")
	if n != 0 || !out[0].Allowed || out[0].Granted != 0 || out[1].Allowed || out[1].Reason != store.ReasonCached {
		t.Errorf("asked %d, %+v", n, out)
	}
	if at := store.Tightest(out); at != 1 {
		t.Errorf("the tightest is %d", at)
	}
	if n, out = ask(store.Independent, "free", "full"); n != 2 || !out[0].Allowed || out[0].Granted != 1 {
		t.Errorf("independent: asked %d, %+v", n, out)
	}
	if n, _ = ask(store.Independent, "full", "full"); n != 0 {
		t.Errorf("independent, both known: asked %d", n)
	}
	if n, _ = ask(store.AllOrNothing, "free", "free"); n != 2 {
		t.Errorf("all or nothing, none known: asked %d", n)
	}
	if got := s.Stats().CacheHits; got != 3 {
		t.Errorf("%d hits", got)
	}
}

// TestDenyCacheMakesNothingUp: next to a limit that is known to refuse, other ops get
// the store's answer, or its answer from at most MaxAge ago about the same cost. The
// limit is 20/minute; no other caller changes its counts.
func TestDenyCacheMakesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counting{Store: memory.New()}
		s := failsafe.New(inner, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 1024}})
		begin := time.Now()
		use := func(key string, cost int64) store.Op {
			return store.Op{
				Key: key, Scope: "s", Cost: cost, At: time.Now().UnixMicro(),
				Rule: headgate.PerMinute(20).WithAlgorithm(store.FixedWindow).Rule(),
			}
		}
		if d, err := store.Execute(t.Context(), s, use("full", 20)); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, step := range []struct {
			at        time.Duration
			key       string
			cost      int64
			asked     bool
			allowed   bool
			remaining int64
		}{
			{0, "fresh", 1, true, true, 20},
			{1 * time.Millisecond, "fresh", 1, false, true, 20},
			{1 * time.Millisecond, "fresh", 2, true, true, 20},   // another cost: call the store
			{1 * time.Millisecond, "fresh", 50, true, false, 20}, // would be refused too
			{1 * time.Millisecond, "other", 1, true, true, 20},
			{250 * time.Millisecond, "other", 1, false, true, 20},
			{251 * time.Millisecond, "other", 1, true, true, 20}, // both must be checked again
			{260 * time.Millisecond, "other", 1, false, true, 20},
		} {
			time.Sleep(step.at - time.Since(begin))
			ops, out := []store.Op{use(step.key, step.cost), use("full", 1)}, make([]store.Decision, 2)
			before := inner.asked
			if err := store.ExecuteAll(t.Context(), s, ops, out, store.AllOrNothing); err != nil {
				t.Fatal(err)
			}
			d := out[0]
			if asked := inner.asked > before; asked != step.asked || d.Allowed != step.allowed || d.Remaining != step.remaining || out[1].Allowed {
				t.Errorf("at %s, %s, cost %d: asked %v, %+v", step.at, step.key, step.cost, asked, out)
			}
		}
		if d, err := store.Execute(t.Context(), s, use("fresh", 1)); err != nil || !d.Allowed || d.Remaining != 19 {
			t.Errorf("nothing was charged: %+v, %v", d, err)
		}
	})
}

// counting counts the calls to a store.
type counting struct {
	store.Store
	asked int
}

func (c *counting) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		c.asked++
		return store.ExecuteAll(ctx, c.Store, ops, out, mode)
	})
}

// TestDenyCacheSameKeyTwice: an op refused because of the previous one says nothing
// about the next request.
func TestDenyCacheSameKeyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cached(memory.New())
		ops := []store.Op{op("k"), op("k")}
		ops[0].Cost, ops[1].Cost = 3, 3
		out := make([]store.Decision, 2)
		if err := store.ExecuteAll(t.Context(), s, ops, out, store.AllOrNothing); err != nil || out[1].Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		if d, err := store.Execute(t.Context(), s, ops[0]); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestDenyCacheNeverRefusesTooMuch compares a cached store with a bare one under the
// same random traffic: without other processes, the answers are the same, except for
// their Reason.
func TestDenyCacheNeverRefusesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := func() time.Time { return time.Now() }
		bare := memory.New(memory.WithClock(clock))
		s := cached(memory.New(memory.WithClock(clock)))
		limits := []headgate.Limit{
			headgate.PerSecond(20), headgate.PerSecond(10).WithAlgorithm(store.SlidingWindow),
			headgate.PerSecond(8).WithAlgorithm(store.SlidingLog), headgate.PerSecond(9).WithAlgorithm(store.FixedWindow),
			headgate.PerSecond(12).WithAlgorithm(store.LeakyBucket), headgate.PerSecond(15).WithAlgorithm(store.SlidingBuckets),
		}
		n := uint64(1)
		next := func(below uint64) uint64 { n = n*6364136223846793005 + 1442695040888963407; return n >> 33 % below }
		for i := range 60_000 {
			o := store.Op{Key: fmt.Sprint(next(8)), Rule: limits[next(uint64(len(limits)))].Rule(), Cost: int64(1 + next(3))}
			o.Scope = o.Rule.String()
			if next(50) == 0 {
				o.Kind = store.KindRefund
			}
			want, err1 := store.Execute(t.Context(), bare, o)
			got, err2 := store.Execute(t.Context(), s, o)
			if err1 != nil || err2 != nil || got.Allowed != want.Allowed || got.Granted != want.Granted {
				t.Fatalf("call %d, %+v:\n got %+v, %v\nwant %+v, %v", i, o, got, err2, want, err1)
			}
			if got.Reason == store.ReasonCached && got.RetryAfter > want.RetryAfter {
				t.Fatalf("call %d, %+v: told to wait %s, but it is %s", i, o, got.RetryAfter, want.RetryAfter)
			}
			time.Sleep(time.Duration(next(4000)) * time.Microsecond)
		}
		if hits := s.Stats().CacheHits; hits < 1000 {
			t.Errorf("only %d hits", hits)
		}
	})
}

// TestDenyCacheIsBounded: more refused keys than entries; run it with -race.
func TestDenyCacheIsBounded(t *testing.T) {
	f := &fake{}
	f.refuses(time.Hour)
	s := failsafe.New(f, failsafe.Options{DenyCache: failsafe.DenyCache{Entries: 64, MaxAge: time.Hour}})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 5000 {
				if _, err := store.Execute(context.Background(), s, op(fmt.Sprint(g, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	before := f.asked.Load()
	for g := range 4 {
		for i := range 5000 {
			_, _ = store.Execute(context.Background(), s, op(fmt.Sprint(g, i)))
		}
	}
	if kept := 20_000 - (f.asked.Load() - before); kept > 64 {
		t.Errorf("%d refusals are remembered, want at most 64", kept)
	}
}

// TestDenyCacheWhileOpen: known refusals stay refused during an outage, whatever the
// policy.
func TestDenyCacheWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.refuses(time.Second)
		s := cached(f)
		_, _ = store.Execute(t.Context(), s, op("full"))
		f.fails()
		time.Sleep(timeout)
		for s.Stats().State == failsafe.Closed {
			_, _ = store.Execute(t.Context(), s, op("k"))
		}
		if d, err := store.Execute(t.Context(), s, op("full")); err != nil || d.Allowed || d.Reason != store.ReasonCached {
			t.Errorf("%+v, %v", d, err)
		}
		if _, err := store.Execute(t.Context(), s, op("k")); !errors.Is(err, failsafe.ErrOpen) {
			t.Error(err)
		}
	})
}

// TestForget: after Forget nothing is remembered, not even a refusal from a call in
// progress.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.refuses(time.Minute)
		s := cached(f)
		keys := make([]string, 500)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
			_, _ = store.Execute(t.Context(), s, op(keys[i]))
		}
		stall := make(chan struct{})
		f.set(func(f *fake) { f.stall = stall })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = store.Execute(t.Context(), s, op("in flight"))
		}()
		synctest.Wait()
		s.Forget()
		close(stall)
		<-done
		f.set(func(f *fake) { f.stall = nil })
		f.works()
		for _, key := range append(keys, "in flight") {
			if d, err := store.Execute(t.Context(), s, op(key)); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", key, d, err)
			}
		}
		failsafe.New(&fake{}, failsafe.Options{}).Forget() // without a cache
	})
}

// TestDenyCacheOfDraws: a draw is refused where there is not even 1, so the refusal
// holds for every size. It says nothing about takes, which may use credit.
func TestDenyCacheOfDraws(t *testing.T) {
	f := &fake{}
	f.refuses(100 * time.Millisecond)
	s := cached(f)
	for i, want := range []store.Reason{store.ReasonLimited, store.ReasonCached, store.ReasonCached} {
		o := op("k")
		o.Kind, o.Cost = store.KindDraw, int64(40>>(2*i))
		if d, err := store.Execute(t.Context(), s, o); err != nil || d.Reason != want {
			t.Fatalf("draw of %d: %+v, %v; want %s", o.Cost, d, err, want)
		}
	}
	if d, err := store.Execute(t.Context(), s, op("k")); err != nil || d.Reason != store.ReasonLimited {
		t.Errorf("a take after a refused draw: %+v, %v", d, err)
	}
}
