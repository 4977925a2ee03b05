package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// These are traps of docs/internals/correctness.md that concern a real server. Those that need a
// frozen clock (T7 to T12, T19, T21) run in storetest, by TestConformance.

// eachLimit returns limits of n per period, one for every algorithm and shape.
func eachLimit(n int64, period time.Duration) []headgate.Limit {
	var limits []headgate.Limit
	for _, a := range store.Algorithms() {
		limits = append(limits, headgate.Per(n, period).WithAlgorithm(a))
	}
	return append(limits,
		headgate.Per(n, period).WithRefillEvery(period/2),
		headgate.Per(n, period).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest),
		headgate.PerCalendar(n, store.Month, time.UTC),
		headgate.PerCalendar(n, store.Month, nil).WithZone(time.FixedZone("UTC+14", 14*60*60)),
		headgate.Per(n, period).WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
		headgate.Per(n, period).WithAlgorithm(store.SlidingBuckets).WithBuckets(7, store.EdgeStrict),
		headgate.Per(n, period).WithAlgorithm(store.SlidingBuckets).WithBuckets(7, store.EdgeLenient),
	)
}

// microsOf reads the server's clock.
func microsOf(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	seconds, us, _ := strings.Cut(s.Do("TIME"), "\n")
	return number(t, seconds)*1_000_000 + number(t, strings.TrimSpace(us))
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestT06_T18_T19_T20_T35_EveryKeyLivesUntilItIsFresh: whatever writes a key
// gives it a time to live that ends when the state is fresh, rounded up to a
// millisecond: never before, never without one, and not much later.
func TestT06_T18_T19_T20_T35_EveryKeyLivesUntilItIsFresh(t *testing.T) {
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	everyKeyLives(t, server, store, 0)
}

// everyKeyLives uses the TIME seen by the store's scripts, which is ahead of the
// server's clock by some microseconds.
func everyKeyLives(t *testing.T, server *redistest.Server, db *redis.Store, ahead int64) {
	t.Helper()
	limits := append(eachLimit(3, 1900*time.Millisecond), eachLimit(10, 100*time.Millisecond)...)
	limits = append(limits, eachLimit(3, time.Hour)...)
	kinds := []store.Kind{store.KindTake, store.KindTakeUpTo, store.KindCharge, store.KindReserve, store.KindGrant, store.KindRefund}
	checked := 0
	for i, limit := range limits {
		for _, kind := range kinds {
			op := store.Op{Key: fmt.Sprint(i, kind), Rule: limit.Rule(), Cost: 2, Kind: kind, Duration: 90 * time.Second}
			if kind == store.KindRefund {
				first := op
				first.Kind, first.Cost = store.KindTake, 3
				take(t, db, first)
				op.Duration = 0
			}
			if livesUntilFresh(t, server, db, op, ahead) {
				checked++
			}
		}
	}
	if checked < len(limits)*len(kinds)/2 {
		t.Errorf("only %d of %d keys could be looked at", checked, len(limits)*len(kinds))
	}
}

// livesUntilFresh checks when the key written by op expires, and reports whether the
// key still existed.
func livesUntilFresh(t *testing.T, server *redistest.Server, db *redis.Store, op store.Op, ahead int64) bool {
	t.Helper()
	before := microsOf(t, server) + ahead
	d := take(t, db, op)
	after := microsOf(t, server) + ahead
	end := number(t, server.Do("PEXPIRETIME", redis.KeyOf("hg", &op)))
	resetUS := d.ResetAfter.Microseconds()
	if op.Kind != store.KindGrant && op.Rule.OwnZone {
		resetUS += (48 * time.Hour).Microseconds() // a window in the caller's own zone is remembered after its end
	}
	switch {
	case end == -2 && microsOf(t, server)+ahead > before+resetUS:
		return false // it expired before the check
	case end == -2:
		t.Errorf("%s %s: no key, but it is fresh only in %s", op.Kind, op.Rule, d.ResetAfter)
	case end == -1:
		t.Errorf("%s %s: the key has no end", op.Kind, op.Rule)
	case resetUS > 0 && (end+1)*1000 < before+resetUS: // one that is fresh already may stay as it was
		t.Errorf("%s %s: ends at %d ms, before it is fresh at %d µs", op.Kind, op.Rule, end, before+resetUS)
	case end > (after+resetUS)/1000+2:
		t.Errorf("%s %s: ends at %d ms, long after it is fresh at %d µs", op.Kind, op.Rule, end, after+resetUS)
	}
	return true
}

// clockSet makes TIME return an hour more than the clock used for the expiry of keys.
// This happens when the clock is set between the two readings: back in Redis 7.0, which
// reads it for each; ahead in later versions, which read it for the expiry when the
// script starts.
const clockSet = `local redis = setmetatable({call = function(command, ...)
  local answer = redis.call(command, ...)
  if command == 'TIME' then answer[1] = answer[1] + 3600 end
  return answer
end}, {__index = redis})`

// TestT06_EveryKeyLivesUntilItIsFreshIfTheClockIsSetMeanwhile: a key's expiry uses the
// same clock as its state, even if the server's clock is set during a script. Otherwise
// it would expire that much too early and give a fresh budget.
func TestT06_EveryKeyLivesUntilItIsFreshIfTheClockIsSetMeanwhile(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
		db.Prelude(clockSet)
		ahead := time.Hour.Microseconds()
		everyKeyLives(t, server, db, ahead)

		long := store.Op{Key: "long", Rule: headgate.Per(1000, time.Hour).WithAlgorithm(store.SlidingLog).Rule(), Cost: 1}
		for range 600 { // beyond 4 KB it is changed in place
			take(t, db, long)
		}
		livesUntilFresh(t, server, db, long, ahead)
		places := store.Op{Key: "places", Rule: headgate.Concurrent(3).Rule(), Cost: 1}
		livesUntilFresh(t, server, db, places, ahead)
	})
}

