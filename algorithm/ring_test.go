package algorithm

import (
	"slices"
	"testing"
)

// TestRing compares a ring with a list of numbers, for counts around those at which the
// counters become wider, and every length up to the longest.
func TestRing(t *testing.T) {
	rng := newRand(t)
	counts := []int64{0, 1, 254, 255, 256, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, maxCount}
	for n := int64(2); n <= 513; n += 1 + n/7 {
		var s State
		want := make([]int64, n) // the newest first
		g := s.ring()
		g.renew(n, 0)
		for range 300 {
			switch age := rng.Int64N(n); rng.IntN(4) {
			case 0:
				by := min(near(rng, 1, 2*n), n)
				g.advance(by)
				want = append(make([]int64, by), want[:n-by]...)
			case 1:
				count := pick(rng, counts[:1+rng.IntN(len(counts))]...)
				g.put(g.index(age), count)
				want[age] = count
			case 2:
				g.keep(&s)
				if g = s.ring(); s.V[3] > maxInteger {
					t.Fatalf("V[3] is %d", s.V[3])
				}
			case 3:
				sum := int64(0)
				for _, count := range want[:age] {
					sum += count
				}
				if got := g.sum(age); got != sum {
					t.Fatalf("the newest %d of %v add up to %d, not %d", age, want, sum, got)
				}
			}
			got := make([]int64, n)
			for age := range n {
				got[age] = g.at(g.index(age))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

// TestRingsAreAsNarrowAsTheirCounts: 1, 2, 4 or 8 bytes a counter.
func TestRingsAreAsNarrowAsTheirCounts(t *testing.T) {
	for count, words := range map[int64]int{0: 8, 255: 8, 256: 16, 1<<16 - 1: 16, 1 << 16: 31, 1<<32 - 1: 31, 1 << 32: 61, maxCount: 61} {
		var g ring
		g.renew(61, 0)
		g.put(7, count)
		if len(g.words) != words {
			t.Errorf("61 counters up to %d have %d words, want %d", count, len(g.words), words)
		}
	}
}
