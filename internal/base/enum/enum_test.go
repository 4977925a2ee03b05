package enum_test

import (
	"testing"

	"github.com/headgate/headgate/internal/base/enum"
)

type size uint8

const (
	small size = iota
	large
)

func (s size) String() string { return enum.Name(s, "size", "small", "large") }

func TestNamesAndValuesAreInverse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]size{"small": small, "large": large} {
		if got, ok := enum.Parse(text, large); !ok || got != want || got.String() != text {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "Small", "size(2)"} {
		if got, ok := enum.Parse(text, large); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
	if got := size(2).String(); got != "size(2)" {
		t.Error(got)
	}
}

func TestANameCostsNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = large.String() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
