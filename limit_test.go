package headgate_test

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func TestLimitValidate(t *testing.T) {
	const (
		unset    = "unset"
		limit    = "the limit must be"
		period   = "the period must be"
		burst    = "the burst must be"
		rounding = "too large to count so slow a rate"
		calendar = "a calendar window must be"
		buckets  = "the number of sub-windows"
		unknown  = "unknown algorithm, anchor or edge"
		ok       = ""
	)
	perMinute := headgate.PerMinute(5)
	tests := []struct {
		name  string
		limit headgate.Limit
		want  string
	}{
		{"zero value", headgate.Limit{}, unset},
		{"unlimited", headgate.Unlimited(), ok},
		{"5 a minute", perMinute, ok},
		{"limit 0 refuses all and is legal", headgate.PerSecond(0), ok},
		{"limit 0 with a burst", headgate.PerSecond(0).WithBurst(5), ok},
		{"limit -1", headgate.PerSecond(-1), limit},
		{"the least int64", headgate.PerSecond(math.MinInt64), limit},
		{"the largest limit", headgate.PerSecond(store.MaxLimit), ok},
		{"one more", headgate.PerSecond(store.MaxLimit + 1), limit},
		{"the largest int64", headgate.PerSecond(math.MaxInt64), limit},
		{"period 0", headgate.Per(1, 0), period},
		{"period -1s", headgate.Per(1, -time.Second), period},
		{"period 1ns", headgate.Per(1, 1), period},
		{"period 1.5µs", headgate.Per(1, 1500), period},
		{"period 1µs", headgate.Per(1, time.Microsecond), ok},
		{"the longest period", headgate.Per(1, store.MaxPeriod), ok},
		{"a microsecond more", headgate.Per(1, store.MaxPeriod+time.Microsecond), period},
		{"burst 0", perMinute.WithBurst(0), burst},
		{"burst -1", perMinute.WithBurst(-1), burst},
		{"the largest burst", headgate.PerSecond(1000).WithBurst(store.MaxLimit), ok},
		{"one more", perMinute.WithBurst(store.MaxLimit + 1), burst},
		{"a huge burst at 1 a year", headgate.Per(1, 365*24*time.Hour).WithBurst(store.MaxLimit), rounding},
		{"burst of a leaky bucket", perMinute.WithAlgorithm(headgate.LeakyBucket).WithBurst(9), ok},
		{"burst of a window", perMinute.WithAlgorithm(headgate.FixedWindow).WithBurst(9), "only token_bucket and leaky_bucket"},
		{"burst given first", perMinute.WithBurst(9).WithAlgorithm(headgate.SlidingLog), "only token_bucket and leaky_bucket"},
		{"two stages", perMinute.WithAlgorithm(headgate.LeakyBucket).WithBurst(12).WithDelayAfter(8), ok},
		{"no request waits", perMinute.WithAlgorithm(headgate.LeakyBucket).WithDelayAfter(5), ok},
		{"delay after more than the burst", perMinute.WithAlgorithm(headgate.LeakyBucket).WithDelayAfter(6), "without delay"},
		{"delay after 0", perMinute.WithAlgorithm(headgate.LeakyBucket).WithDelayAfter(0), "without delay"},
		{"delay of a token bucket", perMinute.WithDelayAfter(2), "only leaky_bucket"},
		{"a longest wait", perMinute.WithAlgorithm(headgate.LeakyBucket).WithMaxWait(time.Second), ok},
		{"a wait of nothing", perMinute.WithAlgorithm(headgate.LeakyBucket).WithMaxWait(0), "the maximum wait"},
		{"a wait of half a microsecond", perMinute.WithAlgorithm(headgate.LeakyBucket).WithMaxWait(500), "the maximum wait"},
		{"too long a wait", perMinute.WithAlgorithm(headgate.LeakyBucket).WithMaxWait(408 * 24 * time.Hour), "the maximum wait must be a whole number of microseconds, more than 0 and at most 407 days"},
		{"too long a period", headgate.Per(5, 408*24*time.Hour), "the period must be a whole number of microseconds, more than 0 and at most 407 days"},
		{"407 days", headgate.Per(5, 407*24*time.Hour), ok},
		{"a longest wait of a window", perMinute.WithAlgorithm(headgate.SlidingLog).WithMaxWait(time.Second), "only leaky_bucket"},
		{"steps", perMinute.WithRefillEvery(time.Second), ok},
		{"steps of nothing", perMinute.WithRefillEvery(0), "the time between two refills"},
		{"steps back", perMinute.WithRefillEvery(-time.Second), "the time between two refills"},
		{"steps of half a microsecond", perMinute.WithRefillEvery(500), "the time between two refills"},
		{"steps of 408 days", perMinute.WithBurst(store.MaxLimit).WithRefillEvery(408 * 24 * time.Hour), "the time between two refills must be a whole number of microseconds, more than 0 and at most 407 days"},
		{"the longest steps", headgate.Per(3, store.MaxPeriod).WithRefillEvery(store.MaxPeriod), ok},
		{"steps of a window", perMinute.WithAlgorithm(headgate.FixedWindow).WithRefillEvery(time.Second), "only token_bucket refills in steps"},
		{"steps of a queue", perMinute.WithRefillEvery(time.Second).WithAlgorithm(headgate.LeakyBucket), "only token_bucket refills in steps"},
		{"steps of two periods", perMinute.WithRefillEvery(2 * time.Minute), "a refill adds more tokens than the burst"},
		{"a microsecond more than a period", perMinute.WithRefillEvery(time.Minute + time.Microsecond), "a refill adds more tokens than the burst"},
		{"steps of two periods, and a burst for them", perMinute.WithBurst(10).WithRefillEvery(2 * time.Minute), ok},
		{"steps of a period, and a smaller burst", perMinute.WithBurst(4).WithRefillEvery(time.Minute), "a refill adds more tokens than the burst"},
		{"a limit of 0 in steps", headgate.PerSecond(0).WithRefillEvery(time.Hour), ok},
		{"steps that nothing divides", headgate.Per(store.MaxLimit-1, 407*24*time.Hour-time.Microsecond).WithRefillEvery(9999999967 * time.Microsecond), rounding},
		{"unknown algorithm", perMinute.WithAlgorithm(headgate.Distinct + 1), unknown},
		{"unknown anchor", perMinute.WithAlgorithm(headgate.FixedWindow).WithAnchor(7), unknown},
		{"unknown edge", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, 7), unknown},
		{"anchor of a fixed window", perMinute.WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest), ok},
		{"anchor of a bucket", perMinute.WithAnchor(headgate.AnchorFirstRequest), "only fixed_window and distinct have an anchor"},
		{"calendar day", headgate.PerCalendar(200, headgate.Day, nil), ok},
		{"calendar of no unit", headgate.PerCalendar(200, store.NoCalendar, nil), calendar},
		{"calendar of an unknown unit", headgate.PerCalendar(200, headgate.Year+1, nil), calendar},
		{"calendar of a bucket", headgate.PerCalendar(200, headgate.Day, nil).WithAlgorithm(headgate.TokenBucket), calendar},
		{"calendar from the first request", headgate.PerCalendar(200, headgate.Day, nil).WithAnchor(headgate.AnchorFirstRequest), calendar},
		{"sub-windows", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(512, headgate.EdgeStrict), ok},
		{"no sub-windows", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(0, headgate.EdgeStrict), buckets},
		{"too many", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(513, headgate.EdgeStrict), buckets},
		{"2^16 + 1, which must not wrap to 1", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(65537, headgate.EdgeStrict), buckets},
		{"more than microseconds", headgate.Per(1, 10*time.Microsecond).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(11, headgate.EdgeStrict), buckets},
		{"sub-windows of a log", perMinute.WithAlgorithm(headgate.SlidingLog).WithBuckets(6, headgate.EdgeStrict), "only sliding_buckets"},
		{"count_denied of a log", perMinute.WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(), ok},
		{"count_denied of a bucket", perMinute.WithRefusalsCounted(), "only fixed_window, sliding_log, sliding_window and sliding_buckets can count refused requests"},
		{"count_denied of a queue", perMinute.WithAlgorithm(headgate.LeakyBucket).WithRefusalsCounted(), "only fixed_window"},
		{"count_denied of leases", headgate.Concurrent(5).WithRefusalsCounted(), "only fixed_window"},
		{"count_denied of a window", perMinute.WithAlgorithm(headgate.FixedWindow).WithRefusalsCounted(), ok},
		{"count_denied of two windows", perMinute.WithAlgorithm(headgate.SlidingWindow).WithRefusalsCounted(), ok},
		{"count_denied of sub-windows", perMinute.WithAlgorithm(headgate.SlidingBuckets).WithRefusalsCounted(), ok},
		{"a mistake made good", headgate.PerSecond(-1).WithAlgorithm(headgate.SlidingLog), limit},
		{"options in another order", headgate.PerMinute(5).WithAlgorithm(headgate.SlidingBuckets).WithAlgorithm(headgate.SlidingWindow), ok},
		{"fewer sub-windows by default in 10µs", headgate.Per(1, 10*time.Microsecond).WithAlgorithm(headgate.SlidingBuckets).WithAlgorithm(headgate.SlidingBuckets), ok},
	}
	for _, tt := range tests {
		err := tt.limit.Validate()
		switch {
		case tt.want == ok && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != ok && !errors.Is(err, headgate.ErrInvalidLimit):
			t.Errorf("%s: error %v does not wrap ErrInvalidLimit", tt.name, err)
		case tt.want != ok && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: error %q does not say %q", tt.name, err, tt.want)
		}
		if tt.limit.Rule().Valid() != (tt.want == ok) {
			t.Errorf("%s: Valid() = %v", tt.name, tt.limit.Rule().Valid())
		}
	}
}

