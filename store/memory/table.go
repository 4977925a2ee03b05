package memory

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"
)

// table is an open-addressing hash table of slots in the order of their tags. The home
// of a tag is tag·span/2^64, which rises with the tag, and a slot is at its home or, if
// that is taken, after it without a gap ("ordered linear probing", Amble and Knuth
// 1974). So a lookup ends at the first larger tag, and one pass from front to back
// writes a larger table. Slots pushed past the last home have extra space there, so
// nothing wraps around.
type table struct {
	slots []slot
	span  uint64 // homes; fewer than slots
	count int
	limit int // the count at which the table is full
}

func (t *table) home(tag uint64) int {
	h, _ := bits.Mul64(tag, t.span)
	return int(h)
}

// find returns the index of id's slot or, if it has none, where it would be.
func (t *table) find(id identity) (int, bool) {
	slots := t.slots
	i := t.home(id.tag)
	for ; i < len(slots); i++ {
		s := &slots[i]
		if s.tag-1 >= id.tag-1 { // not smaller, or 0: empty
			if s.is(id) {
				return i, true
			}
			if s.tag != id.tag {
				break
			}
		}
	}
	return i, false
}

// insert puts s at i, the position returned by find. It returns false if there is no
// gap after i to push the rest into.
func (t *table) insert(i int, s slot) bool {
	gap := i
	for ; ; gap++ {
		if gap >= len(t.slots) {
			return false
		}
		if t.slots[gap].tag == 0 {
			break
		}
	}
	copy(t.slots[i+1:gap+1], t.slots[i:gap])
	t.slots[i] = s
	t.count++
	return true
}

// remove closes the gap at i with the following slots that are not at home.
func (t *table) remove(i int) {
	end := i + 1
	for end < len(t.slots) && t.slots[end].tag != 0 && t.home(t.slots[end].tag) < end {
		end++
	}
	copy(t.slots[i:end-1], t.slots[i+1:end])
	t.slots[end-1] = slot{}
	t.count--
}

// Sizes. A table doubles up to smallSpan homes, then grows by a fifth, and from
// largeSpan on by an eleventh, so that it is 0.84 to 0.92 full. Each step copies the
// table once, front to back.
const (
	firstSpan = 8
	smallSpan = 64
	largeSpan = 256
)

// resized returns an empty table with at least span homes.
func resized(span int) table {
	pad := min(span/2, 12+span/64)
	// Use all that the allocator provides.
	slots := slices.Grow([]slot(nil), span+pad)
	slots = slots[:cap(slots)]
	t := table{slots: slots, span: uint64(len(slots) - pad)}
	t.limit = int(t.span) * 23 / 25
	return t
}

// larger returns the next number of homes after span. The sizes of the shards are
// staggered, so that they do not all grow at once, which would make the store alternate
// between emptiest and fullest.
func (t *table) larger(shard, shards int) int {
	switch span := int(t.span); {
	case span == 0:
		return firstSpan
	case span < smallSpan/2:
		return span * 2
	case span < smallSpan:
		return smallSpan + smallSpan/5*shard/shards
	case span < largeSpan:
		return span + span/5
	default:
		return span + span/11
	}
}

// fill moves the slots of t for which keep is true (all if it is nil) into an empty
// table, and reports whether they fit. into may be t itself: its slots then only move
// forward.
func (t *table) fill(into *table, keep func(*slot) bool) bool {
	next, count := 0, 0
	for i := range t.slots {
		p := &t.slots[i]
		if p.tag == 0 {
			continue
		}
		kept, s := keep == nil || keep(p), *p
		if into == t {
			*p = slot{}
		}
		if !kept {
			continue
		}
		at := max(into.home(s.tag), next)
		if at >= len(into.slots) {
			return false
		}
		into.slots[at] = s
		next = at + 1
		count++
	}
	into.count = count
	return true
}

// hint is the address of a shard's table, for callers without its lock. It may be out
// of date when it is used, so it is only good for prefetching. Hints are adjacent and
// rarely change, so they stay in the cache, unlike the shards with their locks.
type hint struct {
	base atomic.Uintptr
	span atomic.Uint64
	hot  atomic.Pointer[hot] // nil unless a key of the shard is very busy
}

// set stores the address of t. The caller must hold the shard's lock.
func (x *hint) set(t *table) {
	x.base.Store(uintptr(unsafe.Pointer(unsafe.SliceData(t.slots)))) //nolint:gosec // an address, never a pointer again
	x.span.Store(t.span)
}

// home returns the address of the slot that is the home of tag.
func (x *hint) home(tag uint64) uintptr {
	i, _ := bits.Mul64(tag, x.span.Load())
	return x.base.Load() + uintptr(i)*slotBytes
}
