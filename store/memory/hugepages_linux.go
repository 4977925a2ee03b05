package memory

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

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

// under asks for huge pages where slots lie, without waiting for them.
func (h *hugePages) under(slots []slot) {
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
// takes some hundred microseconds and changes nothing of what is in it. Where
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
