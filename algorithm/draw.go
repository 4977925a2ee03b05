package algorithm

import (
	"time"

	"github.com/headgate/headgate/store"
)

// drawnPart: a draw takes at most one part in drawnPart of what is left, so that draws
// become small where little is left and other processes still get some.
const drawnPart = 4

// draw takes up to n for a process that decides on its own until Result.Delay is over,
// which is at most age. What is charged now is used later, so it must count as if it had
// been used at the last possible moment: windows end what was drawn with themselves, and
// a log counts from age later on. A bucket allows what it refills in age on top, which
// its owner accepts. docs/decisions/0105 has the proof.
func draw(r *store.Rule, s *State, now int64, req Request) Result {
	age := min(max(int64(req.Duration/time.Microsecond), 0), maxTime)
	if !r.CanDraw() {
		res := done(r, s, now, 0, false)
		res.Allowed, res.Reason, res.RetryAfter = false, store.ReasonTooLarge, store.Never
		return res
	}
	if req.Cost == 0 {
		return take(r, s, now, Request{Kind: store.KindTake})
	}
	free := max(available(r, s, now), 0)
	granted := min(req.Cost, max(free/drawnPart, min(free, 1)))
	if granted == 0 {
		res := done(r, s, now, 0, false)
		res.Allowed, res.Reason = false, store.ReasonLimited
		res.RetryAfter = micros(fits(r, s, now, 1) - now)
		return res
	}
	if s.Until <= now {
		s.Credit, s.Until = 0, 0
	}
	until := min(now+age, maxTime)
	if r.Algorithm == store.SlidingLog {
		logAddAt(r, s, now, until, granted)
	} else {
		add(r, s, now, granted)
	}
	res := took(r, s, now, granted)
	res.Delay = micros(min(until, drawEnd(r, s)) - now)
	return res
}

// drawEnd returns when what has just been drawn may no longer be used, whatever its age.
func drawEnd(r *store.Rule, s *State) int64 {
	switch r.Algorithm {
	case store.FixedWindow:
		return s.V[1]
	case store.SlidingWindow:
		return s.V[1] + r.Period
	case store.SlidingBuckets:
		return (s.V[0] + 1) * r.Tick
	case store.TokenBucket, store.LeakyBucket, store.SlidingLog, store.Concurrency, store.Distinct:
	}
	return maxInteger
}
