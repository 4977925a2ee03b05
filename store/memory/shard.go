package memory

import (
	"sync"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// shard is the part of a store behind one lock. Callers of its methods must hold mu.
// The lock and everything needed to find a key are in one cache line, and the lines of
// all shards are adjacent: with many keys, these stay in the cache.
type shard struct {
	mu sync.Mutex
	table
	*rest
}

// rest holds the fields of a shard that most requests do not touch.
type rest struct {
	lists lists // one line
	// waiting holds newcomers that found the shard full of larger debts, the oldest at
	// next once it is full.
	waiting []slot
	next    int
	ranking ranking
	cursor  int // where sweepSome continues
	created uint
	index   int // of the shard
	counts  counts
	times   map[identity]keyTimes // nil if they are not recorded
	waited  contention
	_       [40]byte // to whole cache lines
}

type counts struct{ evicted, evictedInDebt, swept int64 }

// Next to a full shard, one newcomer waits for every 32 keys, within these limits.
const leastWaiting, mostWaiting = 4, 32

// takeBucket is step for the most common request, n ≥ 1 from a bucket. It skips what
// step must handle, and writes the decision to d. The loop is a copy of find's, which
// saves two nanoseconds.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (h *shard) takeBucket(s *Store, id identity, r *store.Rule, now, n int64, d *store.Decision) {
	slots := h.slots
	i := h.home(id.tag)
	for i < len(slots) && slots[i].tag-1 < id.tag-1 {
		i++
	}
	if i >= len(slots) || !slots[i].is(id) || slots[i].codec() != codecBucket {
		*d = h.step(s, id, r, now, algorithm.Request{Kind: store.KindTake, Cost: n})
		return
	}
	p := &slots[i]
	b, fresh, wrote := algorithm.Take(r, p.bucket(), now, n, d)
	switch {
	case !wrote:
	case uint64(b.Used) > timeMask:
		st := algorithm.State{V: [4]int64{b.Used, b.Last, b.Token}}
		h.write(s, p, r, &st, times{fresh, fresh}, now)
	default:
		p.setBucket(b, fresh) // a take never reduces the debt, so the ranking stays valid
	}
}

// step executes one request for id: all of Take except the lock.
func (h *shard) step(s *Store, id identity, r *store.Rule, now int64, req algorithm.Request) store.Decision {
	i, found := h.find(id)
	var p *slot
	if found {
		p = &h.slots[i]
	} else if p = h.waiter(id); p == nil {
		var st algorithm.State
		res := algorithm.Step(r, &st, now, req)
		if res.Wrote && res.FreshAt > now && !isUnused(&st) {
			h.create(s, id, r, &st, timesOf(r, &res, now), now)
		}
		return res.Decision
	}
	if p.codec() == codecRecord {
		return h.stepRecord(s, p, r, now, req)
	}
	var st algorithm.State
	p.state(&st)
	res := algorithm.Step(r, &st, now, req)
	if res.Wrote {
		h.write(s, p, r, &st, timesOf(r, &res, now), now)
	}
	return res.Decision
}

// stepRecord is step for a state in a block, whose list is changed in place.
func (h *shard) stepRecord(s *Store, p *slot, r *store.Rule, now int64, req algorithm.Request) store.Decision {
	var st algorithm.State
	h.lists.state(place(p.a), &st)
	res := algorithm.Step(r, &st, now, req)
	if res.Wrote || isUnused(&st) {
		h.write(s, p, r, &st, timesOf(r, &res, now), now)
	}
	return res.Decision
}

// write writes a changed state back to p, its slot or waiting place.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (h *shard) write(s *Store, p *slot, r *store.Rule, st *algorithm.State, t times, now int64) {
	if isUnused(st) {
		h.drop(s, p)
		return
	}
	was, id := p.rank(), p.identity()
	if h.times != nil {
		h.changed(s, id, p.freshAt() <= now, now)
	}
	packed, ok := pack(r.Algorithm, id, st, t)
	switch {
	case ok && p.codec() == codecRecord:
		h.free(s, p)
		*p = packed
	case ok:
		*p = packed
	case p.codec() != codecRecord:
		*p = packRecord(id, h.add(s, r.Algorithm, st), t)
	case h.lists.rewrite(place(p.a), st):
		*p = packRecord(id, place(p.a), t)
	default:
		*p = packRecord(id, h.move(s, p, r.Algorithm, st), t)
	}
	if h.isWaiting(p) {
		h.promote(s, p, now)
		return
	}
	if rank := p.rank(); rank < h.ranking.bound && rank < was {
		h.ranking.note(rank, id.tag)
	}
}

