//go:build !race

// With the race detector sync.Pool drops things on purpose.

package rules

import (
	"testing"
)

func TestDigestsAllocateNothing(t *testing.T) {
	for _, secret := range []KeySecret{"", "0123456789abcdef0123456789abcdef"} {
		d, space := newDigester(secret), make([]byte, 0, 64)
		if n := testing.AllocsPerRun(100, func() { space = d.appendPart(space[:0], "sk-live-1") }); n > 0 {
			t.Errorf("with %d bytes of secret: %v allocations", len(secret), n)
		}
	}
}
