package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// withValues returns a store with keys that have shown some values each.
func withValues(t testing.TB, keys, values int, limit headgate.Limit) *Store {
	t.Helper()
	s := New(at(t0))
	for k := range keys {
		for v := range values {
			op := headgate.Op{Key: strconv.Itoa(k), Limit: limit, Cost: 1, Member: headgate.MemberOf([16]byte{1}, strconv.Itoa(v))}
			if d, err := headgate.Execute(t.Context(), s, op); err != nil || !d.Allowed {
				t.Fatalf("value %d: %+v, %v", v, d, err)
			}
		}
	}
	return s
}

// TestDamagedValuesAreNotRestored: a step could not go on from these states.
func TestDamagedValuesAreNotRestored(t *testing.T) {
	limit := headgate.PerDay(1 << 20).Using(headgate.Distinct)
	few, many := valuesOf(t, limit, 3), valuesOf(t, limit, 5000)
	for name, r := range map[string]saved{"few": few, "many": many} {
		if !r.possible() {
			t.Fatalf("%s: what a step wrote is impossible: %v", name, r.V)
		}
	}
	for name, damage := range map[string]func(few, many *saved){
		"a value twice":         func(few, _ *saved) { few.List[1] = few.List[0] },
		"out of order":          func(few, _ *saved) { few.List[0], few.List[1] = few.List[1], few.List[0] },
		"too large":             func(few, _ *saved) { few.List[2] = 1 << 52 },
		"another count":         func(few, _ *saved) { few.V[0]++ },
		"another chance":        func(_, many *saved) { many.List[0]++ },
		"no chance":             func(_, many *saved) { many.List[0] = 0 },
		"a rank above the last": func(_, many *saved) { many.List[1] = 40 },
		"a wide word":           func(_, many *saved) { many.List[1] = 1 << 48 },
		"a negative word":       func(_, many *saved) { many.List[1] = -1 },
		"no registers":          func(_, many *saved) { many.List = many.List[:1] },
		"fewer than are kept":   func(_, many *saved) { many.V[0] = 4000 },
		"an unknown form":       func(_, many *saved) { many.V[3] = 1 << 20 },
	} {
		few, many := valuesOf(t, limit, 3), valuesOf(t, limit, 5000)
		damage(&few, &many)
		if few.possible() && many.possible() {
			t.Errorf("%s is possible", name)
		}
	}
}

// valuesOf returns a state with some values.
func valuesOf(t *testing.T, limit headgate.Limit, n int) saved {
	t.Helper()
	var st algorithm.State
	for v := range n {
		algorithm.Step(limit.Rule(), &st, t0, algorithm.Request{Cost: 1, Member: headgate.MemberOf([16]byte{2}, strconv.Itoa(v))})
	}
	return saved{Unpacked: st.Unpack(headgate.Distinct, nil), algorithm: headgate.Distinct}
}

// TestValuesGiveTheirMemoryBack: the next window, and a sweep, free what many values took.
func TestValuesGiveTheirMemoryBack(t *testing.T) {
	limit := headgate.PerHour(1 << 20).Using(headgate.Distinct)
	s := withValues(t, 100, 5000, limit)
	full := s.Stats().Bytes
	next := int64(t0) + time.Hour.Microseconds()
	for k := range 100 {
		op := headgate.Op{Key: strconv.Itoa(k), Limit: limit, Cost: 1, Member: 1, At: next}
		if _, err := headgate.Execute(t.Context(), s, op); err != nil {
			t.Fatal(err)
		}
	}
	s.Sweep(time.UnixMicro(next))
	if small := s.Stats().Bytes; small > full/8 {
		t.Errorf("%d bytes with a value each, %d with 5000", small, full)
	}
	if n := s.Sweep(time.UnixMicro(next).Add(time.Hour)); n != 100 {
		t.Errorf("%d keys were swept, want 100", n)
	}
}

func BenchmarkTakeDistinct(b *testing.B) {
	limit := headgate.PerDay(20).Using(headgate.Distinct)
	s := withValues(b, 1000, 20, limit)
	var keys [1000]string
	for k := range keys {
		keys[k] = strconv.Itoa(k)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		op := headgate.Op{Key: keys[i%1000], Limit: limit, Cost: 1, Member: headgate.MemberOf([16]byte{1}, keys[i%30])}
		if _, err := headgate.Execute(b.Context(), s, op); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyValuesInBatches: ops of all or nothing see the same values, and those that
// change nothing do not copy them.
func TestManyValuesInBatches(t *testing.T) {
	limit := headgate.PerDay(10_000).Using(headgate.Distinct)
	s := withValues(t, 1, 10_000, limit)
	other := headgate.Op{Key: "0", Scope: "other", Limit: headgate.PerDay(1 << 30), Cost: 1}
	out := make([]headgate.Decision, 2)
	take := func(kind headgate.Kind, value string) headgate.Decision {
		ops := []headgate.Op{{Key: "0", Limit: limit, Cost: 1, Kind: kind, Member: headgate.MemberOf([16]byte{1}, value)}, other}
		if err := headgate.ExecuteAll(t.Context(), s, ops, out, headgate.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	for i, step := range []struct {
		kind      headgate.Kind
		value     string
		allowed   bool
		remaining int64
	}{
		{headgate.Take, "7", true, 0},
		{headgate.Take, "new", false, 0},
		{headgate.Refund, "7", true, 1},
		{headgate.Take, "new", true, 0},
		{headgate.Take, "7", false, 0},
		{headgate.Charge, "7", false, 0}, // all or nothing: not kept
		{headgate.Take, "7", false, 0},
	} {
		if d := take(step.kind, step.value); d.Allowed != step.allowed || d.Remaining != step.remaining {
			t.Errorf("step %d, %s of %s: %+v", i, step.kind, step.value, d)
		}
	}
	for _, value := range []string{"7", "another"} {
		if n := testing.AllocsPerRun(100, func() { take(headgate.Take, value) }); n > 1 { // the ops
			t.Errorf("%v allocations for a request of %s", n, value)
		}
	}
	checkShards(t, s)
}
