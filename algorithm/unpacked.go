package algorithm

import (
	"github.com/headgate/headgate/store"
)

// Unpacked is a state as plain numbers, for storage outside this process. Its form
// never changes. V and List are, for
//
//   - a sliding log and concurrency: the total, the index in List of the oldest entry
//     that is kept, the newest time (of concurrency: the newest name), the index of the
//     newest entry, and the entries, each time·1024 + count; a count of 1023 or more is
//     stored as 1023, and the count follows in a number of its own;
//   - sliding buckets: the number of the newest sub-window, their width, the period, 0,
//     and n counters, that of sub-window j at j mod n;
//   - distinct values: as in State, with Words as the list;
//   - the others: as in State, without a list.
type Unpacked struct {
	V             [4]int64
	List          []int64
	Credit, Until int64
}

// Unpack returns the state of a under an algorithm as plain numbers. It appends the list
// to dst.
func (s *State) Unpack(a store.Algorithm, dst []int64) Unpacked {
	u := Unpacked{s.V, dst, s.Credit, s.Until}
	switch a {
	case store.SlidingLog:
		u.V[1], u.V[3] = 0, 0
		for c, end := s.first(a), s.end(a); c.i < end; {
			count, next := s.entry(a, c)
			u.V[3] = int64(len(u.List) - len(dst))
			if count >= logLong {
				u.List = append(u.List, c.at<<logShift|logLong, count)
			} else {
				u.List = append(u.List, c.at<<logShift|count)
			}
			c = next
		}
	case store.Concurrency, store.Distinct:
		for _, word := range s.Words {
			u.List = append(u.List, int64(word))
		}
	case store.SlidingBuckets:
		g := s.ring()
		u.V[3] = 0
		for i := range g.n {
			// That of the newest sub-window not after it whose number is i mod n.
			u.List = append(u.List, g.at(g.index(floorMod(s.V[0]-i, g.n))))
		}
	case store.TokenBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow:
	}
	return u
}

// Pack is the inverse of Unpack. The numbers must be what a step could have written.
func (u *Unpacked) Pack(a store.Algorithm) State {
	s := State{V: u.V, Credit: u.Credit, Until: u.Until}
	switch a {
	case store.SlidingLog:
		u.packLog(&s)
	case store.Concurrency, store.Distinct:
		for _, number := range u.List {
			s.Words = append(s.Words, uint64(number))
		}
	case store.SlidingBuckets:
		var g ring
		n, most := int64(len(u.List)), int64(0)
		for _, count := range u.List {
			most = max(most, count)
		}
		g.renew(n, most)
		for i, count := range u.List {
			g.put(int64(i), count)
		}
		if n > 0 {
			g.newest = u.V[0] % n
		}
		g.keep(&s)
	case store.TokenBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow:
	}
	return s
}

// packLog packs the entries of a log.
func (u *Unpacked) packLog(s *State) {
	from := State{Words: make([]uint64, len(u.List))}
	for i, number := range u.List {
		from.Words[i] = uint64(number)
	}
	s.V = [4]int64{2: u.V[2]}
	end := int64(len(u.List))
	if u.V[1] >= end {
		return
	}
	oldest, _, _ := leaseEntry(from.Words, u.V[1])
	// As the limit is not known, the width is that of these entries.
	r := store.Rule{Settings: store.Settings{Algorithm: store.SlidingLog, Period: u.V[2] - oldest, Limit: end - u.V[1]}}
	for i := u.V[1]; i < end; {
		at, count, next := leaseEntry(from.Words, i)
		s.appendEntry(&r, at, count)
		i = next
	}
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
