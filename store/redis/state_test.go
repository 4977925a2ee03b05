package redis_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

var shared = regexp.MustCompile(`^[0-9]{1,4}$`)

// fixedLimits returns windows of lengths that the smallest state can hold, and others.
func fixedLimits() []headgate.Limit {
	fixed := func(n int64, period time.Duration) headgate.Limit {
		return headgate.Per(n, period).WithAlgorithm(store.FixedWindow)
	}
	return []headgate.Limit{
		fixed(50, 24*time.Hour), fixed(900, 7*24*time.Hour), fixed(10, 24*time.Hour),
		fixed(40, 20*24*time.Hour), fixed(30, 24*time.Hour).WithAnchor(store.AnchorFirstRequest),
		headgate.PerCalendar(60, store.Month, time.UTC), headgate.PerCalendar(1000, store.Year, time.UTC),
		headgate.PerCalendar(60, store.Day, nil).WithZone(time.UTC),
		headgate.PerCalendar(60, store.Day, nil).WithZone(time.FixedZone("UTC-12", -12*60*60)),
	}
}

// TestFixedWindowOnTheServersClock compares Lua with Go if the key's own end is that of
// the window: random operations under changing limits. The answers of the Go step just
// before and just after must enclose the answer of Lua.
func TestFixedWindowOnTheServersClock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, fixedOnTheServersClock)
}

func fixedOnTheServersClock(t *testing.T, server *redistest.Server) {
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	limits, small := fixedLimits(), 0
	for n := range 150 {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		limit := limits[rng.IntN(len(limits))]
		var state algorithm.State
		slack := time.Duration(0)
		for step := range 30 {
			if rng.IntN(10) == 0 {
				limit = limits[rng.IntN(len(limits))]
			}
			op := store.Op{Key: strconv.Itoa(n), Scope: "s", Rule: limit.Rule(), Cost: 1 + rng.Int64N(1+limit.N()/8)}
			if rng.IntN(3) == 0 {
				op.Kind = []store.Kind{
					store.KindTakeUpTo, store.KindPeek, store.KindCharge, store.KindRefund, store.KindReserve, store.KindGrant,
				}[rng.IntN(6)]
			}
			if op.Kind == store.KindGrant {
				op.Duration = 10000 * time.Hour
				slack = time.Second // the credit's end is on the server's clock
			}
			request := algorithm.RequestOf(&op)
			before := microsOf(t, server)
			got := take(t, db, op)
			after := microsOf(t, server)
			early := state
			first := algorithm.Step(limit.Rule(), &early, before, request).Decision
			last := algorithm.Step(limit.Rule(), &state, after, request).Decision
			if before/day != after/day {
				return // a window may have ended in between
			}
			if !between(got.RetryAfter, last.RetryAfter-slack, first.RetryAfter+slack) ||
				!between(got.ResetAfter, last.ResetAfter-slack, first.ResetAfter+slack) {
				t.Fatalf("key %d, step %d: %s %d of %s\n got %+v\nwant %+v\n  to %+v", n, step, op.Kind, op.Cost, limit, got, first, last)
			}
			got.RetryAfter, got.ResetAfter = last.RetryAfter, last.ResetAfter
			if limit.Rule().Anchor == store.AnchorFirstRequest && between(got.CountsUntil, first.CountsUntil, last.CountsUntil) {
				got.CountsUntil = last.CountsUntil
			}
			if got != last {
				t.Fatalf("key %d, step %d: %s %d of %s\n got %+v\nwant %+v", n, step, op.Kind, op.Cost, limit, got, last)
			}
			if limit.Rule().Anchor == store.AnchorFirstRequest {
				break // the window started at about this time: Go does not know when
			}
			if shared.MatchString(server.Do("GET", redis.KeyOf("hg", &op))) {
				small++
			}
		}
	}
	if small < 500 {
		t.Errorf("the smallest state was met only %d times", small)
	}
}

const day = 24 * 60 * 60 * 1_000_000

func between[T ~int64](d, from, to T) bool { return d >= from && d <= to }

// TestOlderStatesAreRead: states written by earlier versions keep counting.
func TestOlderStatesAreRead(t *testing.T) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	now := microsOf(t, server)
	window := store.Op{Key: "window", Rule: headgate.Per(100, 7*24*time.Hour).WithAlgorithm(store.FixedWindow).Rule(), Cost: 1}
	number := now/(7*day) + 1
	server.Do("SET", redis.KeyOf("hg", &window), fmt.Sprintf("6604800%d%07d", number, 40), "PX", "3600000")

	buckets := window
	buckets.Key, buckets.Rule = "buckets", headgate.Per(100, 60*24*time.Hour).WithAlgorithm(store.SlidingBuckets).Rule()
	rule := buckets.Rule
	size := int64(rule.Buckets) + 1
	words := make([]byte, size*2)
	newest := now / rule.Tick
	binary.BigEndian.PutUint16(words[newest%size*2:], 15)
	binary.BigEndian.PutUint16(words[(newest-5)%size*2:], 25)
	state := bytesOf(7, newest) + bytesOf(6, rule.Tick) + bytesOf(6, rule.Period) + bytesOf(2, size) + "\x02" + string(words)
	server.Do("SET", redis.KeyOf("hg", &buckets), state, "PX", "3600000")

	for _, op := range []store.Op{window, buckets} {
		for _, left := range []int64{59, 58} {
			if d := take(t, db, op); d.Remaining != left {
				t.Errorf("%s: %+v, want %d left", op.Key, d, left)
			}
		}
	}
}

// bytesOf returns the lowest n bytes of v, highest first.
func bytesOf(n int, v int64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(v))
	return string(b[8-n:])
}
