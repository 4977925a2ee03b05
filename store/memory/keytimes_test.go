package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// everyLimit returns 2 per minute of each algorithm.
func everyLimit() []headgate.Limit {
	limits := []headgate.Limit{
		headgate.PerMinute(2).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest),
		headgate.Concurrent(2).WithLease(time.Minute),
	}
	for _, a := range store.Algorithms() {
		limits = append(limits, headgate.PerMinute(2).WithAlgorithm(a))
	}
	return limits
}

// timesAre fails unless the key of op has the times, in seconds after start, or none for -1.
func timesAre(t *testing.T, s *memory.Store, op store.Op, created, changed int) {
	t.Helper()
	want := store.Times{}
	if created >= 0 {
		want.Created = at0.Add(time.Duration(created) * time.Second)
	}
	if changed >= 0 {
		want.Changed = at0.Add(time.Duration(changed) * time.Second)
	}
	got, err := store.KeyTimes(t.Context(), s, op)
	if err != nil || !got.Created.Equal(want.Created) || !got.Changed.Equal(want.Changed) {
		t.Errorf("%s: created %s, changed %s, %v; want %s, %s", op.Rule, got.Created, got.Changed, err, want.Created, want.Changed)
	}
}

var at0 = time.Unix(1_800_000_000, 0) // the start of an hour

func TestKeyTimes(t *testing.T) {
	for _, limit := range everyLimit() {
		t.Run(limit.String(), func(t *testing.T) {
			s := memory.New(memory.WithKeyTimes())
			op := store.Op{Key: "ann", Rule: limit.Rule(), Cost: 1}
			do := func(second int, kind store.Kind, cost int64) store.Decision {
				t.Helper()
				op.At, op.Kind, op.Cost = at0.Add(time.Duration(second)*time.Second).UnixMicro(), kind, cost
				d, err := store.Execute(t.Context(), s, op)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			do(0, store.KindPeek, 1)
			timesAre(t, s, op, -1, -1)
			do(1, store.KindTake, 1)
			timesAre(t, s, op, 1, 1)
			do(2, store.KindTake, 1)
			timesAre(t, s, op, 1, 2)
			if do(3, store.KindTake, 2).Allowed {
				t.Fatal("3 of 2 passed")
			}
			do(4, store.KindPeek, 1)
			timesAre(t, s, op, 1, 2)
			do(5, store.KindReset, 0)
			timesAre(t, s, op, -1, -1)
			do(6, store.KindTake, 1)
			timesAre(t, s, op, 6, 6)
			do(600, store.KindPeek, 1) // everything is fresh
			timesAre(t, s, op, -1, -1)
			do(601, store.KindTake, 1)
			timesAre(t, s, op, 601, 601)
			s.Sweep(at0.Add(time.Hour))
			if stats := s.Stats(); stats.Keys != 0 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// Refusals that count change a key.
func TestKeyTimesOfCountedRefusals(t *testing.T) {
	s := memory.New(memory.WithKeyTimes())
	op := store.Op{Key: "ann", Rule: headgate.PerMinute(1).WithAlgorithm(store.SlidingLog).WithRefusalsCounted().Rule(), Cost: 1}
	for second := 1; second <= 2; second++ {
		op.At = at0.Add(time.Duration(second) * time.Second).UnixMicro()
		if err := store.ExecuteAll(t.Context(), s, []store.Op{op}, make([]store.Decision, 1), store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
	}
	timesAre(t, s, op, 1, 2)
}

// What was recorded goes with its key: evicted, swept or closed. Its memory is counted.
func TestKeyTimesAreBounded(t *testing.T) {
	const most = 100
	s, plain := memory.New(memory.WithKeyTimes(), memory.WithMaxKeys(most)), memory.New(memory.WithMaxKeys(most))
	for i := range 10_000 {
		op := store.Op{Key: fmt.Sprint(i), Rule: headgate.PerHour(5).Rule(), Cost: 1 + int64(i%5), At: at0.UnixMicro() + int64(i)}
		for _, db := range []*memory.Store{s, plain} {
			if _, err := store.Execute(t.Context(), db, op); err != nil {
				t.Fatal(err)
			}
		}
	}
	stats, base := s.Stats(), plain.Stats()
	const tables = 1 << 10 // by which their tables may differ: each store has its own hash
	times := stats.Bytes - base.Bytes - 64*(stats.Keys+stats.Waiting)
	if stats.Keys != base.Keys || stats.Waiting != base.Waiting || max(times, -times) > tables {
		t.Errorf("%+v with times, %+v without", stats, base)
	}
	s.Sweep(at0.Add(24 * time.Hour))
	if stats := s.Stats(); stats.Keys+stats.Waiting != 0 || stats.Bytes > plain.Stats().Bytes+tables {
		t.Errorf("%+v is left", stats)
	}
}

// A snapshot has no times: what was counted before it has an unknown beginning.
func TestKeyTimesAfterARestart(t *testing.T) {
	s := memory.New(memory.WithKeyTimes(), memory.WithClock(func() time.Time { return at0 }))
	op := store.Op{Key: "ann", Rule: headgate.PerHour(5).Rule(), Cost: 1}
	if _, err := store.Execute(t.Context(), s, op); err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(&saved); err != nil {
		t.Fatal(err)
	}
	later := memory.New(memory.WithKeyTimes(), memory.WithClock(func() time.Time { return at0.Add(time.Second) }))
	if err := later.Load(&saved); err != nil {
		t.Fatal(err)
	}
	timesAre(t, later, op, -1, -1)
	if _, err := store.Execute(t.Context(), later, op); err != nil {
		t.Fatal(err)
	}
	timesAre(t, later, op, -1, 1)
}

func TestNoKeyTimes(t *testing.T) {
	s := memory.New()
	op := store.Op{Key: "ann", Rule: headgate.PerHour(5).Rule(), Cost: 1}
	if _, err := store.KeyTimes(t.Context(), s, op); !errors.Is(err, store.ErrNoKeyTimes) {
		t.Errorf("%v", err)
	}
	if _, err := store.KeyTimes(t.Context(), s, store.Op{Key: "ann"}); !errors.Is(err, store.ErrInvalidLimit) {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.KeyTimes(t.Context(), s, op); !errors.Is(err, store.ErrClosed) {
		t.Errorf("%v", err)
	}
}
