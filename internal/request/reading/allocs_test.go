//go:build !race

// The race detector allocates for itself.

package reading_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/reading"
)

func TestReadingAllocatesNothing(t *testing.T) {
	for _, p := range []string{"/", "/v1/users/12345", "/V1/Users", "/caf%C3%A9", "/x/..;/a%2flogin", strings.Repeat("/..;/%252f", 50)} {
		var s reading.Set
		if n := testing.AllocsPerRun(100, func() {
			s.Read(p)
			s.Folded(0)
			s.FoldedPlain(0)
		}); n > 0 {
			t.Errorf("%.40q: %v allocations", p, n)
		}
	}
}
