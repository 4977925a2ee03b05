package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// scratch is the memory of one decision, used again for the next.
type scratch struct {
	matches [1]rules.Matches
	results []Result // one for each of matches[0].Checks
	pending []headgate.Op
	out     []headgate.Decision
	places  []int // of each pending op in results

	costs *costRecords // or nil

	multi multiScratch // for DecideAll, which needs none of the above

	lane uint32 // for observers; see [Mark]
}

// maxKept is the number of checks up to which a scratch is kept as it is; the
// memory of a rare giant is not held on to for ever.
const maxKept = 64

// which says whose ops are asked for.
type which bool

const (
	enforcedOnly which = true
	shadowedOnly which = false
)

// fill makes a result for each check and returns how many only observe.
func (s *scratch) fill() (observing int) {
	for i := range s.matches[0].Checks {
		c := &s.matches[0].Checks[i]
		s.results = append(s.results, Result{Rule: c.Rule, Key: c.Key, Enforced: c.Enforced})
		if !c.Enforced {
			observing++
		}
	}
	return observing
}

// ops fills s.pending with what is to be asked about one sort of checks, and
// s.places with where in s.results each answer belongs.
func (s *scratch) ops(q Query, kind headgate.Kind, want which) {
	s.pending, s.places = s.pending[:0], s.places[:0]
	for i := range s.matches[0].Checks {
		c := &s.matches[0].Checks[i]
		if which(c.Enforced) != want {
			continue
		}
		s.places = append(s.places, i)
		s.pending = append(s.pending, headgate.Op{
			Key: c.Key, Scope: c.Rule.Scope, Limit: c.Rule.Limit,
			Cost: times(q.Cost, c.Cost), At: q.At, Kind: kind,
		})
	}
	s.room()
}

// room makes s.out as long as s.pending.
func (s *scratch) room() {
	if n := len(s.pending); cap(s.out) < n {
		s.out = make([]headgate.Decision, n, 2*n)
	}
	s.out = s.out[:len(s.pending)]
}

// tidy lets go of what is too large to keep.
func (s *scratch) tidy() {
	s.costs = nil
	if cap(s.results) > maxKept {
		*s = scratch{lane: s.lane}
	}
}
