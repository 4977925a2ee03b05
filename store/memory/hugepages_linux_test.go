package memory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestHugePagesAreAskedForOnce(t *testing.T) {
	var h hugePages
	const at = 0xc000000000
	for _, tt := range []struct {
		name        string
		first, last uintptr
		want        []uintptr
	}{
		{"in one piece", at + 100, at + 5000, []uintptr{at}},
		{"the same piece again", at + 9000, at + hugePage - 1, nil},
		{"over an edge", at + hugePage - 8, at + hugePage + 8, []uintptr{at + hugePage}},
		{"over three", at + hugePage, at + 3*hugePage, []uintptr{at + 2*hugePage, at + 3*hugePage}},
	} {
		if got := h.ask(tt.first, tt.last); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
	h.forget(at)
	if got := h.ask(at, at); !slices.Equal(got, []uintptr{at}) {
		t.Errorf("after forget: %#x", got)
	}
}

// TestCollapse requests a huge page under a table and checks with the system that it
// exists, and that the table is unchanged.
func TestCollapse(t *testing.T) {
	if !hugePagesWanted() {
		t.Skip("no huge pages here")
	}
	slots := make([]slot, 3*hugePage/slotBytes) // contains one whole piece
	for i := range slots {
		slots[i].tag = uint64(i)
	}
	at := (uintptr(unsafe.Pointer(&slots[0])) + hugePage - 1) &^ (hugePage - 1)
	switch err := collapse(at); {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM):
		t.Skip("the system has none to spare:", err)
	case err != nil:
		t.Fatal(err)
	}
	for i := range slots {
		if slots[i].tag != uint64(i) {
			t.Fatalf("slot %d is %d", i, slots[i].tag)
		}
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, at, hugePage, madvCollapse); errno == syscall.EINVAL {
		t.Skip("this system makes them in its own time")
	}
	if kib := hugeKiB(t, at); kib < hugePage>>10 {
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
