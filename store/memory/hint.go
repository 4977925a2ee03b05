package memory

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// hint says where a shard's table lies to whoever does not hold its lock. By the
// time that it is used it may be out of date, so it is good for fetching memory
// into the cache and for nothing else. Hints lie side by side and change seldom,
// so that they stay in the cache, where the shards with their locks do not.
type hint struct {
	base atomic.Uintptr
	span atomic.Uint64
}

// set notes where t lies. Whoever calls holds the shard's lock.
func (x *hint) set(t *table) {
	x.base.Store(uintptr(unsafe.Pointer(unsafe.SliceData(t.slots)))) //nolint:gosec // an address, never a pointer again
	x.span.Store(t.span)
}

// home returns the address of the slot that is the home of tag.
func (x *hint) home(tag uint64) uintptr {
	i, _ := bits.Mul64(tag, x.span.Load())
	return x.base.Load() + uintptr(i)*slotBytes
}
