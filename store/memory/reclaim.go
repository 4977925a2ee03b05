package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// reclaim removes lists until the store is within its memory limit again. It goes round
// the shards and removes the lists with the smallest debt from each.
func (s *Store) reclaim(now int64) {
	for range s.shards {
		if s.bytes.Load() <= s.maxBytes {
			return
		}
		h := s.lock(uint64(s.hand.Add(1))%uint64(len(s.shards)), now)
		h.reclaim(s, now)
		h.mu.Unlock()
	}
}

// reclaim removes the eighth of the shard's lists with the smallest debt, or fewer if
// that is enough. An eighth, so that many evictions pay for one pass over the table.
func (h *shard) reclaim(s *Store, now int64) {
	h.sweep(s, now)
	defer h.tidy(s)
	var all []ranked
	for i := range h.slots {
		if p := &h.slots[i]; p.tag != 0 && p.codec() == codecRecord {
			all = append(all, ranked{p.rank(), p.tag})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for _, r := range all[:(len(all)+7)/8] {
		if s.bytes.Load()-8*int64(h.lists.dead) <= s.maxBytes {
			return
		}
		if p := h.byTag(r.tag); p != nil {
			h.evict(s, p, now)
		}
	}
}

// loss is what a shard knows about keys that it evicted although they were in debt:
// when that last happened, and until when the last of them would have been in debt. It
// does not list them, so it may mistake another key for one of them.
type loss struct{ at, until int64 }

// mayBe reports whether the take that op refunds may have been lost since.
func (l *loss) mayBe(op *headgate.Op, now int64) bool {
	if op.Kind != headgate.Refund || l.at == 0 {
		return false
	}
	age, rule := micros(op.Age), op.Limit.Rule()
	// While the take counted, its key was not fresh: for a window until its end, for a
	// bucket as long as the refunded amount takes to refill, because other takes may
	// have been refunded too.
	counted := micros(op.Duration) + age
	if op.CountsUntil > 0 {
		counted = op.CountsUntil - now + age
	}
	if rule.Algorithm <= headgate.LeakyBucket {
		counted = min(counted, int64(float64(op.Cost)*float64(rule.Period)/float64(max(rule.Limit, 1))))
	}
	// Slack allows for times that were rounded or measured by another clock.
	slack := min(age/8, micros(time.Second))
	return l.at >= now-age-slack && l.until >= now-age+counted-slack
}

func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }
