// Package soft has what rules and the middleware of Go programs share about limits that are
// not the same for all requests: the arithmetic of those that mark requests instead of
// refusing them, and when to retry where a part is kept for a higher class.
package soft

import (
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/store"
)

// Of returns how much a part, in millionths, of most is.
func Of(most int64, part uint32) int64 { return most * int64(part) / store.Whole } // at most 2^60

// Widened returns r with room for twice as much at the same rate, or as much as a limit may
// have: what requests are counted by that pass over the limit. Both share a key's count under
// one scope or name, so that for r what is above it is a debt, of one limit at most.
func Widened(r *store.Rule) *store.Rule {
	if r.Unlimited {
		return r
	}
	wide := r.With(func(s *store.Settings) {
		switch s.Algorithm {
		case store.TokenBucket, store.LeakyBucket:
			s.HasBurst, s.Burst = true, min(2*r.Burst, store.MaxLimit)
		case store.SlidingLog:
			s.Limit = min(2*s.Limit, store.MaxLog)
		case store.Concurrency:
			s.Limit = min(2*s.Limit, store.MaxConcurrent)
		case store.Distinct:
			s.Limit = min(2*s.Limit, store.MaxDistinct)
		case store.FixedWindow, store.SlidingWindow, store.SlidingBuckets:
			s.Limit = min(2*s.Limit, store.MaxLimit)
		}
	})
	if !wide.Valid() { // for example a burst that cannot be counted exactly: then nothing above the limit counts
		return r
	}
	return wide
}

// Pass turns the answer to a [store.KindTakeUpTo] of a widened limit into one that allows,
// about the limit itself, of which at most most passes at once. It returns how much is used
// above the limit.
func Pass(d *store.Decision, most int64) (over int64) {
	if d.Reason == store.ReasonNoLimit || d.Reason == store.ReasonFailOpen {
		return 0
	}
	over = max(d.Limit-d.Remaining-most, 0)
	if d.Remaining, d.Limit = max(d.Remaining-(d.Limit-most), 0), most; !d.Allowed && d.Reason != store.ReasonFallback {
		d.Reason = store.ReasonOK
	}
	d.Allowed, d.RetryAfter = true, 0
	return over
}

// Above reports whether an allowed request that takes cost uses more of the limit r than a
// part, in millionths; d is the answer. For an answer that has taken nothing, that is as if
// it had.
func Above(d *store.Decision, r *store.Rule, cost int64, part uint32) bool {
	if !d.Allowed || d.Reason == store.ReasonNoLimit || d.Reason == store.ReasonFailOpen {
		return false
	}
	used, most := d.Limit-d.Remaining, d.Limit
	switch r.Algorithm {
	case store.LeakyBucket: // whose queue may be shorter than its burst, by the longest wait
		most = min(r.Burst, r.Late/max(r.Token, 1)+1)
		used = most - d.Remaining
	case store.Distinct: // of which a value may cost nothing
		cost = d.Granted
	case store.TokenBucket, store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets, store.Concurrency:
	}
	return used+max(cost-d.Granted, 0) > Of(most, part)
}

// Later sets when a request may be tried again that had to leave room to others: a few seconds
// later, at random. There would be room much sooner, but not for all who were refused.
func Later(d *store.Decision) {
	if d.Reason == store.ReasonHeadroom && d.RetryAfter != store.Never {
		d.RetryAfter = aFewSeconds() // a call, so that Later is inlined
	}
}

func aFewSeconds() time.Duration { return time.Duration(1+rand.IntN(3)) * time.Second } //nolint:gosec // a time, no secret
