package when

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A meter counts times in slots of a second, by buckets that are at most a sixteenth of their
// time wide.
const (
	slots   = 5
	slot    = time.Second
	window  = slots * slot
	fine    = 16
	longest = 1<<26 - 1 // microseconds; longer ones count as this
	buckets = (26 - 5 + 2) * fine
)

// meter knows the 90th percentile of the last times. It takes no locks: a time that is added
// while its slot is emptied may be lost.
type meter struct {
	last  atomic.Int64 // result of p90
	slots [slots]struct {
		number atomic.Int64 // of the slot since the Unix epoch
		counts [buckets]atomic.Uint32
	}
}

// add counts a time, at a time in microseconds since the Unix epoch.
func (m *meter) add(at int64, took time.Duration) {
	number := at / slot.Microseconds()
	s := &m.slots[uint64(number)%slots]
	if old := s.number.Load(); old != number && s.number.CompareAndSwap(old, number) {
		for i := range s.counts {
			s.counts[i].Store(0)
		}
	}
	s.counts[bucket(took)].Add(1)
}

// p90 returns the 90th percentile of the times in the window that ends at a time, in
// microseconds; 0 if there are too few.
func (m *meter) p90(at int64) int64 {
	number := at / slot.Microseconds()
	var sums [buckets]uint64
	total := uint64(0)
	for i := range m.slots {
		s := &m.slots[i]
		if age := number - s.number.Load(); age < 0 || age >= slots {
			continue
		}
		for b := range s.counts {
			n := uint64(s.counts[b].Load())
			sums[b] += n
			total += n
		}
	}
	p90 := int64(0)
	if total >= fewest {
		left := total / 10 // that are longer
		b := buckets - 1
		for ; sums[b] <= left; b-- {
			left -= sums[b]
		}
		p90 = middle(b)
	}
	m.last.Store(p90)
	return p90
}

// bucket returns the bucket of a time.
func bucket(d time.Duration) int {
	us := uint64(min(max(d.Microseconds(), 0), longest))
	wide := max(bits.Len64(us)-5, 0)
	return wide*fine + int(us>>wide)
}

// middle returns a time in the middle of a bucket, in microseconds.
func middle(bucket int) int64 {
	wide := max(bucket/fine-1, 0)
	return int64(bucket-wide*fine)<<wide + 1<<wide/2
}
