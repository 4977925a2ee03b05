package memory

import (
	"encoding/binary"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// What a snapshot must know about states, which otherwise only package algorithm knows:
// whether a state is possible, so that a file with correct checksums but wrong content
// cannot make a step fail, and how to move it in time.

// saved is a state as a snapshot has it.
type saved struct {
	algorithm.Unpacked
	algorithm store.Algorithm
}

func readRecord(b []byte) saved {
	r := saved{algorithm: store.Algorithm(b[0])}
	b = b[1:]
	for i := range r.V {
		r.V[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	r.Credit = int64(binary.LittleEndian.Uint64(b[32:]))
	r.Until = int64(binary.LittleEndian.Uint64(b[40:]))
	b = b[48:]
	if n := len(b) / 8; n > 0 {
		r.List = make([]int64, n)
		for i := range r.List {
			r.List[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return r
}

// possible reports whether a step could have written r.
func (r *saved) possible() bool {
	const most = 1 << 53
	for _, v := range [...]int64{r.V[0], r.V[1], r.V[2], r.V[3], r.Credit, r.Until} {
		if v < 0 || v >= most {
			return false
		}
	}
	switch r.algorithm {
	case store.SlidingLog, store.Concurrency:
		return r.possibleLog()
	case store.SlidingBuckets:
		var sum int64
		for _, n := range r.List {
			if n < 0 || n >= most {
				return false
			}
			if sum += n; sum >= most {
				return false
			}
		}
		return len(r.List) <= store.MaxBuckets+1 && (len(r.List) == 0) == (r.V[1] == 0) &&
			(r.V[1] == 0 || r.V[0] < most/r.V[1])
	case store.Distinct:
		return r.PossibleValues()
	case store.TokenBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow:
		return len(r.List) == 0
	}
	return false
}

// The layout of a log's entries; see package algorithm.
const (
	logShift = 10
	logLong  = 1<<logShift - 1
)

// possibleLog checks the entries of a log, which must lead from its head through its
// newest entry to its end, in the order of their times, and add up to its total.
func (r *saved) possibleLog() bool {
	words, n := r.List, int64(len(r.List))
	total, newest, i, last := int64(0), int64(0), r.V[1], int64(0)
	for i < n {
		newest = i
		if words[i]>>logShift < last {
			return false
		}
		last = words[i] >> logShift
		count := words[i] & logLong
		if i++; count == logLong {
			if i >= n {
				return false
			}
			count = words[i]
			i++
		}
		if words[newest] < 0 || count < 0 || count >= 1<<53 {
			return false
		}
		total += count
		if total >= 1<<53 {
			return false
		}
	}
	if r.V[1] >= n {
		return r.V[1] == n && n == 0 || r.V[0] == 0
	}
	return total == r.V[0] && newest == r.V[3] && (r.algorithm == store.Concurrency || last == r.V[2])
}

// begins returns a time at or before the first write of s, which must hold its state
// itself: for a window, its start.
func (s *slot) begins() int64 {
	var st algorithm.State
	s.state(&st)
	a := store.TokenBucket
	switch s.codec() {
	case codecWindow:
		a = store.FixedWindow
	case codecSliding:
		a = store.SlidingWindow
	}
	return begins(a, &st.V)
}

func begins(a store.Algorithm, v *[4]int64) int64 {
	switch a {
	case store.FixedWindow, store.Distinct:
		return v[1] - algorithm.WindowLength(v[2])
	case store.SlidingLog, store.Concurrency:
		return v[2]
	case store.SlidingBuckets:
		return v[0] * v[1]
	case store.TokenBucket, store.LeakyBucket, store.SlidingWindow:
	}
	return v[1]
}

// moveBack moves everything in s back by some microseconds. A record must be moved
// separately.
func (s *slot) moveBack(by int64) {
	if by == 0 {
		return
	}
	if s.codec() == codecRecord {
		s.b = uint64(max(int64(s.b)-by, 0))
		return
	}
	at := max(int64(s.b&timeMask)-by, 0)
	s.b = s.b&^timeMask | uint64(at)
}

func (r *saved) moveBack(by int64) {
	r.Until = max(r.Until-by, 0)
	switch {
	case by == 0:
	case r.algorithm == store.SlidingLog || r.algorithm == store.Concurrency:
		r.V[2] = max(r.V[2]-by, 0)
		for i := 0; i < len(r.List); i++ {
			count := r.List[i] & logLong
			at := max(r.List[i]>>logShift-by, 0)
			r.List[i] = at<<logShift | count
			if count == logLong {
				i++
			}
		}
	case r.algorithm == store.SlidingBuckets:
		r.turnBack(by)
	default:
		r.V[1] = max(r.V[1]-by, 0)
	}
}

// turnBack moves the counters of sliding buckets by whole sub-windows, at least as far
// as requested.
func (r *saved) turnBack(by int64) {
	n := int64(len(r.List))
	if n == 0 {
		return
	}
	steps := by/r.V[1] + 1
	turned := make([]int64, n)
	for j := max(r.V[0]-n+1, steps, 0); j <= r.V[0]; j++ {
		turned[(j-steps)%n] = r.List[j%n]
	}
	r.V[0] = max(r.V[0]-steps, 0)
	r.List = turned
}
