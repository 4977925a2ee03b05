package memory_test

import (
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestBoundsThatNobodySet: a configuration field that is not set, or lacks its unit,
// does not lead to a store that lets everything pass.
func TestBoundsThatNobodySet(t *testing.T) {
	for name, option := range map[string]memory.Option{
		"WithMaxKeys(0)": memory.WithMaxKeys(0), "WithMaxKeys(-1)": memory.WithMaxKeys(-1),
		"WithMaxBytes(0)": memory.WithMaxBytes(0), "WithMaxBytes(-1)": memory.WithMaxBytes(-1), "WithMaxBytes(256)": memory.WithMaxBytes(256),
	} {
		l, passed := headgate.New(memory.New(option)), 0
		for i := range 1000 {
			d, err := l.Allow(t.Context(), strconv.Itoa(i%50), headgate.PerDay(5))
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				passed++
			}
		}
		if passed != 250 {
			t.Errorf("%s: %d of 1000 requests of 50 clients pass, want 250", name, passed)
		}
	}
}