func TestLimitString(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		limit headgate.Limit
		want  string
	}{
		{headgate.PerSecond(100).WithBurst(500), "100/second token_bucket burst 500"},
		{headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket).WithBurst(12).WithDelayAfter(8).WithMaxWait(time.Second), "5/second leaky_bucket burst 12 delay after 8 wait at most 1s"},
		{headgate.PerMinute(60).WithBurst(100).WithRefillEvery(10 * time.Second), "60/minute token_bucket burst 100 refilled every 10s"},
		{headgate.Per(5, 7*24*time.Hour), "5/week token_bucket"},
		{headgate.Per(5, 30*24*time.Hour).WithBurst(9), "5/30d token_bucket burst 9"},
		{headgate.Per(5, 36*time.Hour), "5/36h token_bucket"},
		{headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted(), "5/minute sliding_log counting refusals"},
		{headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict), "5/hour sliding_buckets of 6, strict"},
		{headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict).WithRefusalsCounted(), "5/hour sliding_buckets of 6, strict counting refusals"},
		{headgate.PerCalendar(5, headgate.Day, berlin).WithRefusalsCounted(), "5/day fixed_window in Europe/Berlin counting refusals"},
		{headgate.PerHour(5).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest), "5/hour fixed_window from the first request"},
		{headgate.PerCalendar(200, headgate.Day, berlin), "200/day fixed_window in Europe/Berlin"},
		{headgate.Unlimited(), "unlimited"},
		{headgate.Limit{}, "invalid limit: unset (use Unlimited for no limit)"},
	}
	for _, tt := range tests {
		if got := tt.limit.String(); got != tt.want {
			t.Errorf("String() = %q, want %q", got, tt.want)
		}
	}
}

