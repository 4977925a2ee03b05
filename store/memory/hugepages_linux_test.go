package memory

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/base/hugepage"
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
		{"the same piece again", at + 9000, at + hugepage.Size - 1, nil},
		{"over an edge", at + hugepage.Size - 8, at + hugepage.Size + 8, []uintptr{at + hugepage.Size}},
		{"over three", at + hugepage.Size, at + 3*hugepage.Size, []uintptr{at + 2*hugepage.Size, at + 3*hugepage.Size}},
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