// create stores the state of a new identity.
//
//nolint:revive // the hot path: arguments stay in registers, a struct would not
func (h *shard) create(s *Store, id identity, r *store.Rule, st *algorithm.State, t times, now int64) {
	packed, ok := pack(r.Algorithm, id, st, t)
	if !ok {
		packed = packRecord(id, h.add(s, r.Algorithm, st), t)
	}
	h.sweepSome(s, now)
	if h.times != nil {
		h.changed(s, id, true, now)
	}
	if !h.place(s, packed, now) {
		h.wait(s, packed, now)
	}
}

// place puts a new slot into the table. If the store is full, it evicts a slot with a
// smaller debt, or returns false if there is none.
func (h *shard) place(s *Store, packed slot, now int64) bool {
	for !s.takeKey() {
		if !h.makeRoom(s, packed.rank(), now) {
			return false
		}
	}
	for h.count >= h.limit {
		if h.grow(s, now) {
			continue
		}
		if !h.makeRoom(s, packed.rank(), now) {
			s.keys.Add(-1)
			return false
		}
	}
	i, _ := h.find(packed.identity())
	for !h.insert(i, packed) {
		h.stretchTail(s)
		i, _ = h.find(packed.identity())
	}
	if rank := packed.rank(); rank < h.ranking.bound {
		h.ranking.note(rank, packed.tag)
	}
	return true
}

// drop removes p, a slot or waiting place.
func (h *shard) drop(s *Store, p *slot) {
	if p.codec() == codecRecord {
		h.free(s, p)
	}
	if h.times != nil {
		h.forget(s, p.identity())
	}
	if h.isWaiting(p) {
		*p = slot{}
		return
	}
	i, _ := h.find(p.identity())
	h.remove(i)
	s.keys.Add(-1)
}

// grow enlarges the table, or sweeps it if that frees enough space. It returns false if
// the store may not use more bytes.
func (h *shard) grow(s *Store, now int64) bool {
	span := h.larger(h.index, len(s.shards))
	if h.span > 0 && s.bytes.Load()+int64(span-int(h.span))*slotBytes > s.maxBytes {
		return false
	}
	fresh := 0
	for i := range h.slots {
		if p := &h.slots[i]; p.tag != 0 && p.freshAt() <= now {
			fresh++
		}
	}
	if fresh > 0 {
		h.sweep(s, now)
	}
	if h.count >= h.limit-h.limit/8 {
		h.resize(s, span)
	}
	return true
}

// shrink releases most of a table that has become nearly empty.
func (h *shard) shrink(s *Store) {
	switch {
	case h.count == 0 && len(h.slots) > 0:
		s.bytes.Add(int64(-len(h.slots)) * slotBytes)
		h.setTable(s, table{})
	case h.span > firstSpan && h.count < int(h.span)/4:
		h.resize(s, max(h.count*3/2, firstSpan))
	}
}

// resize moves the slots to a table with span homes.
func (h *shard) resize(s *Store, span int) {
	into := resized(span)
	for !h.fill(&into, nil) {
		into.slots = make([]slot, len(into.slots)+len(into.slots)/4)
	}
	s.bytes.Add(int64(len(into.slots)-len(h.slots)) * slotBytes)
	h.setTable(s, into)
	s.huge.under(into.slots, s.bytes.Load())
}

// setTable replaces the table.
func (h *shard) setTable(s *Store, t table) {
	h.table = t
	s.hints[h.index].set(&t)
}

// stretchTail adds space after the last home.
func (h *shard) stretchTail(s *Store) {
	const more = 8
	into := h.table
	into.slots = make([]slot, len(h.slots)+more)
	copy(into.slots, h.slots)
	h.setTable(s, into)
	s.bytes.Add(more * slotBytes)
}

// sweep removes everything that is fresh at now and returns how much that was.
func (h *shard) sweep(s *Store, now int64) int {
	before := h.count
	h.fill(&h.table, func(p *slot) bool {
		if p.freshAt() > now {
			return true
		}
		if p.codec() == codecRecord {
			h.free(s, p)
		}
		if h.times != nil {
			h.forget(s, p.identity())
		}
		return false
	})
	gone := before - h.count
	s.keys.Add(int64(-gone))
	for i := range h.waiting {
		if p := &h.waiting[i]; p.tag != 0 && p.freshAt() <= now {
			h.drop(s, p)
			gone++
		}
	}
	h.counts.swept += int64(gone)
	return gone
}

