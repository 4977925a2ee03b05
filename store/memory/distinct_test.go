package memory

import (
	"bytes"
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
			if d, err := s.Take(t.Context(), op); err != nil || !d.Allowed {
				t.Fatalf("value %d: %+v, %v", v, d, err)
			}
		}
	}
	return s
}

// TestValuesSurviveARestart: a snapshot has the values, and above 4096 the registers.
func TestValuesSurviveARestart(t *testing.T) {
	limit := headgate.PerDay(1_000_000).Using(headgate.Distinct)
	for _, values := range []int{1, 5, 4096, 4097, 6000} {
		s := withValues(t, 2, values, limit)
		var file bytes.Buffer
		if err := s.Save(&file); err != nil {
			t.Fatal(err)
		}
		again := New(at(t0))
		if err := again.Load(&file); err != nil {
			t.Fatal(err)
		}
		for v := range values + 100 {
			op := headgate.Op{Key: "1", Limit: limit, Cost: 1, Member: headgate.MemberOf([16]byte{1}, strconv.Itoa(v))}
			want, _ := s.Take(t.Context(), op)
			if got, err := again.Take(t.Context(), op); err != nil || got != want || v < values && got.Granted != 0 {
				t.Fatalf("%d values, value %d after the restart: %+v, %v, want %+v", values, v, got, err, want)
			}
		}
		checkShards(t, again)
	}
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

// TestBytesOfValues measures what docs/distinct.md states.
func TestBytesOfValues(t *testing.T) {
	limit := headgate.PerDay(1 << 20).Using(headgate.Distinct)
	for _, c := range []struct{ keys, values, most int }{
		{10_000, 1, 170}, {10_000, 20, 350}, {2000, 100, 1400}, {200, 4096, 46_000}, {200, 4097, 28_000}, {200, 20_000, 28_000},
	} {
		s := withValues(t, c.keys, c.values, limit)
		each := s.Stats().Bytes / int64(c.keys)
		t.Logf("%d values: %d bytes a key", c.values, each)
		if each > int64(c.most) {
			t.Errorf("%d values: %d bytes a key, want at most %d", c.values, each, c.most)
		}
	}
}

// TestValuesGiveTheirMemoryBack: the next window, and a sweep, free what many values took.
func TestValuesGiveTheirMemoryBack(t *testing.T) {
	limit := headgate.PerHour(1 << 20).Using(headgate.Distinct)
	s := withValues(t, 100, 5000, limit)
	full := s.Stats().Bytes
	next := int64(t0) + time.Hour.Microseconds()
	for k := range 100 {
		op := headgate.Op{Key: strconv.Itoa(k), Limit: limit, Cost: 1, Member: 1, At: next}
		if _, err := s.Take(t.Context(), op); err != nil {
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
		if _, err := s.Take(b.Context(), op); err != nil {
			b.Fatal(err)
		}
	}
}
