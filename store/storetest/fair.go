package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func fairCases() []testCase {
	return []testCase{
		{"FairShares", fairShares},
		{"FairWait", fairWait},
		{"FairIsAllOrNothing", fairAllOrNothing},
		{"FairReturns", fairReturns},
		{"FairOfWhatCannot", fairOfNone},
	}
}

// sharing returns op with a share of who.
func sharing(s *session, op store.Op, who string, weight int64) store.Op {
	s.Helper()
	fair, err := store.NewFair(op.Rule, 10*time.Second)
	if err != nil {
		s.Fatal(err)
	}
	op.Share = &store.Share{Fair: fair, Of: who, Weight: weight}
	return op
}

// fairShares: who has used up its time is refused until RetryAfter, and another passes; a name
// is no prefix or spelling of another, nor a key of the limit.
func fairShares(s *session) {
	limit := headgate.PerSecond(100).WithName("shared")
	long := strings.Repeat("z", 65)
	for i, who := range []string{"a", "", "A", "a~", "a%7E", long, long + "z", "k"} {
		start := int64(i) * minute
		took := 0
		var last store.Decision
		for range 100 {
			if last = s.take(sharing(s, at(start, limit), who, 1)); !last.Allowed {
				break
			}
			took++
		}
		if took < 40 || took > 90 || last.Reason != store.ReasonShare || last.Remaining != 0 {
			s.Errorf("%q took %d of 100, then %s", who, took, show(last))
		}
		retry := start + int64(last.RetryAfter/time.Microsecond)
		if d := s.take(sharing(s, at(retry, limit), who, 1)); !d.Allowed {
			s.Errorf("%q at RetryAfter: %s", who, show(d))
		}
		if d := s.take(sharing(s, at(retry, limit), who+"2", 1)); !d.Allowed {
			s.Errorf("another than %q: %s", who, show(d))
		}
	}
	if d := s.take(at(hour, limit)); !d.Allowed || d.Remaining != 99 {
		s.Errorf("without a share: %s", show(d))
	}
}

// fairWait: who is alone waits until the bucket is full enough to be cheap, not for what a long
// horizon earns; a Peek says the same, and passes at that time but not before.
func fairWait(s *session) {
	limit := headgate.PerSecond(100).WithName("shared")
	fair, err := store.NewFair(limit.Rule(), time.Hour)
	if err != nil {
		s.Fatal(err)
	}
	ask := func(k store.Kind, after int64) store.Decision {
		op := kind(cost(at(after, limit), 10), k)
		op.Share = &store.Share{Fair: fair, Of: "a", Weight: 1}
		return s.take(op)
	}
	took := ask(store.KindTake, 0)
	for took.Allowed {
		took = ask(store.KindTake, 0)
	}
	retry := int64(took.RetryAfter / time.Microsecond)
	if took.Reason != store.ReasonShare || took.RetryAfter > time.Second || took.RetryAfter <= 0 {
		s.Errorf("alone, after its burst: %s", show(took))
	}
	if d := ask(store.KindPeek, 0); d != took && !s.ownClock() {
		s.Errorf("a peek says %s, the take before %s", show(d), show(took))
	}
	if d := ask(store.KindPeek, retry-1); d.Allowed && !s.ownClock() {
		s.Errorf("before RetryAfter: %s", show(d))
	}
	if d := ask(store.KindPeek, retry); !d.Allowed {
		s.Errorf("a peek at RetryAfter: %s", show(d))
	}
	if d := ask(store.KindTake, retry); !d.Allowed {
		s.Errorf("at RetryAfter: %s", show(d))
	}
}

// fairAllOrNothing: nobody pays for a request that another limit refuses.
func fairAllOrNothing(s *session) {
	limit, other := headgate.PerSecond(100).WithName("shared"), headgate.PerMinute(1).WithName("other")
	first := s.do(store.AllOrNothing, sharing(s, at(0, limit), "a", 1), at(0, other))
	if !first[0].Allowed || !first[1].Allowed {
		s.Errorf("both pass: %s and %s", show(first[0]), show(first[1]))
	}
	for range 100 {
		if got := s.do(store.AllOrNothing, sharing(s, cost(at(1, limit), 10), "a", 1), at(1, other)); got[1].Allowed || got[0].Granted != 0 || !got[0].Allowed {
			s.Fatalf("the other refuses: %s and %s", show(got[0]), show(got[1]))
		}
	}
	twice := s.do(store.AllOrNothing, sharing(s, cost(at(1, limit), 10), "a", 1), sharing(s, cost(at(1, limit), 10), "a", 5))
	if !twice[0].Allowed || !twice[1].Allowed || twice[1].Remaining >= twice[0].Remaining {
		s.Errorf("two shares in one call: %s and %s", show(twice[0]), show(twice[1]))
	}
	if got := s.do(store.Independent, sharing(s, at(1, limit), "b", 1), sharing(s, at(1, limit), "c", 1)); !got[0].Allowed || !got[1].Allowed {
		s.Errorf("two owners in one call: %s and %s", show(got[0]), show(got[1]))
	}
}

// fairReturns: what is refunded is the owner's again, what is charged goes into debt.
func fairReturns(s *session) {
	limit := headgate.PerSecond(100).WithName("shared")
	took := s.take(sharing(s, cost(at(0, limit), 50), "a", 1))
	s.take(sharing(s, kind(cost(at(0, limit), 50), store.KindRefund), "a", 1))
	if again := s.take(sharing(s, cost(at(0, limit), 50), "a", 1)); again.Remaining != took.Remaining && !s.ownClock() {
		s.Errorf("at first %s, after a refund %s", show(took), show(again))
	}
	s.take(sharing(s, kind(cost(at(0, limit), 40), store.KindCharge), "a", 1))
	s.take(sharing(s, kind(cost(at(0, limit), 1000), store.KindCharge), "a", 1))
	if d := s.take(sharing(s, at(10*ms, limit), "a", 1)); d.Allowed || d.Reason != store.ReasonShare {
		s.Errorf("in debt: %s", show(d))
	}
}

// fairOfNone: a store says that a limit cannot be shared, and counts nothing.
func fairOfNone(s *session) {
	bucket := sharing(s, at(0, headgate.PerSecond(100)), "a", 1)
	heavy, leaves, window, unmade := bucket, bucket, bucket, bucket
	heavy.Share = &store.Share{Fair: bucket.Share.Fair, Weight: store.MaxWeight + 1}
	leaves.Leave = 1
	window.Rule = headgate.PerSecond(100).WithAlgorithm(store.FixedWindow).Rule()
	unmade.Share = &store.Share{Weight: 1}
	for _, op := range []store.Op{heavy, leaves, window, unmade, kind(bucket, store.KindTakeUpTo), kind(bucket, store.KindDraw)} {
		s.stamp(&op)
		if d, err := store.Execute(context.Background(), s.store, op); !errors.Is(err, store.ErrInvalidLimit) || d.Allowed {
			s.Errorf("%s: %s, %v", op.Rule, show(d), err)
		}
	}
}
