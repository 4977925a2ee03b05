package algorithm

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestEntries compares a packed log with a list, for gaps and counts around those that
// are written differently, and while entries leave at both ends and in between.
func TestEntries(t *testing.T) {
	rng := newRand(t)
	gaps := []int64{1, 127, 128, 3*128 - 1, 3 * 128, 1 << 32, 1<<32 + 1, year}
	counts := []int64{1, 1, 1, 2, 255, 256, logLong - 1, logLong, 1 << 16, 1 << 32}
	for range 200 {
		period := pick(rng, int64(time.Second), 100_000, 1<<40)
		r := headgate.Per(1000, micros(period)).WithAlgorithm(store.SlidingLog).Rule()
		var s State
		var want []admission
		at := pick[int64](rng, t0, 0, 1)
		for range 400 {
			switch rng.IntN(12) {
			case 0: // the oldest leave
				n := rng.IntN(len(want) + 1)
				total, head := s.V[0], s.first(r.Algorithm)
				for range n {
					count, next := s.entry(r.Algorithm, head)
					total -= count
					head = next
				}
				s.logForget(total, head)
				want = want[n:]
			case 1: // some in between
				if len(want) == 0 {
					continue
				}
				kept := want[:0:0]
				s.rewrite(&State{V: s.V, Words: s.Words}, s.first(r.Algorithm), func(at, count int64) int64 {
					if at%3 == 0 {
						return 0
					}
					kept = append(kept, admission{at, (count + 1) / 2})
					return (count + 1) / 2
				})
				want = kept
			case 2: // the newest becomes larger
				if last := len(want) - 1; last >= 0 {
					n, late := pick(rng, counts...), rng.Int64N(2)*pick(rng, gaps...)
					want[last].at = min(want[last].at+late, maxTime)
					want[last].count += n
					s.addToNewest(r, want[last].at, n)
				}
			case 3: // a limit with another width
				r = headgate.Per(1+rng.Int64N(2000), micros(near(rng, 1000, year))).WithAlgorithm(store.SlidingLog).Rule()
			default:
				prev := at
				if len(want) > 0 {
					prev = want[len(want)-1].at
				}
				count := pick(rng, counts...)
				at = min(prev+min(pick(rng, gaps...), pick(rng, gaps...)), maxTime)
				s.appendEntry(r, at, count)
				want = append(want, admission{at, count})
			}
			checkEntries(t, &s, want)
		}
	}
}

// checkEntries fails if the log does not hold the wanted entries.
func checkEntries(t *testing.T, s *State, want []admission) {
	t.Helper()
	const a = store.SlidingLog
	var got []admission
	var total, taken int64
	for c, end := s.first(a), s.end(a); c.i < end; {
		count, next := s.entry(a, c)
		got = append(got, admission{c.at, count})
		total += count
		taken += places(count)
		c = next
	}
	if !slices.Equal(got, want) || s.V[0] != total || s.V[3] != taken {
		t.Fatalf("V %v, got %v, want %v", s.V, got, want)
	}
	u := s.Unpack(a, nil)
	again := u.Pack(a)
	if v := again.Unpack(a, nil); len(want) > 0 && (!slices.Equal(u.List, v.List) || u.V != v.V) {
		t.Fatalf("%v is %v after packing and unpacking", u, v)
	}
}

// TestSizeOfLogs: a full log of requests of cost 1 takes at most k + 7 bits for each,
// however they lie in the period, and at most k + 2 if they come evenly.
func TestSizeOfLogs(t *testing.T) {
	rng := newRand(t)
	for range 100 {
		r := headgate.Per(10+rng.Int64N(1000), micros(near(rng, 1_000_000, year))).WithAlgorithm(store.SlidingLog).Rule()
		var s State
		now, spread := int64(t0), pick[int64](rng, 1, 4, 100)
		for range 3 * r.Limit {
			now += near(rng, 1, spread*r.Period/r.Limit)
			Step(r, &s, now, Request{Cost: 1})
		}
		live := s.end(r.Algorithm) - s.V[1]
		k := int64(widthFor(r.Period / r.Limit))
		if most := r.Limit*(k+7) + 64; live > most {
			t.Errorf("%d of %d: %d bits, want at most %d", s.V[3], r.Limit, live, most)
		}
		s = State{}
		for range r.Limit {
			now += r.Period/r.Limit + 1
			Step(r, &s, now, Request{Cost: 1})
		}
		if live := s.end(r.Algorithm) - s.V[1]; live > s.V[3]*(k+2) {
			t.Errorf("%d that come evenly: %d bits, k is %d", s.V[3], live, k)
		}
	}
}
