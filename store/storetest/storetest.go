// Package storetest is the conformance suite of [store.Store] for authors of stores:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t *testing.T) store.Store { return mystore.New() },
//		})
//	}
//
// It compares the answers of a store, field by field, with those of [algorithm.Step] on
// a map in memory: for random operations of every kind on every algorithm, and for
// named cases, each a bug of some published rate limiter (TestT04 is trap T4 in
// docs/internals/correctness.md). Run it with -race.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Harness gives the suite a store and control over its time.
type Harness struct {
	// Open returns an empty store with space for at least 10,000 keys. The suite closes
	// it. It is called once per test, from the test's goroutine.
	Open func(t *testing.T) store.Store

	// Now and Advance are for a store that ignores Op.At even in tests. Advance moves
	// its clock forward; Now returns its time in microseconds since the Unix epoch.
	// Every op then has At 0, and cases with a clock that runs backwards are skipped.
	// Both are nil for a store that honours Op.At.
	Now     func() int64
	Advance func(d time.Duration)
}

// Run runs the whole suite, each case as a subtest with its own store.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			c.run(&session{T: t, h: h, store: open(t, h), model: newModel()})
		})
	}
}

type testCase struct {
	name string
	run  func(s *session)
}

func cases() []testCase {
	all := contractCases()
	all = append(all, trapCases()...)
	all = append(all, batchCases()...)
	all = append(all, keyCases()...)
	all = append(all, concurrentCases()...)
	all = append(all, leaseCases()...)
	all = append(all, distinctCases()...)
	all = append(all, headroomCases()...)
	all = append(all, fairCases()...)
	return append(all, differentialCases()...)
}

func open(t *testing.T, h Harness) store.Store {
	t.Helper()
	store := h.Open(t)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// t0 is the time at which the cases start: 2026-01-01 00:00 UTC, in microseconds.
const t0 = 1_767_225_600_000_000

const (
	ms     = int64(time.Millisecond / time.Microsecond)
	second = 1000 * ms
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// session is a store together with the model it is compared with.
type session struct {
	*testing.T
	h     Harness
	store store.Store
	model *model
}

// ownClock reports whether the store ignores Op.At.
func (s *session) ownClock() bool { return s.h.Advance != nil }

// stamp prepares op for the store and returns its time.
func (s *session) stamp(op *store.Op) int64 {
	if !s.ownClock() {
		return op.At
	}
	if ahead := op.At - s.h.Now(); ahead > 0 {
		s.h.Advance(time.Duration(ahead) * time.Microsecond)
	}
	op.At = 0
	return s.h.Now()
}

// take executes op on the store and the model, fails if they differ, and returns the
// decision.
func (s *session) take(op store.Op) store.Decision {
	s.Helper()
	now := s.stamp(&op)
	want := s.model.take(&op, now)
	got := earlier(1)
	if err := store.ExecuteAll(context.Background(), s.store, []store.Op{op}, got, store.Independent); err != nil {
		s.Fatalf("%s: %v", describe(&op, now), err)
	}
	if got[0] != want {
		s.Fatalf("%s:\n got %s\nwant %s", describe(&op, now), show(got[0]), show(want))
	}
	return got[0]
}

// earlier returns decisions as a caller has them that uses a slice again. A store
// overwrites all of each.
func earlier(n int) []store.Decision {
	return slices.Repeat([]store.Decision{{
		Allowed: true, Limit: -7, Remaining: -7, Granted: -7, RetryAfter: -7, ResetAfter: -7, Delay: -7,
		CountsUntil: -7, Lease: -7, Reason: store.ReasonBanned,
	}}, n)
}

// do executes ops as one batch on both. All ops have the time of the first.
func (s *session) do(mode store.Mode, ops ...store.Op) []store.Decision {
	s.Helper()
	nows := make([]int64, len(ops))
	for i := range ops {
		nows[i] = s.stamp(&ops[i])
	}
	want := make([]store.Decision, len(ops))
	s.model.do(ops, nows, want, mode)
	got := earlier(len(ops))
	if err := store.ExecuteAll(context.Background(), s.store, ops, got, mode); err != nil {
		s.Fatalf("Do of %d ops: %v", len(ops), err)
	}
	for i := range ops {
		if got[i] != want[i] {
			s.Fatalf("op %d of %d, %s, %s:\n got %s\nwant %s", i, len(ops), modeName(mode),
				describe(&ops[i], nows[i]), show(got[i]), show(want[i]))
		}
	}
	return got
}

// at returns an op of cost 1 on the key "k" at a time after t0.
func at(after int64, limit headgate.Limit) store.Op {
	return store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, At: t0 + after}
}

func cost(op store.Op, n int64) store.Op {
	op.Cost = n
	return op
}

func kind(op store.Op, k store.Kind) store.Op {
	op.Kind = k
	return op
}

func key(op store.Op, k string) store.Op {
	op.Key = k
	return op
}

func lasting(op store.Op, d time.Duration) store.Op {
	op.Duration = d
	return op
}
