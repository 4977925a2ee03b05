package storetest

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// everyAlgorithm returns one limit of n per minute for each algorithm and each of its
// options that changes how it counts.
func everyAlgorithm(n int64) []headgate.Limit {
	per := headgate.PerMinute(n)
	return []headgate.Limit{
		per,
		per.WithRefillEvery(20 * time.Second),
		per.WithAlgorithm(store.LeakyBucket),
		per.WithAlgorithm(store.FixedWindow),
		per.WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest),
		headgate.PerCalendar(n, store.Day, time.UTC),
		headgate.PerCalendar(n, store.Day, nil).WithZone(time.FixedZone("UTC+14", 14*60*60)),
		per.WithAlgorithm(store.SlidingLog),
		per.WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
		per.WithAlgorithm(store.FixedWindow).WithRefusalsCounted(),
		per.WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(),
		per.WithAlgorithm(store.SlidingBuckets).WithRefusalsCounted(),
		per.WithAlgorithm(store.SlidingWindow),
		per.WithAlgorithm(store.SlidingBuckets),
		per.WithAlgorithm(store.SlidingBuckets).WithBuckets(6, store.EdgeStrict),
		per.WithAlgorithm(store.SlidingBuckets).WithBuckets(7, store.EdgeLenient),
		headgate.Concurrent(n),
	}
}

func contractCases() []testCase {
	return []testCase{
		{"EveryVerbOnEveryAlgorithm", everyVerb},
		{"UnlimitedCountsNothing", unlimited},
		{"InvalidOpsAreRefusedBeforeAnythingIsWritten", invalidOps},
		{"AnAlgorithmHasAStateOfItsOwn", ownStates},
		{"CancelledContext", cancelledContext},
		{"ClosedStore", closedStore},
	}
}

// everyVerb uses all kinds on one key per limit, in and out of debt.
func everyVerb(s *session) {
	script := []struct {
		kind store.Kind
		cost int64
		long time.Duration
	}{
		{store.KindPeek, 1, 0},
		{store.KindTake, 1, 0},
		{store.KindTake, 0, 0},
		{store.KindTake, 5, 0},
		{store.KindTakeUpTo, 9, 0},
		{store.KindTake, 1, 0},
		{store.KindTakeUpTo, 1, 0},
		{store.KindRefund, 2, 0},
		{store.KindPeek, 2, 0},
		{store.KindPeek, 3, 0},
		{store.KindCharge, 4, 0},
		{store.KindTake, 0, 0},
		{store.KindGrant, 3, time.Minute},
		{store.KindTake, 2, 0},
		{store.KindPeek, 9, 0},
		{store.KindReserve, 2, 5 * time.Minute},
		{store.KindReserve, 1, time.Microsecond},
		{store.KindRefund, 1, 30 * time.Second},
		{store.KindRefund, math.MaxInt64, 0},
		{store.KindCharge, math.MaxInt64, 0},
		{store.KindTake, 1, 0},
		{store.KindReset, 0, 0},
		{store.KindTake, 8, 0},
		{store.KindTake, 9, 0},
		{store.KindDraw, 3, time.Second},
		{store.KindReset, 0, 0},
		{store.KindDraw, 0, time.Second},
		{store.KindDraw, 3, time.Second},
		{store.KindDraw, 1, 10 * time.Minute},
		{store.KindTake, 2, 0},
		{store.KindDraw, 9, 0},
	}
	for _, pause := range []int64{0, 1, 7 * second, 50 * second, 3 * minute} {
		for i, limit := range everyAlgorithm(8) {
			now := int64(0)
			for _, step := range script {
				op := cost(kind(at(now, limit), step.kind), step.cost)
				op.Key = string(rune('a'+i)) + time.Duration(pause).String()
				s.take(lasting(op, step.long))
				now += pause
			}
		}
		if s.ownClock() {
			return // its clock cannot go back for the next pause
		}
	}
}

func unlimited(s *session) {
	for range 3 {
		d := s.take(cost(at(0, headgate.Unlimited()), math.MaxInt64))
		if !d.Allowed || d.Reason != store.ReasonNoLimit {
			s.Fatalf("unlimited answers %s", show(d))
		}
	}
}

