package history

import (
	"slices"
)

// entry is what a call charged.
type entry struct {
	op     int // whose it is
	n      int64
	lo, hi int64 // when, at the earliest and at the latest
	// unsure says that nobody knows whether it is there: no answer came, or it
	// was charged just before something that may forget it.
	unsure bool
	until  int64 // until is, if not 0, when an entry that was given back is forgotten by everybody
}

// state is what the model knows of a key: the entries of each of its limits,
// in the order in which they were charged, and which reservations and leases
// are settled. It is never changed, only replaced.
type state struct {
	entries [][]entry
	settled []settled
	held    int64 // the latest that the clock said before it was set back, 0 if it was not
}

// settled is a reservation or lease that is no more.
type settled struct {
	op     int
	unsure bool
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

// moment is a time that is known in bounds, and by how much the clock may have
// gone back before.
type moment struct{ lo, hi int64 }

func (m moment) after(d int64) moment { return moment{m.lo + d, m.hi + d} }

// least returns the least that is used of limit i at a moment, in units.
func (k *keyModel) least(s *state, i int, at moment) int64 {
	now := at.hi
	k.scratch = k.scratch[:0]
	for _, e := range s.entries[i] {
		if e.unsure || e.until != 0 {
			if k.jumps && e.until == 0 {
				// If it was done before the clock went back, time stands still there.
				now = max(now, min(e.hi, s.held))
			}
			continue
		}
		k.scratch = append(k.scratch, charge{e.lo, e.n})
		if k.jumps {
			now = max(now, e.hi) // time stands still until it has caught up
		}
	}
	return k.limits[i].used(k.scratch, now)
}

// most returns the most that is used of limit i at a moment, in units. With a
// clock that went back, what was charged ahead of now is there in full.
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

// unsureSince makes everything unsure that may have been charged at or after a
// time, or settled: nobody notes when a settlement was.
func (s *state) unsureSince(since int64) *state {
	c := s.clone()
	for i := range c.entries {
		for j := range c.entries[i] {
			e := &c.entries[i][j]
			if e.hi >= since {
				e.unsure = true
			}
			if e.until != 0 { // the giving back may be forgotten
				e.unsure, e.until = true, 0
			}
		}
	}
	c.settled = s.allUnsure()
	return c
}