// TestLimitEqual: two limits made alike are equal.
func TestLimitEqual(t *testing.T) {
	if !headgate.PerMinute(5).Equal(headgate.Per(5, time.Minute)) {
		t.Error("PerMinute(5) differs from Per(5, time.Minute)")
	}
	if !headgate.PerMinute(5).WithAlgorithm(headgate.SlidingBuckets).WithAlgorithm(headgate.TokenBucket).Equal(headgate.PerMinute(5)) {
		t.Error("a detour over another algorithm leaves traces")
	}
	if headgate.PerMinute(5).Equal(headgate.PerMinute(6)) || headgate.PerMinute(5).Equal(headgate.PerMinute(5).WithAlgorithm(headgate.LeakyBucket)) {
		t.Error("different limits are equal")
	}
}

// TestEqualIsOneCount: limits are equal if and only if they share a count, however
// they were written.
func TestEqualIsOneCount(t *testing.T) {
	zone := func(name string) *time.Location {
		loaded, err := time.LoadLocation(name) // a new pointer each time
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	buckets, leaky := headgate.PerMinute(6).WithAlgorithm(headgate.SlidingBuckets), headgate.PerMinute(6).WithAlgorithm(headgate.LeakyBucket)
	classes := [][]headgate.Limit{
		{headgate.PerMinute(6), headgate.PerMinute(6).WithBurst(6), headgate.Per(6, time.Minute)},
		{headgate.PerMinute(6).WithBurst(7)},
		{headgate.PerMinute(6).WithRefillEvery(time.Minute), headgate.PerMinute(6).WithBurst(6).WithRefillEvery(time.Second).WithRefillEvery(time.Minute)},
		{headgate.PerMinute(6).WithRefillEvery(time.Second)},
		{headgate.PerHour(360)},
		{headgate.PerMinute(0), headgate.PerMinute(0).WithBurst(3)},
		{buckets, buckets.WithBuckets(60, headgate.EdgeWeighted)},
		{buckets.WithBuckets(60, headgate.EdgeStrict)},
		{buckets.WithBuckets(59, headgate.EdgeWeighted)},
		{leaky, leaky.WithDelayAfter(1), leaky.WithBurst(6)},
		{leaky.WithDelayAfter(2)},
		{leaky.WithMaxWait(time.Second)},
		{headgate.PerCalendar(6, headgate.Day, zone("Europe/Berlin")), headgate.PerCalendar(6, headgate.Day, zone("Europe/Berlin"))},
		{headgate.PerCalendar(6, headgate.Day, zone("Europe/Vienna"))},
		{headgate.PerCalendar(6, headgate.Day, nil), headgate.PerCalendar(6, headgate.Day, zone("UTC"))},
		{headgate.Concurrent(6), headgate.Concurrent(6).WithLease(time.Minute)},
		{headgate.Concurrent(6).WithLease(time.Second)},
		{headgate.PerMinute(6).WithAlgorithm(headgate.SlidingLog)},
		{headgate.PerMinute(6).WithAlgorithm(headgate.SlidingLog).WithRefusalsCounted()},
		{buckets.WithRefusalsCounted()},
		{headgate.Unlimited(), headgate.Unlimited().WithBurst(3)},
		{{}, {}},
	}
	for i, class := range classes {
		for j, other := range classes {
			for _, a := range class {
				for _, b := range other {
					if a.Equal(b) != (i == j) {
						t.Errorf("%s equals %s: %v", a, b, a.Equal(b))
					}
					x, y := store.Op{Rule: a.Rule()}, store.Op{Rule: b.Rule()}
					_, one := x.Space()
					_, two := y.Space()
					if !a.Rule().Unlimited && !b.Rule().Unlimited && (one == two) != (i == j) {
						t.Errorf("%s and %s share a count: %v", a, b, one == two)
					}
				}
			}
		}
	}
	if a, b := headgate.PerMinute(6).WithBurst(6), headgate.LimitOf(headgate.PerMinute(12).Rule().Share(0.5)).WithName("half"); !a.Equal(b) {
		t.Errorf("%s does not equal the half of 12, which has a name", a)
	}
}

// TestCompileExactly pins the integers of a few rules, which docs and the Lua
// twins quote.
func TestCompileExactly(t *testing.T) {
	tests := []struct {
		limit                       headgate.Limit
		token, leak, capacity, tick int64
	}{
		// 4 tokens per 60,000,000 µs = 1 per 15,000,000.
		{headgate.PerMinute(4), 15_000_000, 1, 60_000_000, 1},
		// 100 per second = 1 per 10,000 µs.
		{headgate.PerSecond(100).WithBurst(500), 10_000, 1, 5_000_000, 1},
		{headgate.PerDay(200), 432_000_000, 1, 86_400_000_000, 1},
		// 3 per millisecond: 3 units a µs, a token of 1000.
		{headgate.Per(3, time.Millisecond), 1000, 3, 3000, 1},
		{headgate.Per(1<<40, time.Millisecond), 125, 1 << 37, 125 << 40, 1},
		{headgate.PerSecond(0), 1, 0, 0, 1},
		{headgate.PerSecond(0).WithRefillEvery(time.Minute), 1, 0, 0, 1},
		// A step is a tick: 5 tokens in 5 s, 7/6 in 7 s, 300 in a minute.
		{headgate.PerMinute(60).WithRefillEvery(5 * time.Second), 1, 5, 60, 5_000_000},
		{headgate.PerMinute(10).WithRefillEvery(7 * time.Second), 6, 7, 60, 7_000_000},
		{headgate.PerSecond(5).WithBurst(400).WithRefillEvery(time.Minute), 1, 300, 400, 60_000_000},
		// Too large for the exact 2·P': the leak in ms, and the token for it.
		{headgate.Per(2, store.MaxPeriod).WithBurst(259), 17_381_079_811_883, 988, 259 * 17_381_079_811_883, 1000},
	}
	for _, tt := range tests {
		r := tt.limit.Rule()
		if r.Token != tt.token || r.Leak != tt.leak || r.Capacity != tt.capacity || r.Tick != tt.tick {
			t.Errorf("%v: token %d leak %d capacity %d tick %d, want %d %d %d %d",
				tt.limit, r.Token, r.Leak, r.Capacity, r.Tick, tt.token, tt.leak, tt.capacity, tt.tick)
		}
	}
}

// TestCompileInvariants: for random limits over the whole range every compiled
// integer stays below 2^53, the rate is never above what was asked for and
// at most one part in a million below (traps T29, T8). A limit without a burst
// always compiles.
func TestCompileInvariants(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	year := int64(365 * 24 * time.Hour / time.Microsecond)
	refused, unevenSteps := 0, 0
	const limits = 50_000
	for range limits {
		n, period, burst := logUniform(rng, 0, store.MaxLimit), logUniform(rng, 1000, year), logUniform(rng, 1, store.MaxLimit)
		plain := headgate.Per(n, time.Duration(period)*time.Microsecond)
		if err := plain.Validate(); err != nil {
			t.Fatalf("%d per %dµs: %v", n, period, err)
		}
		checkBucketRule(t, plain)
		if steps := plain.WithRefillEvery(time.Duration(logUniform(rng, 1, period)) * time.Microsecond); steps.Rule().Valid() {
			checkBucketRule(t, steps)
		} else {
			unevenSteps++
		}
		bursting := plain.WithBurst(burst)
		if !bursting.Rule().Valid() {
			refused++
			continue
		}
		checkBucketRule(t, bursting)
	}
	if unevenSteps > limits/5 {
		t.Errorf("%d of %d random steps were refused", unevenSteps, limits)
	}
	t.Logf("%d of %d random bursts were too large for their rate", refused, limits)
}

func checkBucketRule(t *testing.T, l headgate.Limit) {
	t.Helper()
	r := l.Rule()
	const most = 1 << 52
	if r.Token < 1 || r.Token > most || r.Leak < 0 || r.Leak > most || r.Capacity < 0 || r.Capacity > most {
		t.Fatalf("%v: out of range: %+v", l, *r)
	}
	if r.Capacity != r.Burst*r.Token {
		t.Fatalf("%v: capacity %d is not %d tokens of %d", l, r.Capacity, r.Burst, r.Token)
	}
	if r.Limit == 0 {
		return
	}
	if r.RefillEvery > 0 && r.Tick != r.RefillEvery {
		t.Fatalf("%v: a tick of %dµs, not of a step", l, r.Tick)
	}
	// asked = Limit/Period tokens a µs, got = Leak/(Token·Tick).
	asked := big.NewRat(r.Limit, r.Period)
	got := new(big.Rat).SetFrac(big.NewInt(r.Leak), new(big.Int).Mul(big.NewInt(r.Token), big.NewInt(r.Tick)))
	if got.Cmp(asked) > 0 {
		t.Fatalf("%v: the rate %s is above the %s asked for", l, got, asked)
	}
	lost := new(big.Rat).Sub(asked, got)
	if lost.Mul(lost, big.NewRat(1_000_000, 1)).Cmp(asked) > 0 {
		t.Fatalf("%v: the rate %s is more than 1e-6 below %s", l, got, asked)
	}
}

// logUniform returns a number from lo to hi, small ones as likely as large.
func logUniform(rng *rand.Rand, lo, hi int64) int64 {
	switch rng.IntN(20) {
	case 0:
		return lo
	case 1:
		return hi
	}
	l, h := math.Log(float64(lo)+1), math.Log(float64(hi)+1)
	return min(hi, max(lo, int64(math.Exp(l+rng.Float64()*(h-l)))-1))
}

func TestSubWindowWidth(t *testing.T) {
	tests := []struct {
		limit headgate.Limit
		want  int64
	}{
		{headgate.PerHour(5).WithAlgorithm(headgate.SlidingBuckets), 60_000_000},
		{headgate.PerMinute(5).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(7, headgate.EdgeStrict), 8_571_429}, // rounded up
		{headgate.Per(5, 10*time.Microsecond).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(10, headgate.EdgeStrict), 1},
	}
	for _, tt := range tests {
		if got := tt.limit.Rule().Tick; got != tt.want {
			t.Errorf("%v: sub-windows of %dµs, want %d", tt.limit, got, tt.want)
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	for _, a := range store.Algorithms() {
		if got, ok := store.ParseAlgorithm(a.String()); !ok || got != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a, got, ok)
		}
	}
	if _, ok := store.ParseAlgorithm("token-bucket"); ok {
		t.Error("ParseAlgorithm accepts token-bucket")
	}
}

// The mistakes name the bounds as the constants have them.
func TestMistakesNameTheBounds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit headgate.Limit
		bound int64
	}{
		{headgate.PerSecond(store.MaxLimit + 1), store.MaxLimit},
		{headgate.PerSecond(1).WithBurst(store.MaxLimit + 1), store.MaxLimit},
		{headgate.PerSecond(1).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(store.MaxBuckets+1, headgate.EdgeStrict), store.MaxBuckets},
		{headgate.PerSecond(store.MaxLog + 1).WithAlgorithm(headgate.SlidingLog), store.MaxLog},
		{headgate.Concurrent(store.MaxConcurrent + 1), store.MaxConcurrent},
		{headgate.Per(1, store.MaxPeriod+time.Microsecond), int64(store.MaxPeriod / (24 * time.Hour))},
	} {
		err := row.limit.Validate()
		if err == nil || !strings.Contains(err.Error(), " "+strconv.FormatInt(row.bound, 10)) {
			t.Errorf("%v, want %d in it", err, row.bound)
		}
	}
}