// invalidOps mixes an invalid op with valid ones: none of them may be executed.
func invalidOps(s *session) {
	limit := headgate.PerMinute(3)
	good := at(0, limit)
	s.stamp(&good)
	wrong := []struct {
		name string
		op   store.Op
		want error
	}{
		{"negative cost", cost(good, -1), store.ErrInvalidCost},
		{"the least cost", cost(good, math.MinInt64), store.ErrInvalidCost},
		{"unset limit", store.Op{Key: "k", Cost: 1, At: good.At}, store.ErrInvalidLimit},
		{"negative limit", store.Op{Key: "k", Cost: 1, At: good.At, Rule: headgate.PerMinute(-1).Rule()}, store.ErrInvalidLimit},
	}
	ctx := context.Background()
	for _, w := range wrong {
		for k := store.KindTake; k <= store.KindDraw; k++ {
			if _, err := store.Execute(ctx, s.store, kind(w.op, k)); !errors.Is(err, w.want) {
				s.Errorf("%s %s: error %v, want %v", k, w.name, err, w.want)
			}
		}
		for _, mode := range []store.Mode{store.Independent, store.AllOrNothing} {
			ops := []store.Op{good, w.op, good}
			err := store.ExecuteAll(ctx, s.store, ops, make([]store.Decision, 3), mode)
			if !errors.Is(err, w.want) || errors.Is(err, store.ErrUnavailable) {
				s.Errorf("Do, %s, with a %s: error %v, want %v", modeName(mode), w.name, err, w.want)
			}
		}
	}
	if d := s.take(kind(at(0, limit), store.KindPeek)); d.Remaining != 3 {
		s.Errorf("an invalid op in the middle of Do let others write: %s", show(d))
	}
}

// ownStates: one key under six algorithms has six separate counts.
func ownStates(s *session) {
	for _, a := range store.Algorithms() {
		if d := s.take(cost(at(0, headgate.PerMinute(4).WithAlgorithm(a)), 4)); !d.Allowed {
			s.Errorf("%s: %s", a, show(d))
		}
	}
}

// cancelledContext: a store answers a client that has hung up, before or during the call.
// Otherwise such clients would pass by the failure policy. Only a deadline ends a call.
func cancelledContext(s *session) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := at(0, headgate.PerMinute(5))
	s.stamp(&op)
	for i := range 10 {
		if d, err := store.Execute(ctx, s.store, op); err != nil || d.Allowed != (i < 5) {
			s.Errorf("request %d of a limit of 5: %s, %v", i, show(d), err)
		}
	}
}

func closedStore(s *session) {
	op := at(0, headgate.PerMinute(5))
	s.stamp(&op)
	if err := s.store.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	ctx := context.Background()
	if _, err := store.Execute(ctx, s.store, op); !errors.Is(err, store.ErrClosed) || !errors.Is(err, store.ErrUnavailable) {
		s.Errorf("Take after Close: %v, want ErrClosed", err)
	}
	out := make([]store.Decision, 1)
	if err := store.ExecuteAll(ctx, s.store, []store.Op{op}, out, store.Independent); !errors.Is(err, store.ErrClosed) {
		s.Errorf("Do after Close: %v, want ErrClosed", err)
	}
}

func keyCases() []testCase {
	return []testCase{
		{"TestT31_KeysAreOpaque", opaqueKeys},
		{"TestT32_ScopesAndKeysStayApart", scopesApart},
	}
}

// awkward returns keys that a store might not treat as plain bytes.
func awkward() []string {
	long := strings.Repeat("k", 10<<10)
	return []string{
		"", " ", "\x00", "\x00\x00", "a\x00", "a\x00b", "a", "A", "*", "?", "[a-z]", "k*", "k", "{k}", "{", "}", "{}",
		"{}k", "{k", "k}", "a{k}b", "a{k}c", ":", "a:", "a:b", "a_b", "a|b", "k\n", "k\r\n", "\"k\"", "'", "\\", "%s", "../k",
		"\xff", "\xff\xfe", "\xc3\x28", "é", "e\u0301", "🔑", long, long + "k", long[1:] + "j", "0", "00", "-1", "nil",
	}
}

// opaqueKeys exhausts each key, and resets one that could be a pattern.
func opaqueKeys(s *session) {
	for _, a := range store.Algorithms() {
		limit := headgate.PerDay(1).WithAlgorithm(a)
		for _, k := range awkward() {
			if d := s.take(key(at(0, limit), k)); !d.Allowed {
				s.Errorf("%s: another key has used up that of %q: %s", a, k, show(d))
			}
		}
		s.take(key(kind(at(0, limit), store.KindReset), "*"))
		for _, k := range awkward() {
			if d := s.take(key(at(0, limit), k)); d.Allowed != (k == "*") {
				s.Errorf("%s: after Reset of \"*\", key %q: %s", a, k, show(d))
			}
		}
	}
}

// scopesApart: the same key in two scopes, and pairs that are equal when joined, have
// separate states.
func scopesApart(s *session) {
	pairs := [][2]string{
		{"", ""},
		{"", "a"},
		{"a", ""},
		{"a_b", "c"},
		{"a", "b_c"},
		{"a:b", "c"},
		{"a", "b:c"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"ab", "c"},
		{"a", "bc"},
		{"", "abc"},
		{"abc", ""},
		{"{a}", "b"},
		{"a", "{b}"},
		{"\x01a", "b"},
		{"a", "\x01b"},
		{"*", "*"},
	}
	limit := headgate.PerDay(1)
	for round := range 2 {
		for _, p := range pairs {
			op := key(at(0, limit), p[1])
			op.Scope = p[0]
			if d := s.take(op); d.Allowed != (round == 0) {
				s.Errorf("round %d, scope %q key %q: %s", round, p[0], p[1], show(d))
			}
		}
	}
}
