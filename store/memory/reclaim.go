package memory

import (
	"cmp"
	"slices"
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
