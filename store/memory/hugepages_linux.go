package memory

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

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

// Advice to madvise(2), which package syscall does not know.
const (
	madvHugePage = 14
	madvCollapse = 25 // since Linux 6.1
)

// hugePagesWanted reports whether the system has huge pages of our size and its
// administrator has not turned them off, which madvCollapse would not heed.
func hugePagesWanted() bool {
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	enabled, err := os.ReadFile(dir + "enabled")
	if err != nil || strings.Contains(string(enabled), "[never]") {
		return false
	}
	size, err := os.ReadFile(dir + "hpage_pmd_size")
	return err == nil && strings.TrimSpace(string(size)) == "2097152"
}

// under asks for huge pages where the slots of a new table lie, without waiting
// for them, if the table and the store, of so many bytes, are large enough.
func (h *hugePages) under(slots []slot, stored int64) {
	if len(slots)*slotBytes < hugeTable || stored < hugeStore {
		return
	}
	// Addresses as numbers only: the memory may be another's by the time that
	// the system is asked, and is no worse for it.
	first := uintptr(unsafe.Pointer(unsafe.SliceData(slots))) //nolint:gosec // see above
	pieces := h.ask(first, first+uintptr(len(slots)-1)*slotBytes)
	if len(pieces) == 0 {
		return
	}
	go func() {
		if !hugePagesWanted() {
			return
		}
		for _, at := range pieces {
			if errors.Is(collapse(at), syscall.EAGAIN) {
				h.forget(at)
			}
		}
	}()
}

// collapse makes a huge page of the piece of memory at that address, which
// takes microseconds to some milliseconds and changes nothing of what is in it. Where
// the system is too old for that, it is asked to do so in its own time.
func collapse(at uintptr) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, at, hugePage, madvCollapse)
	if errno == syscall.EINVAL {
		_, _, errno = syscall.Syscall(syscall.SYS_MADVISE, at, hugePage, madvHugePage)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
