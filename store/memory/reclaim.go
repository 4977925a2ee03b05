package memory

import (
	"cmp"
	"slices"
)

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