// TestT06_AWindowEndsWithItsKeyIfTheClockIsSetMeanwhile: the smallest state of a window
// takes its end from the key, and reads it as a time, without another reading of the
// clock in between.
func TestT06_AWindowEndsWithItsKeyIfTheClockIsSetMeanwhile(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		options := redis.Options{Addresses: []string{server.Addr}, Timeout: patient}
		op := store.Op{Key: "k", Rule: headgate.Per(3, 7*24*time.Hour).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
		now := microsOf(t, server)
		if week := int64(7 * day); now/week != (now+2*time.Hour.Microseconds())/week {
			t.Skip("the window is about to end")
		}
		take(t, open(t, options), op)
		key := redis.KeyOf("hg", &op)
		if v := server.Do("GET", key); !shared.MatchString(v) {
			t.Fatalf("the state is %q, want the smallest", v)
		}
		end := server.Do("PEXPIRETIME", key)
		later := open(t, options)
		later.Prelude(clockSet)
		for _, kind := range []store.Kind{store.KindTake, store.KindCharge} {
			op.Kind = kind
			before := microsOf(t, server) + time.Hour.Microseconds()
			reset := take(t, later, op).ResetAfter.Microseconds()
			after := microsOf(t, server) + time.Hour.Microseconds()
			if us := number(t, end) * 1000; reset < us-after || reset > us-before {
				t.Errorf("%s: the window ends in %d µs, want %d to %d", kind, reset, us-after, us-before)
			}
			if got := server.Do("PEXPIRETIME", key); got != end {
				t.Errorf("%s: the window ends at %s ms, want %s", kind, got, end)
			}
		}
	})
}

func take(t *testing.T, db store.Store, op store.Op) store.Decision {
	t.Helper()
	d, err := store.Execute(context.Background(), db, op)
	if err != nil {
		t.Fatalf("%s %s: %v", op.Kind, op.Rule, err)
	}
	return d
}

// TestT15_ARefusalWritesNothing, not even the time to live.
func TestT15_ARefusalWritesNothing(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	for i, limit := range eachLimit(3, time.Hour) {
		if limit.Rule().CountRefused {
			continue
		}
		op := store.Op{Key: strconv.Itoa(i), Rule: limit.Rule(), Cost: 3}
		take(t, db, op)
		key := redis.KeyOf("hg", &op)
		value, end := server.Do("GET", key), server.Do("PEXPIRETIME", key)
		for _, kind := range []store.Kind{store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindReserve} {
			op.Kind = kind
			if d := take(t, db, op); d.Allowed || d.Granted != 0 {
				t.Errorf("%s of %s: %+v", kind, limit, d)
			}
		}
		if server.Do("GET", key) != value || server.Do("PEXPIRETIME", key) != end {
			t.Errorf("%s: a refusal changed the key", limit)
		}
		op.Key, op.Kind = "unused", store.KindPeek
		take(t, db, op)
		if server.Do("EXISTS", redis.KeyOf("hg", &op)) != "0" {
			t.Errorf("%s: a peek made a key", limit)
		}
	}
}

// TestT22_SkewedClientsChangeNothing: processes whose clocks are five seconds fast and
// slow are together admitted exactly the limit, by the server's clock.
func TestT22_SkewedClientsChangeNothing(t *testing.T) {
	server := redistest.Standalone(t)
	var stores []*redis.Store
	skews := []time.Duration{0, -5 * time.Second, 5 * time.Second, -40 * 24 * time.Hour, 40 * 24 * time.Hour}
	for _, skew := range skews {
		stores = append(stores, open(t, redis.Options{
			Addresses: []string{server.Addr}, Timeout: patient,
			Clock: func() time.Time { return time.Now().Add(skew) },
		}))
	}
	limits := append(eachLimit(25, 24*time.Hour), headgate.PerCalendar(25, store.Year, time.UTC))
	for i, limit := range limits {
		var admitted atomic.Int64
		var group sync.WaitGroup
		for j, db := range stores {
			group.Go(func() {
				for range 20 {
					op := store.Op{Key: strconv.Itoa(i), Rule: limit.Rule(), Cost: 1, At: time.Now().Add(skews[j]).UnixMicro()}
					d, err := store.Execute(context.Background(), db, op)
					if err != nil {
						t.Error(err)
					}
					admitted.Add(d.Granted)
				}
			})
		}
		group.Wait()
		if admitted.Load() != 25 {
			t.Errorf("%s: admitted %d, want 25", limit, admitted.Load())
		}
	}
}

// TestT30_TheShortWayAnswersAsTheLongOne: the fast path for a take, which a script
// answers before it defines anything, agrees with the full path.
func TestT30_TheShortWayAnswersAsTheLongOne(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient, CallerTime: true})
	for i, limit := range eachLimit(5, time.Minute) {
		for n := range int64(8) {
			short := store.Op{Key: fmt.Sprint("short", i), Rule: limit.Rule(), Cost: 1, At: 1e15 + n*1e6}
			long := short
			long.Key = fmt.Sprint("long", i)
			want := take(t, db, short)
			// A second op forces the full path.
			got := make([]store.Decision, 2)
			peek := store.Op{Key: "another", Rule: limit.Rule(), Cost: 1, At: long.At, Kind: store.KindPeek}
			if err := store.ExecuteAll(context.Background(), db, []store.Op{long, peek}, got, store.Independent); err != nil {
				t.Fatal(err)
			}
			if got[0] != want {
				t.Errorf("%s, request %d:\nshort %+v\n long %+v", limit, n, want, got[0])
			}
		}
	}
}

// TestT31_KeysAreOpaqueBytes: every key has its own name and a tag that none of its
// bytes can end, and resetting one key never affects another, whatever it looks like.
func TestT31_KeysAreOpaqueBytes(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	long := strings.Repeat("x", 10_000)
	keys := []string{
		"", "*", "?", "[a]", "a", "\x00", "a\x00b", "{", "}", "{}", "}{", "a}b", "a{b", "{a}", "%", "%7D", "%h", "%0", ":", "a:b",
		"\xff\xfe", "é", "\r\n", "hg:{a}::t", long, long + "y", strings.Repeat("}", 64), strings.Repeat("}", 65),
	}
	limit := headgate.PerHour(2)
	names := map[string]string{}
	for _, key := range keys {
		for _, scope := range []string{"", "api", "a:b", "}", long} {
			op := store.Op{Key: key, Scope: scope, Rule: limit.Rule(), Cost: 1}
			name := redis.KeyOf("hg", &op)
			if other, taken := names[name]; taken {
				t.Fatalf("%q and %q in scope %.20q are both named %q", key, other, scope, name)
			}
			names[name] = key
			if len(name) > 460 {
				t.Errorf("the name of %.20q has %d bytes", key, len(name))
			}
			if d := take(t, db, op); d.Remaining != 1 {
				t.Fatalf("%.20q in scope %.20q: remaining %d at the first take", key, scope, d.Remaining)
			}
			if server.Do("EXISTS", name) != "1" {
				t.Errorf("%.20q in scope %.20q is not at %q", key, scope, name)
			}
		}
	}
	take(t, db, store.Op{Key: "*", Rule: limit.Rule(), Kind: store.KindReset})
	for _, key := range keys {
		want := int64(1)
		if key == "*" {
			want = 2
		}
		if d := take(t, db, store.Op{Key: key, Rule: limit.Rule(), Cost: 1, Kind: store.KindPeek}); d.Remaining != want {
			t.Errorf("after the reset of *, %.20q has %d left, want %d", key, d.Remaining, want)
		}
	}
	if got := number(t, server.Do("DBSIZE")); got != int64(len(names)-1) { // that of * was removed
		t.Errorf("%d keys on the server, want %d", got, len(names)-1)
	}
}

// TestScriptsAreKnownByName: a script that the server has lost, by SCRIPT FLUSH or a
// restart, is sent again, only once, even during a pipeline.
func TestScriptsAreKnownByName(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	limits := eachLimit(1000, time.Hour)
	ctx := context.Background()
	lose := map[string]func(){
		"never known": func() {},
		"flushed":     func() { server.Do("SCRIPT", "FLUSH") },
		"one known": func() {
			server.Do("SCRIPT", "FLUSH")
			take(t, db, store.Op{Key: "other", Rule: limits[0].Rule(), Cost: 1})
		},
	}
	for name, lost := range lose {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			var ops []store.Op
			for i := range 300 { // several script calls in one pipeline
				ops = append(ops, store.Op{Key: "k", Scope: "s", Rule: limits[i/64%len(limits)].Rule(), Cost: 1})
			}
			lost()
			out := make([]store.Decision, len(ops))
			if err := store.ExecuteAll(ctx, db, ops, out, store.Independent); err != nil {
				t.Fatal(err)
			}
			lost()
			if err := store.ExecuteAll(ctx, db, ops[60:70], out, store.AllOrNothing); err != nil {
				t.Fatal(err)
			}
			for i, limit := range limits {
				lost()
				op := store.Op{Key: "k", Scope: "s", Rule: limit.Rule(), Cost: 1, Kind: store.KindPeek}
				used := int64(0)
				for j, o := range ops {
					if o.Rule.Algorithm == limit.Algorithm() {
						used++
						if j >= 60 && j < 70 {
							used++
						}
					}
				}
				if d := take(t, db, op); d.Limit-d.Remaining != used {
					t.Errorf("limit %d, %s: %d used, want %d", i, limit, d.Limit-d.Remaining, used)
				}
			}
		})
	}
}

// TestBatchOrder: if there are more ops than fit into one script call, they still see
// the earlier ones, and mixed algorithms share a call.
func TestBatchOrder(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	limits := eachLimit(1000, time.Hour)[:6]
	ops := make([]store.Op, 600)
	for i := range ops {
		ops[i] = store.Op{Key: "k", Rule: limits[i%6].Rule(), Cost: 1}
	}
	out := make([]store.Decision, len(ops))
	if err := store.ExecuteAll(context.Background(), db, ops, out, store.Independent); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if want := int64(1000 - i/6 - 1); out[i].Remaining != want && limits[i%6].Algorithm() > store.LeakyBucket {
			t.Fatalf("op %d: remaining %d, want %d", i, out[i].Remaining, want)
		}
	}
	if !slices.ContainsFunc(out, func(d store.Decision) bool { return d.Remaining == 900 }) {
		t.Error("nobody has come to 900")
	}
}
