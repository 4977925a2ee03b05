package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// records are the states of a shard that no slot holds.
type records struct {
	all  []record
	gaps []uint32 // free places in all
}

type record struct {
	state     algorithm.State
	algorithm headgate.Algorithm
}

// recordBytes is the size of a record and its place among the gaps, on 64-bit
// machines.
const recordBytes = 80 + 4

// bytes returns the size of the record's list.
func (r *record) bytes() int64 { return 8 * int64(cap(r.state.Words)) }

func (rs *records) at(p *slot) *record { return &rs.all[p.a] }

// add keeps st and returns its index and how many bytes more there are now.
func (rs *records) add(a headgate.Algorithm, st *algorithm.State) (index int, bytes int64) {
	if n := len(rs.gaps); n > 0 {
		index = int(rs.gaps[n-1])
		rs.gaps = rs.gaps[:n-1]
	} else {
		index = len(rs.all)
		if index == cap(rs.all) {
			rs.all = slices.Grow(rs.all, index/8+4)
			bytes = int64(cap(rs.all)-index) * recordBytes
		}
		rs.all = rs.all[:index+1]
	}
	rs.all[index] = record{*st, a}
	return index, bytes + rs.all[index].bytes()
}

// free forgets p's record and returns the bytes of its list. Its place is kept
// for another.
func (rs *records) free(p *slot) int64 {
	rec := rs.at(p)
	bytes := rec.bytes()
	*rec = record{}
	rs.gaps = append(rs.gaps, uint32(p.a))
	return bytes
}

// reclaim forgets lists until the store is within its bytes again. It goes round
// the shards; from each it takes those of the smallest debt.
func (s *Store) reclaim(now int64) {
	for range s.shards {
		if s.bytes.Load() <= s.maxBytes {
			return
		}
		h := &s.shards[int(s.hand.Add(1))%len(s.shards)]
		h.mu.Lock()
		h.reclaim(s, now)
		h.mu.Unlock()
	}
}

// reclaim forgets the eighth of the shard's records that has the smallest debt,
// or fewer if that is enough. An eighth, so that the pass over the table is
// paid for by many evictions.
func (h *shard) reclaim(s *Store, now int64) {
	h.sweep(s, now)
	var all []ranked
	for i := range h.slots {
		if p := &h.slots[i]; p.tag != 0 && p.codec() == codecRecord {
			all = append(all, ranked{p.rank(), p.tag})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for _, r := range all[:(len(all)+7)/8] {
		if s.bytes.Load() <= s.maxBytes {
			return
		}
		if p := h.byTag(r.tag); p != nil {
			h.evict(s, p, now)
		}
	}
}

// loss is what a shard knows of the keys that it had to forget although they were
// in debt: when that was last, and until when the last of them would have been. It
// keeps no list of them, so it may take a key for one of them that is not.
type loss struct{ at, until int64 }

// mayBe reports whether what the take that op returns has counted may have been
// forgotten since.
func (l *loss) mayBe(op *headgate.Op, now int64) bool {
	if op.Kind != headgate.Refund || l.at == 0 {
		return false
	}
	age, rule := micros(op.Age), op.Limit.Rule()
	// As long as the take counted its key was not fresh: of a window until its
	// end, of a bucket for as long as what is returned would take to refill, as
	// what others had taken may have been returned, too.
	counted := micros(op.Duration) + age
	if rule.Algorithm <= headgate.LeakyBucket {
		counted = min(counted, int64(float64(op.Cost)*float64(rule.Period)/float64(max(rule.Limit, 1))))
	}
	// Slack is for times that were rounded, or measured by another clock.
	slack := min(age/8, micros(time.Second))
	return l.at >= now-age-slack && l.until >= now-age+counted-slack
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }
