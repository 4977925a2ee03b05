package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func distinctCases() []testCase {
	return []testCase{
		{"DistinctValues", distinctValues},
		{"DistinctNeedsAValue", distinctNeedsAValue},
		{"DistinctThousandsOfValues", distinctThousands},
		{"ConcurrentValuesAdmitExactlyTheLimit", concurrentValues},
	}
}

func member(op store.Op, n uint64) store.Op {
	op.Member = n
	return op
}

// distinctValues: a value passes again for nothing, also if the key is full, and the
// refused ones are not kept; all or nothing with other limits, in which a refusal keeps
// no value.
func distinctValues(s *session) {
	limit := headgate.PerHour(3).WithAlgorithm(store.Distinct)
	op := at(0, limit)
	for i, want := range []struct {
		member  uint64
		allowed bool
		granted int64
	}{{1, true, 1}, {2, true, 1}, {1, true, 0}, {3, true, 1}, {4, false, 0}, {3, true, 0}, {4, false, 0}} {
		d := s.take(cost(member(op, want.member), 1+int64(i)))
		if d.Allowed != want.allowed || d.Granted != want.granted {
			s.Fatalf("take %d, of value %d: %s", i, want.member, show(d))
		}
	}
	s.take(kind(member(op, 2), store.KindRefund))
	s.take(member(op, 4))
	s.take(kind(op, store.KindPeek))
	s.take(member(at(hour, limit), 1)) // the next window

	op = key(at(hour, limit), "batch")
	full := key(at(hour, headgate.PerHour(1)), "batch")
	s.do(store.AllOrNothing, member(op, 1), full)
	s.do(store.AllOrNothing, member(op, 2), full) // refused: 2 is not kept
	s.do(store.Independent, member(op, 1), member(op, 3), member(op, 3), member(op, 4), member(op, 2))
	s.take(kind(op, store.KindReset))
	s.take(member(op, 2))

	// What a grant in a refused batch answers: its cost is no value.
	granted := kind(op, store.KindGrant)
	for _, n := range []int64{0, 2, store.MaxLimit + 1} {
		s.do(store.AllOrNothing, cost(member(granted, 2), n), full)
		s.do(store.AllOrNothing, cost(member(granted, 9), n), full)
	}
	s.do(store.Independent, member(op, 5), member(op, 6))
	for _, n := range []int64{0, 2, store.MaxLimit + 1} {
		s.do(store.AllOrNothing, cost(member(granted, 2), n), full)
	}
}

// distinctNeedsAValue: what does not say which value the request shows is an error, not a
// request that passes.
func distinctNeedsAValue(s *session) {
	ctx, limit := context.Background(), headgate.PerHour(3).WithAlgorithm(store.Distinct)
	op := at(0, limit)
	s.stamp(&op)
	for _, k := range []store.Kind{store.KindTake, store.KindTakeUpTo, store.KindCharge, store.KindReserve, store.KindRefund} {
		if d, err := store.Execute(ctx, s.store, kind(op, k)); !errors.Is(err, store.ErrNoMember) || errors.Is(err, store.ErrUnavailable) || d.Allowed {
			s.Errorf("%s without a value: %s, %v", k, show(d), err)
		}
	}
	for k := store.KindTake; k <= store.KindDraw; k++ {
		if _, err := store.Execute(ctx, s.store, kind(member(op, 1<<52), k)); !errors.Is(err, store.ErrNoMember) {
			s.Errorf("%s of a member that MemberOf never returns: %v", k, err)
		}
	}
	out := make([]store.Decision, 2)
	if err := store.ExecuteAll(ctx, s.store, []store.Op{member(op, 1), op}, out, store.Independent); !errors.Is(err, store.ErrNoMember) {
		s.Errorf("a batch without a value: %v", err)
	}
	if d := s.take(kind(op, store.KindPeek)); d.Remaining != 3 {
		s.Errorf("something was counted: %s", show(d))
	}
}

// distinctThousands fills a limit of thousands exactly, and one that only measures.
func distinctThousands(s *session) {
	exact := thousandsOf(s, key(at(0, headgate.PerDay(4500).WithAlgorithm(store.Distinct)), "exact"))
	if exact.Allowed || exact.Remaining != 0 {
		s.Errorf("after 5000 values of 4500: %s", show(exact))
	}
	measured := thousandsOf(s, key(at(0, headgate.PerDay(store.MaxDistinctExact+1).WithAlgorithm(store.Distinct)), "measured"))
	if n := store.MaxDistinctExact + 1 - measured.Remaining; !measured.Allowed || n < 4500 || n > 5500 { // these are no hashes
		s.Errorf("5000 values are %d: %s", n, show(measured))
	}
}

// thousandsOf shows 5000 values and returns the answer for another one.
func thousandsOf(s *session, op store.Op) store.Decision {
	const batch, spread = 500, 0x9e3779b97f4a7
	value := func(i uint64) uint64 { return 1 + i*spread%(1<<52-1) }
	for from := uint64(0); from < 5000; from += batch {
		ops := make([]store.Op, batch)
		for i := range ops {
			ops[i] = member(op, value(from+uint64(i)))
		}
		s.do(store.Independent, ops...)
	}
	if d := s.take(member(op, value(0))); !d.Allowed || d.Granted != 0 {
		s.Errorf("the first value is not known: %s", show(d))
	}
	return s.take(kind(member(op, value(5001)), store.KindPeek))
}

// concurrentValues: 16 goroutines show the same 1000 values to a limit of 700.
func concurrentValues(s *session) {
	op := at(day/2, headgate.PerDay(700).WithAlgorithm(store.Distinct))
	s.stamp(&op)
	var added atomic.Int64
	err := together(func(worker int) error {
		for i := range uint64(1000) {
			d, err := store.Execute(context.Background(), s.store, member(op, 1+(i*uint64(2*worker+1)*37)%1000))
			if err != nil {
				return err
			}
			if added.Add(d.Granted); d.Remaining < 0 {
				return fmt.Errorf("remaining %d", d.Remaining)
			}
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
	if n := added.Load(); n != 700 {
		s.Errorf("%d values were added, want 700", n)
	}
}
