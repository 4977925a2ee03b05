package history

import (
	"slices"
)

// entry is the charge of one call.
type entry struct {
	op     int // the op
	n      int64
	lo, hi int64 // earliest and latest time
	// unsure: it may not be there, because no answer came, or because it was charged just
	// before something that may have lost it.
	unsure bool
	until  int64 // if not 0, the time at which all nodes have forgotten a refunded entry
}

// state is the model's state of a key: the entries of each limit in order of charging, and the
// settled reservations and leases. It is immutable.
type state struct {
	entries [][]entry
	settled []settled
	held    int64 // latest time that the clock showed before it was set back, 0 if it was not
}

// settled is a finished reservation or lease.
type settled struct {
	op     int
	unsure bool
	gone   bool // the store forgot what it took; a refund may give back what others took
}

func (s *state) equal(other *state) bool {
	return s.held == other.held && slices.Equal(s.settled, other.settled) &&
		slices.EqualFunc(s.entries, other.entries, slices.Equal[[]entry])
}

// hash is the same for equal states.
func (s *state) hash() uint64 {
	h := uint64(14695981039346656037)
	mix := func(v int64) { h = (h ^ uint64(v)) * 1099511628211 }
	for _, list := range s.entries {
		mix(int64(len(list)))
		for i := range list {
			mix(int64(list[i].op))
			mix(list[i].n)
		}
	}
	for _, x := range s.settled {
		mix(int64(x.op))
	}
	return h
}

// clone returns a copy whose lists may be appended to and replaced.
func (s *state) clone() *state {
	c := &state{entries: make([][]entry, len(s.entries)), settled: slices.Clip(s.settled), held: s.held}
	for i := range s.entries {
		c.entries[i] = slices.Clone(s.entries[i])
	}
	return c
}

// moment is a time known in bounds, and how far the clock may have gone back before.
type moment struct{ lo, hi int64 }

func (m moment) after(d int64) moment { return moment{m.lo + d, m.hi + d} }

// least returns the minimum used of limit i at a moment, in units.
func (k *keyModel) least(s *state, i int, at moment) int64 {
	now := at.hi
	k.scratch = k.scratch[:0]
	for _, e := range s.entries[i] {
		if e.unsure || e.until != 0 {
			if k.jumps && e.until == 0 {
				// If this was done before the clock went back, time stops there.
				now = max(now, min(e.hi, s.held))
			}
			continue
		}
		k.scratch = append(k.scratch, charge{e.lo, e.n})
		if k.jumps {
			now = max(now, e.hi) // time stops until the clock has caught up
		}
	}
	return k.limits[i].used(k.scratch, now)
}

// most returns the maximum used of limit i at a moment, in units. After the clock went back,
// charges in the future count in full.
func (k *keyModel) most(s *state, i int, at moment) int64 {
	k.scratch = k.scratch[:0]
	for _, e := range s.entries[i] {
		if e.until != 0 && e.until < at.lo {
			continue
		}
		charged := e.hi
		if !k.jumps {
			charged = min(charged, at.lo)
		}
		k.scratch = append(k.scratch, charge{charged, e.n})
	}
	return k.limits[i].used(k.scratch, at.lo)
}

// unsureSince makes unsure everything that may have been charged at or after a time, and
// everything settled, because the times of settlements are not recorded.
func (s *state) unsureSince(since int64) *state {
	c := s.clone()
	for i := range c.entries {
		for j := range c.entries[i] {
			e := &c.entries[i][j]
			if e.hi >= since {
				e.unsure = true
			}
			if e.until != 0 { // the refund may be forgotten
				e.unsure, e.until = true, 0
			}
		}
	}
	c.settled = s.allUnsure()
	return c
}
