package algorithm

import (
	"math/bits"

	"github.com/headgate/headgate/store"
)

// A bucket's state:
//
//	V[0]  used: units in the bucket at V[1]; 0 means that all tokens are available
//	V[1]  last: when that was, in microseconds
//	V[2]  the size of a token in units, to detect a changed limit
//	V[3]  of a token bucket: 0, or while a booked request waits for its time, 1 and the
//	      units that refunds have taken off since; see keptFor
//
// It drains Leak units per tick. A request for n tokens passes if used + n·Token is at
// most Capacity. This is the "leaky bucket as a meter" of ITU-T I.371, which decides
// the same way as a token bucket.

// Bucket is V[0], V[1] and V[2] of a bucket without credit. Unlike a State, it stays in
// registers.
type Bucket struct{ Used, Last, Token int64 }

// Take is Step for the most common request, a Take of n ≥ 1 from a bucket without
// credit, and gives the same answer. Stores should call it where nanoseconds matter: it
// writes the decision where the caller wants it, because returning and copying one
// costs as much as making it. It returns the new bucket, when that will be fresh, and
// whether it was changed, which it is if the request is allowed.
func Take(r *store.Rule, b Bucket, now, n int64, d *store.Decision) (after Bucket, fresh int64, wrote bool) {
	if r.Algorithm != store.TokenBucket || r.Tick != 1 || r.Leak == 0 || b.Token != r.Token {
		return takeAnyBucket(r, b, now, n, d)
	}
	used := b.Used
	if hi, leaked := bits.Mul64(uint64(max(now-b.Last, 0)), uint64(r.Leak)); hi != 0 || leaked >= uint64(used) {
		used = 0
	} else {
		used -= int64(leaked)
	}
	last := max(now, b.Last)
	if n > r.Burst || used > r.Capacity-n*r.Token {
		return b, bucketRefuse(r, used, last, now, n, d), false
	}
	used += n * r.Token
	fresh = min(last+int64((uint64(used)+uint64(r.Leak)-1)/uint64(r.Leak)), maxInteger)
	d.Allowed, d.Reason = true, store.ReasonOK
	d.Limit, d.Granted = r.Burst, n
	d.Remaining = int64(uint64(r.Capacity-used) / uint64(r.Token))
	d.RetryAfter, d.ResetAfter, d.Delay, d.CountsUntil = 0, micros(fresh-now), 0, fresh
	return Bucket{used, last, r.Token}, fresh, true
}

// takeAnyBucket is Take for less common cases: a queue, a tick that is not a
// microsecond, a changed limit.
func takeAnyBucket(r *store.Rule, b Bucket, now, n int64, d *store.Decision) (after Bucket, fresh int64, wrote bool) {
	used, last := bucketUsed(r, &State{V: [4]int64{b.Used, b.Last, b.Token}}, now)
	if n > r.Burst || used > r.Capacity-n*r.Token {
		return b, bucketRefuse(r, used, last, now, n, d), false
	}
	d.Delay = 0
	leaky := r.Algorithm == store.LeakyBucket
	if leaky && used > r.Free {
		if used > r.Late {
			return b, bucketRefuse(r, used, last, now, n, d), false
		}
		d.Delay = micros(drained(r, last, used-r.Free) - now)
	}
	used += n * r.Token
	fresh = drained(r, last, used)
	d.Allowed, d.Reason = true, store.ReasonOK
	d.Limit, d.Granted = r.Burst, n
	d.Remaining = (r.Capacity - used) / r.Token
	if leaky {
		d.Remaining = leakyRemaining(r, used)
	}
	d.RetryAfter, d.ResetAfter, d.CountsUntil = 0, micros(fresh-now), fresh
	return Bucket{used, last, r.Token}, fresh, true
}

// bucketRefuse is refuse for Take. It returns when the state is fresh.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func bucketRefuse(r *store.Rule, used, last, now, n int64, d *store.Decision) int64 {
	fresh := now
	if used > 0 {
		fresh = drained(r, last, used)
	}
	d.Allowed, d.Limit, d.Granted, d.Delay, d.CountsUntil = false, r.Burst, 0, 0, 0
	d.Remaining = max(r.Capacity-used, 0) / r.Token
	late := int64(0)
	if r.Algorithm == store.LeakyBucket {
		d.Remaining, late = leakyRemaining(r, used), used-r.Late
	}
	d.ResetAfter = micros(fresh - now)
	if n > r.Burst {
		d.Reason, d.RetryAfter = store.ReasonTooLarge, store.Never
		return fresh
	}
	d.Reason = store.ReasonLimited
	d.RetryAfter = micros(drained(r, last, max(used-(r.Capacity-n*r.Token), late)) - now)
	return fresh
}

// bucketUsed returns the units in the bucket at now, and the time from which it
// continues to drain: now, or the state's time if the clock has gone backwards.
func bucketUsed(r *store.Rule, s *State, now int64) (used, last int64) {
	used, last = s.V[0], s.V[1]
	if used == 0 {
		return 0, max(now, last)
	}
	if s.V[2] != r.Token {
		used = rescaled(used, s.V[2], r.Token)
	}
	if now <= last {
		return used, last
	}
	elapsed := now - last
	if r.Tick != 1 {
		elapsed = now/r.Tick - last/r.Tick
	}
	hi, leaked := bits.Mul64(uint64(elapsed), uint64(r.Leak))
	if hi != 0 || leaked >= uint64(used) {
		return 0, now
	}
	return used - int64(leaked), now
}

// rescaled converts units to another token size, in whole tokens and rounded up, so
// that a changed limit keeps its usage.
func rescaled(used, from, to int64) int64 {
	if from == 0 {
		return used
	}
	tokens := (used + from - 1) / from
	if tokens > maxInteger/to {
		return maxInteger
	}
	return tokens * to
}

