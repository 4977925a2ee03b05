package memory

import (
	"encoding/binary"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// What a snapshot must know about states, which otherwise only package algorithm knows:
// whether a state is possible, so that a file with correct checksums but wrong content
// cannot make a step fail, and how to move it in time.

func readRecord(b []byte) record {
	r := record{algorithm: headgate.Algorithm(b[0])}
	b = b[1:]
	for i := range r.state.V {
		r.state.V[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	r.state.Credit = int64(binary.LittleEndian.Uint64(b[32:]))
	r.state.Until = int64(binary.LittleEndian.Uint64(b[40:]))
	b = b[48:]
	if n := len(b) / 8; n > 0 {
		r.state.Words = make([]int64, n)
		for i := range r.state.Words {
			r.state.Words[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return r
}

// possible reports whether a step could have written r.
func (r *record) possible() bool {
	const most = 1 << 53
	st := &r.state
	for _, v := range [...]int64{st.V[0], st.V[1], st.V[2], st.V[3], st.Credit, st.Until} {
		if v < 0 || v >= most {
			return false
		}
	}
	switch r.algorithm {
	case headgate.SlidingLog, headgate.Concurrency:
		return r.possibleLog()
	case headgate.SlidingBuckets:
		var sum int64
		for _, n := range st.Words {
			if n < 0 || n >= most {
				return false
			}
			if sum += n; sum >= most {
				return false
			}
		}
		return len(st.Words) <= headgate.MaxBuckets+1 && (len(st.Words) == 0) == (st.V[1] == 0) &&
			(st.V[1] == 0 || st.V[0] < most/st.V[1])
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow:
		return len(st.Words) == 0
	}
	return false
}

// The layout of a log's entries; see package algorithm.
const (
	logShift = 10
	logLong  = 1<<logShift - 1
)

// possibleLog checks the entries of a log, which must lead from its head through its
// newest entry to its end, and add up to its total.
func (r *record) possibleLog() bool {
	st := &r.state
	words, n := st.Words, int64(len(st.Words))
	total, newest, i := int64(0), int64(0), st.V[1]
	for i < n {
		newest = i
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
	if st.V[1] >= n {
		return st.V[1] == n && n == 0 || st.V[0] == 0
	}
	return total == st.V[0] && newest == st.V[3]
}

// begins returns a time at or before the first write of s, which must hold its state
// itself: for a window, its start.
func (s *slot) begins() int64 {
	var st algorithm.State
	s.state(&st)
	a := headgate.TokenBucket
	switch s.codec() {
	case codecWindow:
		a = headgate.FixedWindow
	case codecSliding:
		a = headgate.SlidingWindow
	}
	return begins(a, &st)
}

func begins(a headgate.Algorithm, st *algorithm.State) int64 {
	switch a {
	case headgate.FixedWindow:
		return st.V[1] - windowLength(st.V[2])
	case headgate.SlidingLog, headgate.Concurrency:
		return st.V[2]
	case headgate.SlidingBuckets:
		return st.V[0] * st.V[1]
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.SlidingWindow:
	}
	return st.V[1]
}

// windowLength returns the length of a fixed window, or the maximum for a calendar
// unit.
func windowLength(code int64) int64 {
	const hour = 3_600_000_000
	most := [...]int64{
		headgate.Minute: hour, headgate.Hour: hour, headgate.Day: 25 * hour, headgate.Week: (7*24 + 1) * hour,
		headgate.Month: (31*24 + 1) * hour, headgate.Year: 366 * 24 * hour,
	}
	if code > 0 && code < int64(len(most)) {
		return most[code]
	}
	return code
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

func (r *record) moveBack(by int64) {
	st := &r.state
	st.Until = max(st.Until-by, 0)
	switch {
	case by == 0:
	case r.algorithm == headgate.SlidingLog || r.algorithm == headgate.Concurrency:
		st.V[2] = max(st.V[2]-by, 0)
		for i := 0; i < len(st.Words); i++ {
			count := st.Words[i] & logLong
			at := max(st.Words[i]>>logShift-by, 0)
			st.Words[i] = at<<logShift | count
			if count == logLong {
				i++
			}
		}
	case r.algorithm == headgate.SlidingBuckets:
		r.turnBack(by)
	default:
		st.V[1] = max(st.V[1]-by, 0)
	}
}

// turnBack moves the counters of sliding buckets by whole sub-windows, at least as far
// as requested.
func (r *record) turnBack(by int64) {
	st := &r.state
	n := int64(len(st.Words))
	if n == 0 {
		return
	}
	steps := by/st.V[1] + 1
	turned := make([]int64, n)
	for j := max(st.V[0]-n+1, steps, 0); j <= st.V[0]; j++ {
		turned[(j-steps)%n] = st.Words[j%n]
	}
	st.V[0] = max(st.V[0]-steps, 0)
	st.Words = turned
}
