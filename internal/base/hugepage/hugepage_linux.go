package hugepage

import (
	"os"
	"strings"
	"syscall"
)

// Advice to madvise(2), which package syscall does not know.
const (
	madvHugePage = 14
	madvCollapse = 25 // since Linux 6.1
)

// Wanted reports whether the system has huge pages of our Size and the administrator has
// not turned them off, which Collapse would ignore.
func Wanted() bool {
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	enabled, err := os.ReadFile(dir + "enabled")
	if err != nil || strings.Contains(string(enabled), "[never]") {
		return false
	}
	size, err := os.ReadFile(dir + "hpage_pmd_size")
	return err == nil && strings.TrimSpace(string(size)) == "2097152"
}

// Collapse turns the piece of memory at an address, a multiple of Size, into a huge page,
// which takes microseconds to a few milliseconds and does not change its content. Older
// systems are only advised to do so later. After syscall.EAGAIN it may work another time.
func Collapse(at uintptr) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, at, Size, madvCollapse)
	if errno == syscall.EINVAL {
		_, _, errno = syscall.Syscall(syscall.SYS_MADVISE, at, Size, madvHugePage)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
