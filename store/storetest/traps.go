package storetest

import (
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// trapCases returns mistakes of published limiters; docs/internals/correctness.md describes each.
func trapCases() []testCase {
	return []testCase{
		{"TestT04_HugeCostsAndLimitsDoNotOverflow", hugeNumbers},
		{"TestT05_ARefusalReportsWhatIsLeft", refusalReports},
		{"TestT06_T35_StateLivesUntilItIsFresh", livesUntilFresh},
		{"TestT07_T08_TheBurstIsExact", exactBurst},
		{"TestT09_RetryAfterIsExact", exactRetry},
		{"TestT10_PartialGrantsAreWhole", wholeGrants},
		{"TestT11_RefundsLast", refundsLast},
		{"TestT12_T13_NeverAndZero", neverAndZero},
		{"TestT14_T15_ARefusalChangesNothing", refusalChangesNothing},
		{"TestT16_AFloodStillGetsItsLimit", floodGetsLimit},
		{"TestT19_FastRatesAreKept", fastRates},
		{"TestT21_PeekIsADryRun", peekIsDryRun},
		{"TestT22_AClockThatGoesBackGivesNothing", backwardClock},
		{"TestT24_LateArrivalsSpareOthers", lateArrivals},
		{"TestT26_AChangedLimitKeepsTheUse", changedLimit},
		{"TestLimitsCountApart", limitsCountApart},
		{"TestT34_DebtSaturates", debtSaturates},
	}
}

func hugeNumbers(s *session) {
	for i, limit := range []headgate.Limit{
		headgate.PerDay(1).WithBurst(5),
		headgate.Per(store.MaxLimit, 365*24*time.Hour),
		headgate.Per(store.MaxLimit, time.Millisecond),
		headgate.PerDay(store.MaxLimit).WithAlgorithm(store.SlidingWindow),
		headgate.PerDay(store.MaxLimit).WithAlgorithm(store.SlidingBuckets),
		headgate.PerDay(1 << 20).WithAlgorithm(store.SlidingLog),
		headgate.PerDay(store.MaxLimit).WithAlgorithm(store.FixedWindow),
	} {
		k := string(rune('a' + i))
		for _, n := range []int64{150_000, 1 << 40, 1<<40 + 1, 1 << 53, math.MaxInt64} {
			d := s.take(key(cost(at(int64(i)*day, limit), n), k))
			if n > limit.Burst() && (d.Allowed || d.RetryAfter != store.Never) {
				s.Errorf("%s allows %d: %s", limit, n, show(d))
			}
		}
	}
}

func refusalReports(s *session) {
	limit := headgate.PerDay(5)
	s.take(cost(at(0, limit), 4))
	if d := s.take(cost(at(0, limit), 6)); d.Remaining != 1 || d.ResetAfter == 0 || d.Allowed {
		s.Errorf("4 of 5 used, asked for 6: %s", show(d))
	}
}

// livesUntilFresh sends a request just before the state is fresh. A store whose
// lifetimes are rounded down, or last for one refill only, has already forgotten it.
func livesUntilFresh(s *session) {
	slow := headgate.Per(1, 1900*time.Millisecond)
	admitted := 0
	for after := int64(0); after < 9500*ms; after += 50 * ms {
		if s.take(at(after, slow)).Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		s.Errorf("1 per 1.9s admitted %d in 9.5s, want 5", admitted)
	}
	now := 10 * second
	for i, limit := range everyAlgorithm(2) {
		k := string(rune('a' + i))
		s.take(key(at(now, limit), k))
		d := s.take(key(at(now, limit), k))
		now += int64(d.ResetAfter/time.Microsecond) - 1
		if d := s.take(key(kind(at(now, limit), store.KindPeek), k)); d.ResetAfter != time.Microsecond && !s.ownClock() {
			s.Errorf("%s, 1µs before it is fresh: %s", limit, show(d))
		}
		now++
		if d := s.take(key(cost(at(now, limit), 2), k)); !d.Allowed {
			s.Errorf("%s, fresh: %s", limit, show(d))
		}
	}
}

func exactBurst(s *session) {
	for i, limit := range []headgate.Limit{
		headgate.Per(1_000_000_000, time.Second).WithBurst(10), headgate.PerSecond(50_000).WithBurst(10),
		headgate.Per(3, time.Millisecond).WithBurst(880), headgate.Per(7, 13*time.Second).WithBurst(100),
		headgate.PerDay(11), headgate.PerHour(999),
	} {
		for want := limit.Burst() - 1; want >= -1; want-- {
			d := s.take(key(at(0, limit), string(rune('a'+i))))
			if s.ownClock() {
				break // the clock may advance between two ops
			}
			if d.Allowed != (want >= 0) || d.Remaining != max(want, 0) {
				s.Fatalf("%s: %s, want remaining %d", limit, show(d), want)
			}
		}
	}
}

func exactRetry(s *session) {
	for i, limit := range everyAlgorithm(5) {
		if limit.Rule().CountRefused {
			continue // a refusal restarts the wait
		}
		k := string(rune('a' + i))
		now := int64(i) * 2 * day
		for _, n := range []int64{3, 1, 1} {
			s.take(key(cost(at(now, limit), n), k))
			now += 11 * second
		}
		d := s.take(key(cost(at(now, limit), 5), k))
		if d.Allowed {
			s.Fatalf("%s: %s", limit, show(d))
		}
		now += int64(d.RetryAfter/time.Microsecond) - 1
		if d := s.take(key(cost(at(now, limit), 5), k)); d.Allowed && !s.ownClock() {
			s.Errorf("%s, 1µs too early: %s", limit, show(d))
		}
		if d := s.take(key(cost(at(now+1, limit), 5), k)); !d.Allowed {
			s.Errorf("%s, in time: %s", limit, show(d))
		}
	}
}

func wholeGrants(s *session) {
	limit := headgate.Per(10, 10*time.Second)
	s.take(cost(at(0, limit), 10))
	d := s.take(cost(kind(at(2700*ms, limit), store.KindTakeUpTo), 9)) // 2.7 tokens are available
	if d.Granted != 2 {
		s.Errorf("of 2.7 tokens: %s", show(d))
	}
	if d := s.take(at(3*second, limit)); !d.Allowed {
		s.Errorf("the 0.7 that was not granted is gone: %s", show(d))
	}
}

func refundsLast(s *session) {
	limit := headgate.PerDay(10)
	s.take(cost(at(0, limit), 3))
	s.take(cost(kind(at(0, limit), store.KindRefund), 3))
	if d := s.take(kind(at(0, limit), store.KindPeek)); d.Remaining != 10 || d.ResetAfter != 0 {
		s.Errorf("after a full refund: %s", show(d))
	}
	s.take(cost(kind(at(0, limit), store.KindRefund), 100))
	if d := s.take(cost(at(0, limit), 11)); d.Allowed {
		s.Errorf("a refund went above full: %s", show(d))
	}
}

func neverAndZero(s *session) {
	for _, limit := range everyAlgorithm(0) {
		if d := s.take(at(0, limit)); d.Allowed || d.RetryAfter != store.Never || d.Reason != store.ReasonTooLarge {
			s.Errorf("%s: %s", limit, show(d))
		}
	}
	for _, limit := range everyAlgorithm(10) {
		if d := s.take(cost(at(0, limit), 50)); d.Allowed || d.RetryAfter != store.Never || d.Remaining != 10 && !limit.Rule().CountRefused {
			s.Errorf("%s, cost 50: %s", limit, show(d))
		}
	}
}

func refusalChangesNothing(s *session) {
	for i, limit := range everyAlgorithm(10) {
		if limit.Rule().CountRefused {
			continue
		}
		k := string(rune('a' + i))
		s.take(key(cost(at(0, limit), 9), k))
		for range 100 {
			s.take(key(cost(at(0, limit), 100), k))
			s.take(key(cost(at(0, limit), 2), k))
		}
		if d := s.take(key(at(0, limit), k)); !d.Allowed {
			s.Errorf("%s: refusals used up the last one: %s", limit, show(d))
		}
	}
}

func floodGetsLimit(s *session) {
	for i, limit := range everyAlgorithm(60) {
		if limit.Rule().CountRefused || limit.Period() != time.Minute {
			continue
		}
		admitted := 0
		start := int64(i) * hour
		for after := int64(0); after < 5*minute; after += 100 * ms {
			if s.take(key(at(start+after, limit), string(rune('a'+i)))).Allowed {
				admitted++
			}
		}
		if admitted < 5*59 {
			s.Errorf("%s: a steady flood of 10/s got %d in 5 minutes", limit, admitted)
		}
	}
}

func fastRates(s *session) {
	limit := headgate.PerSecond(100).WithBurst(10)
	admitted := 0
	for after := int64(0); after < 200*ms; after += ms {
		if s.take(at(after, limit)).Allowed {
			admitted++
		}
	}
	if admitted > 10+20 || admitted < 29 {
		s.Errorf("100/s, burst 10, admitted %d in 0.2s", admitted)
	}
}

func peekIsDryRun(s *session) {
	for i, limit := range everyAlgorithm(5) {
		k := string(rune('a' + i))
		for n := int64(0); n <= 6; n++ {
			op := key(cost(at(int64(i)*2*day+n*second, limit), n), k)
			peek := s.take(kind(op, store.KindPeek))
			take := s.take(op)
			if peek.Allowed != take.Allowed || peek.RetryAfter != take.RetryAfter && !limit.Rule().CountRefused && !s.ownClock() {
				s.Errorf("%s, cost %d: peek %s, take %s", limit, n, show(peek), show(take))
			}
		}
	}
}

func backwardClock(s *session) {
	if s.ownClock() {
		s.Skip("this store has its own clock")
	}
	for i, limit := range everyAlgorithm(10) {
		k := string(rune('a' + i))
		admitted := 0
		for n := range 200 {
			skew := int64(n%11-5) * second // from -5s to +5s
			if s.take(key(at(hour+30*second+skew, limit), k)).Allowed {
				admitted++
			}
		}
		if limit := int(limit.Burst()) + 2; admitted > limit { // 10/min for 10s is 1.7
			s.Errorf("%s: skewed clocks got %d", everyAlgorithm(10)[i], admitted)
		}
	}
}

func lateArrivals(s *session) {
	if s.ownClock() {
		s.Skip("this store has its own clock")
	}
	for _, limit := range everyAlgorithm(5) {
		s.take(key(cost(at(minute, limit), 5), "busy"))
		s.take(key(at(minute-1, limit), "late"))
		s.take(key(at(-hour, limit), "very late"))
		if d := s.take(key(at(minute, limit), "busy")); d.Allowed {
			s.Errorf("%s: someone else's late arrival gave back: %s", limit, show(d))
		}
	}
}

func changedLimit(s *session) {
	for i, small := range everyAlgorithm(3) {
		k := string(rune('a' + i))
		large := everyAlgorithm(10)[i].WithName("one")
		small = small.WithName("one")
		s.take(key(cost(at(0, small), 3), k))
		if d := s.take(key(kind(at(0, large), store.KindPeek), k)); d.Remaining != 7 {
			s.Errorf("%s, 3 used, raised to 10: %s", small, show(d))
		}
		s.take(key(cost(at(0, large), 7), k))
		if d := s.take(key(at(0, small), k)); d.Allowed || d.Remaining != 0 {
			s.Errorf("%s, 10 used, lowered to 3: %s", large, show(d))
		}
	}
}

// limitsCountApart: limits that differ in anything count the same key separately.
// Limits with the same meaning count together, as do those of one name or scope and one
// algorithm.
func limitsCountApart(s *session) {
	berlin := time.FixedZone("Berlin", 3600)
	apart := append(everyAlgorithm(1), headgate.PerHour(1), headgate.PerMinute(2), headgate.PerMinute(1).WithBurst(2),
		headgate.PerMinute(1).WithAlgorithm(store.LeakyBucket).WithBurst(2), headgate.PerMinute(1).WithAlgorithm(store.LeakyBucket).WithMaxWait(time.Second),
		headgate.PerCalendar(1, store.Day, berlin), headgate.PerCalendar(1, store.Hour, nil), headgate.LimitOf(headgate.PerMinute(9).Rule().Share(0.2)), headgate.LimitOf(headgate.PerMinute(8).Rule().Share(0.2)),
		headgate.PerMinute(1).WithName("a"), headgate.PerMinute(1).WithName("b"), headgate.PerMinute(1).WithAlgorithm(store.SlidingLog).WithName("a"))
	for _, limit := range apart {
		if d := s.take(at(0, limit)); !d.Allowed || d.Remaining != limit.Burst()-1 {
			s.Errorf("%s (name %q) has lost to another limit: %s", limit, limit.Name(), show(d))
		}
	}
	together := []store.Op{
		at(0, headgate.PerMinute(4)), at(0, headgate.PerMinute(4).WithName("x").WithName("")),
		at(0, headgate.Per(4, time.Minute).WithAlgorithm(store.SlidingLog).WithAlgorithm(store.TokenBucket)), at(0, headgate.PerHour(4)),
	}
	together[3].Scope = "b"
	for i, want := range []int64{3, 2, 1, 2} { // one was already taken in scope b
		if d := s.take(together[i]); d.Remaining != want {
			s.Errorf("together %d: %s, want %d left", i, show(d), want)
		}
	}
	var ops []store.Op
	for _, limit := range apart {
		ops = append(ops, kind(at(0, limit), store.KindRefund))
	}
	s.do(store.Independent, ops...)
	for _, limit := range apart[len(everyAlgorithm(1)):] {
		if d := s.take(kind(at(0, limit), store.KindPeek)); limit.Name() != "b" && d.Remaining != limit.Burst() {
			s.Errorf("%s (name %q): what was taken was not given back: %s", limit, limit.Name(), show(d))
		}
	}
}

func debtSaturates(s *session) {
	for i, limit := range everyAlgorithm(10) {
		k := string(rune('a' + i))
		for range 3 {
			s.take(key(cost(kind(at(0, limit), store.KindCharge), math.MaxInt64), k))
		}
		if d := s.take(key(at(0, limit), k)); d.Allowed || d.Remaining != 0 {
			s.Errorf("%s, in endless debt: %s", limit, show(d))
		}
	}
}
