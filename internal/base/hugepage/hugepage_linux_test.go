package hugepage

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// TestCollapse requests a huge page under a table and checks with the system that it
// exists, and that the table is unchanged.
func TestCollapse(t *testing.T) {
	if !Wanted() {
		t.Skip("no huge pages here")
	}
	table := make([]uint64, 3*Size/8) // contains one whole piece
	for i := range table {
		table[i] = uint64(i)
	}
	at := (uintptr(unsafe.Pointer(&table[0])) + Size - 1) &^ (Size - 1)
	switch err := Collapse(at); {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM):
		t.Skip("the system has none to spare:", err)
	case err != nil:
		t.Fatal(err)
	}
	for i := range table {
		if table[i] != uint64(i) {
			t.Fatalf("word %d is %d", i, table[i])
		}
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, at, Size, madvCollapse); errno == syscall.EINVAL {
		t.Skip("this system makes them in its own time")
	}
	if kib := hugeKiB(t, at); kib < Size>>10 {
		t.Errorf("%d KiB in huge pages", kib)
	}
}

// hugeKiB returns how much of the mapping around the address is huge pages.
func hugeKiB(t *testing.T, at uintptr) int {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	inside := false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		}
		if size, ok := strings.CutPrefix(line, "AnonHugePages:"); ok && inside {
			kib, err := strconv.Atoi(strings.Fields(size)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("the address is in no mapping")
	return 0
}
