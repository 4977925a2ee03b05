package memory

import (
	"iter"
	"math"
	"slices"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// lists are the states of a shard that do not fit in slots. Each has a block of words in
// a piece of memory that many blocks share, so that a key is no object of the garbage
// collector, which does not look into pieces either: they hold no pointers.
//
// A piece hands out blocks from its start to its end. A freed block is only counted. When
// the pieces are full, the blocks of the emptiest one move together into another, which
// their slots lead to; so at most a quarter of the full pieces is unused. What
// large blocks need they have to themselves.
type lists struct {
	first   piece // here, where a request has one cache miss less
	more    []piece
	current uint32 // hands out the next blocks
	dead    uint32 // words of freed blocks in all pieces
}

// piece returns piece i.
func (l *lists) piece(i int) *piece {
	if i == 0 {
		return &l.first
	}
	return &l.more[i-1]
}

// count returns the number of indexes.
func (l *lists) count() int { return 1 + len(l.more) }

// piece is shared by blocks, or the only one of a large block.
type piece struct {
	words []uint64 // nil: there is none at this index
	used  uint16   // words handed out
	dead  uint16   // those of them that were freed
	alone bool
}

const (
	pieceWords = 4096 // of the largest shared piece: 32 KiB
	// largestShared is the size of the largest block in a shared piece.
	largestShared = pieceWords / 4
	// mostFull is how full a piece may be to hand out blocks again.
	mostFull = pieceWords / 4 * 3
	// mostMoved is how full it may be for all its blocks to move when one grows.
	mostMoved = pieceWords / 8 * 7
	spare     = 16 // one part in spare of a piece is for what comes next
	// In a large shard, mostMoving pieces move together once mostDead words are unused.
	mostMoving = 32
	mostDead   = mostMoving * pieceWords / 4
	pieceBytes = 32
	lineWords  = 8
	leastWhole = 2 * lineWords
)

// place says where a block is and what is in it. It is word a of the slot.
//
//	bits 0..11   the block's index in its piece
//	bits 12..22  its size in words; 0 if it has a piece to itself
//	bits 23..25  the algorithm
//	bit  26      whether it has credit
//	bits 27..    the index of the piece
//
// A block is V, credit and until if it has them, and the list. The high half of V[3] is
// the length of a list.
type place uint64

const (
	placeSize      = 12
	placeAlgorithm = 23
	placeCredit    = 26
	placePiece     = 27
	blockHead      = 4
	blockCredit    = 2
	lengthShift    = 32 // no algorithm with a list has larger numbers in V[3]
)

func (at place) piece() int  { return int(at >> placePiece) }
func (at place) offset() int { return int(at & (1<<placeSize - 1)) }
func (at place) size() int   { return int(at >> placeSize & (1<<(placeAlgorithm-placeSize) - 1)) }
func (at place) credit() bool {
	return at>>placeCredit&1 != 0
}

func (at place) algorithm() store.Algorithm {
	return store.Algorithm(at >> placeAlgorithm & (1<<(placeCredit-placeAlgorithm) - 1))
}

// hasList reports whether the states of a have lists.
func hasList(a store.Algorithm) bool {
	return a == store.SlidingLog || a == store.SlidingBuckets || a >= store.Concurrency
}

// block returns the block at a place.
func (l *lists) block(at place) []uint64 {
	words := l.piece(at.piece()).words
	if size := at.size(); size > 0 {
		words = words[at.offset():]
		return words[:size:size]
	}
	return words
}

// state reads the state at a place. Its list stays in the block.
func (l *lists) state(at place, st *algorithm.State) {
	b := l.block(at)
	_ = b[blockHead-1]
	st.V = [4]int64{int64(b[0]), int64(b[1]), int64(b[2]), int64(b[3])}
	if hasList(at.algorithm()) {
		st.V[3] &= 1<<lengthShift - 1
		st.Words = at.list(b)[:b[3]>>lengthShift]
	}
	if at.credit() {
		st.Credit, st.Until = int64(b[blockHead]), int64(b[blockHead+1])
	}
}

// list returns the part of a block with space for the list.
func (at place) list(block []uint64) []uint64 {
	if at.credit() {
		return block[blockHead+blockCredit:]
	}
	return block[blockHead:]
}

// put writes a state to its block b.
func (at place) put(b []uint64, st *algorithm.State) {
	_ = b[blockHead-1]
	b[0], b[1], b[2], b[3] = uint64(st.V[0]), uint64(st.V[1]), uint64(st.V[2]), uint64(st.V[3])
	if hasList(at.algorithm()) {
		b[3] = b[3]&(1<<lengthShift-1) | uint64(len(st.Words))<<lengthShift
	}
	if at.credit() {
		b[blockHead], b[blockHead+1] = uint64(st.Credit), uint64(st.Until)
	}
}

// rewrite writes a state back to its block, if that has about the size that the state
// needs, and reports whether it has. The list is the one in the block or another.
func (l *lists) rewrite(at place, st *algorithm.State) bool {
	b := l.block(at)
	list := at.list(b)
	if at.credit() != (st.Credit != 0 || st.Until != 0) || cap(st.Words) > len(list) {
		return false
	}
	if cap(st.Words) > 0 && &st.Words[:1][0] != &list[0] {
		slack := cap(st.Words)
		if at.size() == 0 { // another of its own leaves no gap
			slack /= 2
		}
		if len(list) > cap(st.Words)+slack+largestShared/64 {
			return false
		}
		copy(list, st.Words)
	}
	at.put(b, st)
	return true
}

// placeOf returns a place without an index for a state, and how large its block is.
func placeOf(a store.Algorithm, st *algorithm.State) (at place, size int) {
	at, size = place(a)<<placeAlgorithm, blockHead+cap(st.Words)
	if st.Credit != 0 || st.Until != 0 {
		at, size = at|1<<placeCredit, size+blockCredit
	}
	if size > leastWhole { // whole cache lines, so that the start is in one
		size = (size + lineWords - 1) &^ (lineWords - 1)
	}
	return at, size
}

// move writes a slot's state to a block of another size and returns its place.
func (h *shard) move(s *Store, slot *slot, a store.Algorithm, st *algorithm.State) place {
	if h.enlarge(s, slot, a, st) && h.lists.rewrite(place(slot.a), st) {
		return place(slot.a)
	}
	at := h.add(s, a, st) // before free: the list may be in the old block
	h.free(s, slot)
	return at
}

// enlarge makes a slot's block larger by moving all blocks of its piece, if there is no
// space for another one anyway. It returns false if that is not worth while.
func (h *shard) enlarge(s *Store, slot *slot, a store.Algorithm, st *algorithm.State) bool {
	l, at := &h.lists, place(slot.a)
	to, size := placeOf(a, st)
	more := size - at.size()
	if h.isLarge() || at.size() == 0 || more < 0 || size > largestShared || to.credit() != at.credit() || l.hasSpace(size) {
		return false
	}
	p := l.piece(at.piece())
	need := int(p.used-p.dead) + more
	if need > mostMoved {
		return false
	}
	h.renew(s, at.piece(), need, move{slot, size})
	return true
}

// add stores a new state and returns its place.
func (h *shard) add(s *Store, a store.Algorithm, st *algorithm.State) place {
	at, size := placeOf(a, st)
	l := &h.lists
	if size > largestShared {
		i := h.vacant(s)
		*l.piece(i) = piece{words: make([]uint64, size), alone: true}
		s.bytes.Add(8 * int64(size))
		at |= place(i) << placePiece
	} else {
		p := h.roomy(s, size)
		at |= place(l.current)<<placePiece | place(size)<<placeSize | place(p.used)
		p.used += uint16(size)
	}
	b := l.block(at)
	at.put(b, st)
	copy(at.list(b), st.Words)
	return at
}

// free frees the block of a slot.
func (h *shard) free(s *Store, slot *slot) {
	at, l := place(slot.a), &h.lists
	p := l.piece(at.piece())
	p.dead += uint16(at.size())
	l.dead += uint32(at.size())
	switch {
	case p.alone:
		h.release(s, at.piece())
	case p.dead < p.used:
	case at.piece() == int(l.current):
		l.dead -= uint32(p.dead)
		p.used, p.dead = 0, 0
	default:
		h.release(s, at.piece())
	}
}

// release gives the memory of a piece back, which has no blocks any more.
func (h *shard) release(s *Store, i int) {
	p := h.lists.piece(i)
	s.bytes.Add(-8 * int64(len(p.words)))
	h.lists.dead -= uint32(p.dead)
	*p = piece{}
}

// roomy returns the current piece, which it replaces if it has no space for size words.
func (h *shard) roomy(s *Store, size int) *piece {
	l := &h.lists
	if l.hasSpace(size) {
		return l.piece(int(l.current))
	}
	large := h.isLarge()
	if large && l.dead >= mostDead {
		h.compact(s, mostFull/(pieceWords-mostFull), mostMoving)
	}
	least, emptiest := mostFull-size+1, -1
	for i := range l.count() {
		p := l.piece(i)
		if large && p.dead > 0 {
			continue
		}
		if live := int(p.used - p.dead); !p.alone && p.words != nil && live < least {
			emptiest, least = i, live
		}
	}
	if emptiest < 0 {
		emptiest, least = h.vacant(s), 0
	}
	l.current = uint32(emptiest)
	need := least + size
	if large && l.count() > mostMoving {
		need = pieceWords
	}
	h.renew(s, emptiest, need, move{})
	return l.piece(emptiest)
}

// isLarge reports whether a pass over the slots takes so long that many blocks should
// move in each. Only the one shard of a small store is.
func (h *shard) isLarge() bool { return len(h.slots) > 2*keysPerShard }

// hasSpace reports whether the current piece has space for size words.
func (l *lists) hasSpace(size int) bool {
	p := l.piece(int(l.current))
	return !p.alone && int(p.used)+size <= len(p.words)
}

// vacant returns an index without a piece.
func (h *shard) vacant(s *Store) int {
	l := &h.lists
	for i := range l.count() {
		if l.piece(i).words == nil {
			return i
		}
	}
	before := cap(l.more)
	l.more = append(l.more, piece{})
	s.bytes.Add(int64(cap(l.more)-before) * pieceBytes)
	return len(l.more)
}

// move says which block gets another size when it moves; the zero value, none.
type move struct {
	slot *slot
	size int
}

// renew gives piece i space for at least n words, with its blocks at the start.
func (h *shard) renew(s *Store, i, n int, m move) {
	p := h.lists.piece(i)
	to := [1]piece{{words: spacious(min(n+n/spare, pieceWords))}}
	if p.dead == 0 && m.slot == nil { // everything stays where it is
		to[0].used = uint16(copy(to[0].words, p.words[:p.used]))
	} else {
		h.relocate(i, to[:], m)
	}
	h.replace(s, i, to[0])
}

// spacious returns at least n words: all that the allocator provides.
func spacious(n int) []uint64 {
	words := slices.Grow([]uint64(nil), n)
	return words[:cap(words)]
}

// replace replaces piece i by one to which its blocks have moved.
func (h *shard) replace(s *Store, i int, to piece) {
	p := h.lists.piece(i)
	s.bytes.Add(8 * int64(len(to.words)-len(p.words)))
	h.lists.dead -= uint32(p.dead)
	*p = to
}

// relocate copies the blocks of the pieces from first on to those in to that have words.
func (h *shard) relocate(first int, to []piece, m move) {
	for slot := range h.listed() {
		at := place(slot.a)
		i := at.piece() - first
		if i < 0 || i >= len(to) || to[i].words == nil {
			continue
		}
		p := &to[i]
		copy(p.words[p.used:], h.lists.block(at))
		size := at.size()
		if slot == m.slot {
			size = m.size
		}
		slot.a = slot.a&^(1<<placeAlgorithm-1) | uint64(size)<<placeSize | uint64(p.used)
		p.used += uint16(size)
	}
}

// listed yields the slots and waiting places with a block.
func (h *shard) listed() iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, slots := range [...][]slot{h.slots, h.waiting} {
			for i := range slots {
				if p := &slots[i]; p.tag != 0 && p.codec() == codecRecord && !yield(p) {
					return
				}
			}
		}
	}
}

// tidy gives the unused memory of the pieces back.
func (h *shard) tidy(s *Store) { h.compact(s, spare, math.MaxInt) }

// compact gives back what is unused in up to most pieces of which more than one part in
// part is.
func (h *shard) compact(s *Store, part, most int) {
	l := &h.lists
	to, moved := make([]piece, l.count()), 0
	for i := range to {
		p := l.piece(i)
		live := int(p.used - p.dead)
		switch {
		case p.alone || p.words == nil || len(p.words)-live <= live/part || moved >= most:
		case live == 0:
			h.release(s, i)
		default:
			if words := spacious(live); len(words) < len(p.words) {
				to[i].words = words
				moved++
			}
		}
	}
	if moved > 0 {
		h.relocate(0, to, move{})
	}
	more := 0 // how many of l.more are in use
	for i := range to {
		if to[i].words != nil {
			h.replace(s, i, to[i])
		}
		if l.piece(i).words != nil {
			more = i
		}
	}
	if before := cap(l.more); more < before/2 || more == 0 {
		l.current = 0
		l.more = append([]piece(nil), l.more[:more]...)
		s.bytes.Add(int64(cap(l.more)-before) * pieceBytes)
	}
}
