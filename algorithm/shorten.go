package algorithm

import (
	"slices"

	"github.com/headgate/headgate/store"
)

// shorten moves the counts of a refused key to the windows of the rule, if the period has
// changed since they were written and n fits earlier there: otherwise, who has used up a day
// would wait for its end under a limit of a minute. It reports whether it did. A take that
// passes moves them too.
func shorten(r *store.Rule, s *State, now, n int64) bool {
	if !reshaped(r, s) {
		return false
	}
	moved := *s
	moved.Words = slices.Clone(s.Words)
	add(r, &moved, now, 0)
	if fitsWithCredit(r, &moved, now, n) >= fitsWithCredit(r, s, now, n) {
		return false
	}
	*s = moved
	return true
}

// reshaped reports whether s was written under windows of another shape than r's.
func reshaped(r *store.Rule, s *State) bool {
	switch r.Algorithm {
	case store.FixedWindow:
		return s.V[0] > 0 && s.V[2] != fixedCode(r)
	case store.SlidingWindow:
		return s.V[2] != 0 && s.V[2] != r.Period
	case store.SlidingBuckets:
		return s.V[2] != 0 && !sameShape(r, s)
	case store.TokenBucket, store.LeakyBucket, store.SlidingLog, store.Concurrency, store.Distinct:
	}
	return false
}
