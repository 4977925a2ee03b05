package memory

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"

	"github.com/headgate/headgate/internal/base/hugepage"
)

// In a store with a million keys, nearly every request misses the processor's
// translation buffer. Pages of 2 MiB instead of 4 KiB save a tenth of a decision's
// time. So if the system supports them, we request them, once for each piece of memory
// that holds a table.
const (
	// hugeTable is the smallest table, and hugeStore the smallest store, in bytes, that
	// requests huge pages: below that the buffer suffices.
	hugeTable = 4 << 10
	hugeStore = 4 << 20
)

// hugePages are the pieces of memory for which huge pages were requested. Its lock may
// be taken while a shard's is held.
type hugePages struct {
	mu    sync.Mutex
	asked map[uintptr]bool
}

// ask records the pieces from the byte at first to the one at last, and returns the new
// ones.
func (h *hugePages) ask(first, last uintptr) []uintptr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pieces []uintptr
	for at := first &^ (hugepage.Size - 1); at <= last; at += hugepage.Size {
		if !h.asked[at] {
			if h.asked == nil {
				h.asked = make(map[uintptr]bool)
			}
			h.asked[at] = true
			pieces = append(pieces, at)
		}
	}
	return pieces
}

// forget makes the piece at an address new again.
func (h *hugePages) forget(at uintptr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.asked, at)
}

// under requests huge pages for the slots of a new table, in the background, if the
// table and the store (stored bytes) are large enough.
func (h *hugePages) under(slots []slot, stored int64) {
	if len(slots)*slotBytes < hugeTable || stored < hugeStore {
		return
	}
	// Addresses as numbers only: the memory may belong to something else by the time of
	// the request, which does no harm.
	first := uintptr(unsafe.Pointer(unsafe.SliceData(slots))) //nolint:gosec // see above
	pieces := h.ask(first, first+uintptr(len(slots)-1)*slotBytes)
	if len(pieces) == 0 {
		return
	}
	go func() {
		if !hugepage.Wanted() {
			return
		}
		for _, at := range pieces {
			if errors.Is(hugepage.Collapse(at), syscall.EAGAIN) {
				h.forget(at)
			}
		}
	}()
}