func TestWithRateKeepsAllElse(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	blocks := store.Blocks{MaxAge: time.Second}
	daily := headgate.PerCalendar(200, headgate.Day, berlin)
	for _, c := range []struct {
		got  *store.Rule
		want headgate.Limit
	}{
		{headgate.PerSecond(5).Rule().WithRate(500, store.Micros(time.Minute), store.NoCalendar), headgate.PerMinute(500)},
		{headgate.PerSecond(5).WithBurst(9).Rule().WithRate(500, store.Micros(time.Minute), store.NoCalendar), headgate.PerMinute(500).WithBurst(9)},
		{headgate.PerSecond(5).WithBurst(9).Rule().WithRate(0, store.Micros(time.Minute), store.NoCalendar), headgate.PerMinute(0)},
		{headgate.Unlimited().Rule().WithRate(5, store.Micros(time.Minute), store.NoCalendar), headgate.PerMinute(5)},
		{headgate.PerMinute(60).WithRefillEvery(time.Second).Rule().WithRate(120, store.Micros(time.Minute), store.NoCalendar), headgate.PerMinute(120).WithRefillEvery(time.Second)},
		{headgate.PerMinute(6).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict).WithRefusalsCounted().Rule().WithRate(9, store.Micros(time.Hour), store.NoCalendar), headgate.PerHour(9).WithAlgorithm(headgate.SlidingBuckets).WithBuckets(6, headgate.EdgeStrict).WithRefusalsCounted()},
		{headgate.PerSecond(100).Rule().InBlocks(blocks).InRegions(store.Regions{Home: "eu"}).WithRate(50, store.Micros(2*time.Second), store.NoCalendar), headgate.LimitOf(headgate.Per(50, 2*time.Second).Rule().InBlocks(blocks).InRegions(store.Regions{Home: "eu"}))},
		{headgate.PerSecond(100).WithBurst(200).Rule().InBlocks(blocks).WithRate(400, store.Micros(time.Second), store.NoCalendar), headgate.PerSecond(400).WithBurst(200)}, // too small for a block
		{daily.Rule().WithRate(9, 0, headgate.Month), headgate.PerCalendar(9, headgate.Month, berlin)},
		{daily.WithZone(berlin).Rule().WithRate(9, 0, headgate.Day), headgate.PerCalendar(9, headgate.Day, berlin).WithZone(berlin)},
		{daily.Rule().WithRate(9, store.Micros(time.Hour), store.NoCalendar), headgate.PerHour(9).WithAlgorithm(headgate.FixedWindow)},
		{headgate.PerSecond(5).Rule().WithRate(9, 0, headgate.Month), headgate.Per(9, 30*24*time.Hour)},
		{headgate.PerSecond(5).WithName("a").Rule().WithRate(9, store.Micros(time.Second), store.NoCalendar), headgate.PerSecond(9).WithName("a")},
	} {
		if !c.got.Equal(c.want.Rule()) || c.got.Name != c.want.Name() || !c.want.Rule().Valid() {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if l := headgate.PerSecond(5).Rule().WithRate(-1, store.Micros(time.Second), store.NoCalendar); l.Valid() {
		t.Errorf("%s is valid", l)
	}
}
