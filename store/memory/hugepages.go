package memory

import "sync"

// In a store of a million keys nearly every request finds its table's page
// missing from the processor's translation buffer. Pages of 2 MiB instead of
// 4 KiB save a tenth of a decision's time, so where the operating system can be
// asked for them, we do, once for each piece of memory in which a table lies.
const (
	hugePage = 2 << 20
	// hugeTable is the smallest table and hugeStore the smallest store, in
	// bytes, that ask: below it the buffer suffices.
	hugeTable = 4 << 10
	hugeStore = 4 << 20
)

// hugePages are the pieces of memory that have been asked for. It has a lock of
// its own, which may be taken under a shard's.
type hugePages struct {
	mu    sync.Mutex
	asked map[uintptr]bool
}

// ask notes the pieces from the byte at first to that at last and returns those
// that are new.
func (h *hugePages) ask(first, last uintptr) []uintptr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pieces []uintptr
	for at := first &^ (hugePage - 1); at <= last; at += hugePage {
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

// forget makes that piece new again.
func (h *hugePages) forget(at uintptr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.asked, at)
}