// sweepSome looks at a few slots and removes those that are fresh. It is called for
// every new key, so it goes round the table more than once while that fills. It looks
// at adjacent slots every few calls, because each separate look costs a cache miss.
func (h *shard) sweepSome(s *Store, now int64) {
	const every, some = 2, 5
	if h.created++; h.created%every != 0 {
		return
	}
	for range some {
		if h.cursor >= len(h.slots) {
			h.cursor = 0
			return
		}
		p := &h.slots[h.cursor]
		if p.tag == 0 || p.freshAt() > now {
			h.cursor++
			continue
		}
		h.drop(s, p)
		h.counts.swept++
	}
}

// makeRoom removes the slot with the lowest rank, if that is less than rank, or
// whatever is fresh, and reports whether it removed any.
func (h *shard) makeRoom(s *Store, rank, now int64) bool {
	p, swept := h.lowest(s, now)
	switch {
	case swept:
		return true
	case p == nil || p.freshAt() > now && p.rank() >= rank:
		return false
	}
	h.evict(s, p, now)
	return true
}

func (h *shard) evict(s *Store, p *slot, now int64) {
	if p.freshAt() > now {
		h.counts.evictedInDebt++
	}
	h.counts.evicted++
	h.drop(s, p)
}

// lowest returns the slot with the lowest rank, or nil if there is none. If it had to
// scan the table and could remove something on the way, it reports that instead.
func (h *shard) lowest(s *Store, now int64) (lowest *slot, swept bool) {
	q := &h.ranking
	if q.items == nil {
		q.items = make([]ranked, 0, 2*q.most)
		s.bytes.Add(int64(2*q.most) * rankedBytes)
	}
	for range 2 {
		for len(q.items) > 0 {
			top := q.items[0]
			p := h.byTag(top.tag)
			if p != nil && p.rank() == top.rank {
				return p, false
			}
			q.pop()
			if p != nil && p.rank() > top.rank && p.rank() < q.bound {
				q.note(p.rank(), top.tag)
			}
		}
		if q.collect(h.slots, now) {
			q.reset()
			h.sweep(s, now)
			return nil, true
		}
	}
	return nil, false
}

// byTag returns a slot with the tag, or nil.
func (h *shard) byTag(tag uint64) *slot {
	for i := h.home(tag); i < len(h.slots) && h.slots[i].tag-1 <= tag-1; i++ {
		if h.slots[i].tag == tag {
			return &h.slots[i]
		}
	}
	return nil
}

// lookup returns id's slot or waiting place, or nil.
func (h *shard) lookup(id identity) *slot {
	if i, found := h.find(id); found {
		return &h.slots[i]
	}
	return h.waiter(id)
}

// waiter returns the waiting place of id, or nil.
func (h *shard) waiter(id identity) *slot {
	for i := range h.waiting {
		if h.waiting[i].is(id) {
			return &h.waiting[i]
		}
	}
	return nil
}

func (h *shard) isWaiting(p *slot) bool {
	for i := range h.waiting {
		if p == &h.waiting[i] {
			return true
		}
	}
	return false
}

// wait lets a newcomer wait in place of the one that has waited longest.
func (h *shard) wait(s *Store, packed slot, now int64) {
	if h.waiting == nil {
		h.waiting = make([]slot, 0, s.mostWaiting)
		s.bytes.Add(int64(s.mostWaiting) * slotBytes)
	}
	if len(h.waiting) < cap(h.waiting) {
		h.waiting = append(h.waiting, packed)
		return
	}
	p := &h.waiting[h.next]
	h.next = (h.next + 1) % len(h.waiting)
	if p.tag != 0 {
		h.evict(s, p, now)
	}
	*p = packed
}

// promote moves a waiting key into the table if a key there now has a smaller debt.
func (h *shard) promote(s *Store, p *slot, now int64) {
	packed := *p
	if packed.freshAt() <= now {
		return
	}
	if h.place(s, packed, now) {
		// Not drop: a list now belongs to the table's slot.
		*p = slot{}
	}
}
