//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// withValues returns a store with keys that have shown some values each.
func withValues(t testing.TB, keys, values int, limit headgate.Limit) *Store {
	t.Helper()
	s := New(at(t0))
	for k := range keys {
		for v := range values {
			op := store.Op{Key: strconv.Itoa(k), Rule: limit.Rule(), Cost: 1, Member: store.MemberOf([16]byte{1}, strconv.Itoa(v))}
			if d, err := store.Execute(t.Context(), s, op); err != nil || !d.Allowed {
				t.Fatalf("value %d: %+v, %v", v, d, err)
			}
		}
	}
	return s
}

// TestDamagedValuesAreNotRestored: a step could not go on from these states.
func TestDamagedValuesAreNotRestored(t *testing.T) {
	limit := headgate.PerDay(1 << 20).WithAlgorithm(store.Distinct)
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
		algorithm.Step(limit.Rule(), &st, t0, algorithm.Request{Cost: 1, Member: store.MemberOf([16]byte{2}, strconv.Itoa(v))})
	}
	return saved{Unpacked: st.Unpack(store.Distinct, nil), algorithm: store.Distinct}
}

// TestValuesGiveTheirMemoryBack: the next window, and a sweep, free what many values took.
func TestValuesGiveTheirMemoryBack(t *testing.T) {
	limit := headgate.PerHour(1 << 20).WithAlgorithm(store.Distinct)
	s := withValues(t, 100, 5000, limit)
	full := s.Stats().Bytes
	next := int64(t0) + time.Hour.Microseconds()
	for k := range 100 {
		op := store.Op{Key: strconv.Itoa(k), Rule: limit.Rule(), Cost: 1, Member: 1, At: next}
		if _, err := store.Execute(t.Context(), s, op); err != nil {
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
	limit := headgate.PerDay(20).WithAlgorithm(store.Distinct)
	s := withValues(b, 1000, 20, limit)
	var keys [1000]string
	for k := range keys {
		keys[k] = strconv.Itoa(k)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		op := store.Op{Key: keys[i%1000], Rule: limit.Rule(), Cost: 1, Member: store.MemberOf([16]byte{1}, keys[i%30])}
		if _, err := store.Execute(b.Context(), s, op); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyValuesInBatches: ops of all or nothing see the same values, and those that
// change nothing do not copy them.
func TestManyValuesInBatches(t *testing.T) {
	limit := headgate.PerDay(10_000).WithAlgorithm(store.Distinct)
	s := withValues(t, 1, 10_000, limit)
	other := store.Op{Key: "0", Scope: "other", Rule: headgate.PerDay(1 << 30).Rule(), Cost: 1}
	out := make([]store.Decision, 2)
	take := func(kind store.Kind, value string) store.Decision {
		ops := []store.Op{{Key: "0", Rule: limit.Rule(), Cost: 1, Kind: kind, Member: store.MemberOf([16]byte{1}, value)}, other}
		if err := store.ExecuteAll(t.Context(), s, ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	for i, step := range []struct {
		kind      store.Kind
		value     string
		allowed   bool
		remaining int64
	}{
		{store.KindTake, "7", true, 0},
		{store.KindTake, "new", false, 0},
		{store.KindRefund, "7", true, 1},
		{store.KindTake, "new", true, 0},
		{store.KindTake, "7", false, 0},
		{store.KindCharge, "7", false, 0}, // all or nothing: not kept
		{store.KindTake, "7", false, 0},
	} {
		if d := take(step.kind, step.value); d.Allowed != step.allowed || d.Remaining != step.remaining {
			t.Errorf("step %d, %s of %s: %+v", i, step.kind, step.value, d)
		}
	}
	for _, value := range []string{"7", "another"} {
		if n := testing.AllocsPerRun(100, func() { take(store.KindTake, value) }); n > 1 { // the ops
			t.Errorf("%v allocations for a request of %s", n, value)
		}
	}
	checkShards(t, s)
}