// drained returns when the used units, counted from last, will have drained: the first
// tick at which nothing is left.
func drained(r *store.Rule, last, used int64) int64 {
	switch {
	case used == 0:
		return last
	case r.Leak == 1 && r.Tick == 1:
		return min(last+used, maxInteger)
	case r.Leak == 0:
		return maxInteger
	}
	ticks := (used + r.Leak - 1) / r.Leak
	if r.Tick == 1 {
		return min(last+ticks, maxInteger)
	}
	if ticks > maxInteger/r.Tick {
		return maxInteger
	}
	return min((last/r.Tick+ticks)*r.Tick, maxInteger)
}

func bucketAvailable(r *store.Rule, s *State, now int64) int64 {
	used, _ := bucketUsed(r, s, now)
	free := r.Capacity - used
	if free < 0 {
		return -1 // the amount does not matter
	}
	if r.Algorithm == store.LeakyBucket && used > r.Late {
		return 0
	}
	return free / r.Token
}

func bucketAdd(r *store.Rule, s *State, now, n int64) {
	used, last := bucketUsed(r, s, now)
	gross := bucketGross(r, s, now)
	extra := gross - used
	if n > (maxInteger-used)/r.Token {
		used = maxInteger
	} else {
		used += n * r.Token
	}
	s.V = [4]int64{used, last, r.Token, booked(gross, extra)}
}

// bucketSub refunds at most the part of the take that has not drained yet, and nothing
// that a later booking relies on.
func bucketSub(r *store.Rule, s *State, now, n, left int64) bool {
	used, last := bucketUsed(r, s, now)
	if used == 0 {
		return false
	}
	units := used
	if n <= used/r.Token {
		units = n * r.Token
	}
	if left > 0 {
		units = min(units, bucketLeaks(r, now, now+left))
	}
	gross := bucketGross(r, s, now)
	ahead := max(used, gross) // of a take of just now
	if left > 0 {
		ahead = bucketLeaks(r, last, now+left)
	}
	kept := keptFor(r, used, gross, ahead)
	if kept > 0 {
		units = min(units, min(n, maxInteger/r.Token)*r.Token-kept)
	}
	if units <= 0 {
		return false
	}
	extra := gross - used
	if gross > 0 && kept > 0 {
		extra += units
	} else if gross > 0 {
		gross -= units
	}
	s.V = [4]int64{used - units, last, r.Token, booked(gross, extra)}
	return true
}

// bucketLeaks returns the units that drain between two times.
func bucketLeaks(r *store.Rule, from, to int64) int64 {
	hi, lo := bits.Mul64(uint64(max(to/r.Tick-from/r.Tick, 0)), uint64(r.Leak))
	if hi != 0 || lo > maxInteger {
		return maxInteger
	}
	return int64(lo)
}

// bucketGross returns 0 if no booked request of a token bucket waits at now. Otherwise it
// returns the units in the bucket and what refunds have taken off since the first of
// those that wait was booked: the latest of them has its time when all but Capacity of
// that has drained, or earlier.
func bucketGross(r *store.Rule, s *State, now int64) int64 {
	if s.V[3] == 0 {
		return 0
	}
	all := State{V: [4]int64{min(s.V[0]+s.V[3]-1, maxInteger), s.V[1], s.V[2]}}
	gross, _ := bucketUsed(r, &all, now)
	// An empty bucket holds nothing that was promised: all has had its time.
	if used, _ := bucketUsed(r, s, now); used == 0 || gross <= r.Capacity {
		return 0
	}
	return gross
}

// booked returns V[3].
func booked(gross, extra int64) int64 {
	if gross == 0 {
		return 0
	}
	return min(1+max(extra, 0), maxInteger)
}

// keptFor returns how many units of a take must be kept when it is refunded, because
// later bookings rely on them: they were promised a time that would be too early without
// them, and the next ones would be booked on top of those. ahead is what had still to
// drain after the take when it was made, less what has drained since.
//
// If all of it is drained at C, the request had its time at C-Capacity or later. No
// booking has its time later than gross-Capacity. So from the one to the other at most
// gross-ahead drains, and as much is kept. Then the bucket still holds, from any time on,
// whatever was promised from that time on. Package golang.org/x/time/rate keeps as much.
//
// In a leaky bucket each request has its time when the one before it has drained, so a
// place is free again only if it is the last one.
func keptFor(r *store.Rule, used, gross, ahead int64) int64 {
	if r.Algorithm == store.LeakyBucket {
		if used <= r.Free+r.Token || used <= ahead {
			return 0 // nobody waits, or nobody behind it
		}
		return maxInteger
	}
	if gross <= ahead {
		return 0
	}
	// A time is a whole number of ticks, so ahead may be too large by less than Leak.
	// What was taken is a whole number of tokens.
	if later := gross - ahead; r.Token >= r.Leak {
		return min((later+r.Token-1)/r.Token*r.Token, maxInteger)
	}
	return min(gross-ahead+r.Leak-1, maxInteger)
}

// bucketFits returns when n tokens will fit; n is at most Burst.
func bucketFits(r *store.Rule, s *State, now, n int64) int64 {
	used, last := bucketUsed(r, s, now)
	over := max(used-(r.Capacity-n*r.Token), 0)
	if r.Algorithm == store.LeakyBucket && n > 0 {
		over = max(over, used-r.Late)
	}
	return drained(r, last, over)
}

func bucketFresh(r *store.Rule, s *State, now int64) int64 {
	used, last := bucketUsed(r, s, now)
	if used == 0 {
		return now
	}
	return drained(r, last, used)
}
