package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func headroomCases() []testCase {
	return []testCase{
		{"HeadroomIsLeft", headroomIsLeft},
		{"HeadroomIsAllOrNothing", headroomAllOrNothing},
		{"HeadroomOfWhatKeepsNone", headroomOfNone},
	}
}

func leaving(op store.Op, millionths uint32) store.Op {
	op.Leave = millionths
	return op
}

// headroomIsLeft: what is kept is refused to those who must leave it, and taken by the others,
// whatever the algorithm. The refusals say when they may pass, and then they do.
func headroomIsLeft(s *session) {
	const fifth = store.Whole / 5
	for i, limit := range everyAlgorithm(10) {
		if r := limit.Rule(); !r.CanKeep() || r.OwnZone || r.Algorithm == store.FixedWindow && s.ownClock() {
			continue // what a fixed window keeps depends on the time
		}
		start := int64(i) * day
		if d := s.take(cost(leaving(at(start, limit), fifth), 8)); !d.Allowed || d.Remaining != 0 {
			s.Errorf("%s: 8 of 10, leaving 2: %s", limit, show(d))
		}
		refused := s.take(leaving(at(start+1, limit), fifth))
		if refused.Allowed || refused.Reason != store.ReasonHeadroom || refused.RetryAfter <= 0 {
			s.Errorf("%s: one more, leaving 2: %s", limit, show(refused))
		}
		if d := s.take(kind(leaving(at(start+1, limit), fifth/2), store.KindPeek)); !d.Allowed || d.Remaining != 1 {
			s.Errorf("%s: one more, leaving 1: %s", limit, show(d))
		}
		if d := s.take(cost(leaving(at(start+1, limit), fifth), 9)); d.Reason != store.ReasonTooLarge || d.RetryAfter != store.Never {
			s.Errorf("%s: 9 of 10, leaving 2: %s", limit, show(d))
		}
		retry := start + 1 + int64(refused.RetryAfter/time.Microsecond)
		if d := s.take(kind(leaving(at(retry-1, limit), fifth), store.KindPeek)); d.Allowed && !s.ownClock() {
			s.Errorf("%s: allowed 1 µs before RetryAfter: %s", limit, show(d))
		}
		if d := s.take(kind(leaving(at(retry, limit), fifth), store.KindPeek)); !d.Allowed {
			s.Errorf("%s: refused at RetryAfter: %s", limit, show(d))
		}
		s.take(kind(at(retry, limit), store.KindReset))
	}
}

// headroomAllOrNothing: a request takes nothing of any limit if one must be left.
func headroomAllOrNothing(s *session) {
	bucket, slots := headgate.PerMinute(10).WithName("bucket"), headgate.Concurrent(5).WithName("slots")
	s.take(cost(at(0, slots), 4))
	got := s.do(store.AllOrNothing, leaving(at(0, bucket), 100_000), leaving(at(0, slots), 200_000))
	if !got[0].Allowed || got[0].Granted != 0 || got[0].Remaining != 9 || got[1].Reason != store.ReasonHeadroom {
		s.Errorf("a slot must be left: %s and %s", show(got[0]), show(got[1]))
	}
	if got := s.do(store.AllOrNothing, at(0, bucket), at(0, slots)); !got[0].Allowed || got[0].Remaining != 9 || !got[1].Allowed {
		s.Errorf("no slot must be left: %s and %s", show(got[0]), show(got[1]))
	}
}

// headroomOfNone: a store says that a limit cannot keep anything, and counts nothing.
func headroomOfNone(s *session) {
	for _, limit := range []headgate.Limit{
		headgate.PerMinute(5).WithAlgorithm(store.Distinct), headgate.PerMinute(5).WithAlgorithm(store.FixedWindow).WithRefusalsCounted(),
	} {
		op := leaving(at(0, limit), 1)
		op.Member = 1
		s.stamp(&op)
		if d, err := store.Execute(context.Background(), s.store, op); !errors.Is(err, store.ErrInvalidLimit) || d.Allowed {
			s.Errorf("%s: %s, %v", limit, show(d), err)
		}
	}
}
