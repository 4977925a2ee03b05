package storetest

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func batchCases() []testCase {
	return []testCase{
		{"TestT28_AllOrNothing", allOrNothing},
		{"AllOrNothingOnOneKeyTwice", sameKeyTwice},
		{"RefusalsCountBesideOthers", refusalsCount},
		{"IndependentOpsSeeThoseBefore", independent},
		{"EmptyBatch", emptyBatch},
		{"LengthOfOut", lengthOfOut},
	}
}

// allOrNothing: if the last of three ops refuses, the first two are not charged.
func allOrNothing(s *session) {
	for _, limit := range everyAlgorithm(5) {
		ops := []store.Op{key(at(0, limit), "a"), key(at(0, limit), "b"), key(cost(at(0, limit), 6), "c")}
		if limit.Rule().Calendar != store.NoCalendar || limit.Rule().CountRefused || limit.Rule().Anchor != store.AnchorClock {
			continue // same states as for another limit here
		}
		for i := range ops {
			ops[i].Scope = limit.String()
		}
		for range 10 {
			out := s.do(store.AllOrNothing, ops...)
			if !out[0].Allowed || out[0].Granted != 0 || out[0].Remaining != 5 || out[2].Allowed {
				s.Errorf("%s: %s, %s", limit, show(out[0]), show(out[2]))
			}
		}
		ops[2].Cost = 5
		for i, d := range s.do(store.AllOrNothing, ops...) {
			if !d.Allowed || d.Granted != ops[i].Cost {
				s.Errorf("%s: %s", limit, show(d))
			}
		}
	}
}

// refusalsCount: a limit that counts refusals counts its own, even if other limits
// allowed the request, but not those of other limits.
func refusalsCount(s *session) {
	three := headgate.Per(3, 2*time.Second).WithAlgorithm(store.SlidingLog)
	var verdicts [2]string
	for i := range 16 { // every 250 ms
		now := int64(i) * 250 * ms
		for j, limit := range []headgate.Limit{three, three.WithRefusalsCounted()} {
			wide := key(at(now, headgate.PerDay(1000)), "wide")
			one := at(now, limit)
			wide.Scope, one.Scope = limit.String(), limit.String()
			out := s.do(store.AllOrNothing, wide, one)
			verdicts[j] += map[bool]string{true: "1", false: "0"}[out[1].Allowed]
		}
	}
	if want := [2]string{"1110000011100000", "1110000000000000"}; verdicts != want {
		s.Errorf("%s, want %s", verdicts, want)
	}
	// A refusal by another limit does not count for this one.
	counting := at(8*1000*ms, three.WithRefusalsCounted())
	counting.Scope = "other"
	none := key(at(8*1000*ms, headgate.PerDay(0)), "none")
	for range 5 {
		if out := s.do(store.AllOrNothing, none, counting); !out[1].Allowed || out[1].Remaining != 3 {
			s.Errorf("with a refusal: %s", show(out[1]))
		}
	}
}

// sameKeyTwice: two ops on one state are charged together or not at all.
func sameKeyTwice(s *session) {
	for _, a := range store.Algorithms() {
		limit := headgate.PerMinute(5).WithAlgorithm(a)
		three := cost(at(0, limit), 3)
		if out := s.do(store.AllOrNothing, three, three); !out[0].Allowed || out[1].Allowed {
			s.Errorf("%s: 3 + 3 of 5: %s, %s", a, show(out[0]), show(out[1]))
		}
		two := cost(three, 2)
		if out := s.do(store.AllOrNothing, three, two); !out[0].Allowed || !out[1].Allowed || out[1].Remaining != 0 {
			s.Errorf("%s: 3 + 2 of 5: %s, %s", a, show(out[0]), show(out[1]))
		}
	}
}

func independent(s *session) {
	limit := headgate.PerMinute(5)
	other := headgate.PerMinute(2).WithAlgorithm(store.SlidingLog)
	three := cost(at(0, limit), 3)
	out := s.do(store.Independent, three, three, cost(three, 2), at(0, other), kind(three, store.KindPeek))
	for i, want := range []bool{true, false, true, true, false} {
		if out[i].Allowed != want {
			s.Errorf("op %d: %s", i, show(out[i]))
		}
	}
}

func emptyBatch(s *session) {
	for _, mode := range []store.Mode{store.Independent, store.AllOrNothing} {
		if err := store.ExecuteAll(context.Background(), s.store, nil, nil, mode); err != nil {
			s.Errorf("no ops, %s: %v", modeName(mode), err)
		}
	}
}

// lengthOfOut: elements after the answers are not changed; a slice that is too short is
// an error, and nothing is written.
func lengthOfOut(s *session) {
	op := at(0, headgate.PerMinute(5))
	s.stamp(&op)
	mark := store.Decision{Limit: -1}
	out := []store.Decision{{}, mark}
	if err := store.ExecuteAll(context.Background(), s.store, []store.Op{op}, out, store.Independent); err != nil {
		s.Fatal(err)
	}
	if !out[0].Allowed || out[1] != mark {
		s.Errorf("one op wrote %v", out)
	}
	if err := store.ExecuteAll(context.Background(), s.store, []store.Op{op, op}, out[:1], store.AllOrNothing); err == nil {
		s.Error("two ops with room for one decision: no error")
	}
	if d, err := store.Execute(context.Background(), s.store, kind(op, store.KindPeek)); err != nil || d.Remaining < 4 {
		s.Errorf("the failed Do wrote: %s, %v", show(d), err)
	}
}
