//go:build !race

package listfile_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/listfile"
	"github.com/headgate/headgate/internal/rules/tablefile"
)

func TestTooLarge(t *testing.T) {
	m := &tablefile.Mistakes{File: "list.txt"}
	listfile.Read(endless{strings.NewReader(strings.Repeat("x", 1<<15) + "\n")}, m.Addf, func(listfile.Entry) {})
	if list := m.List(); len(list) != 1 || !strings.Contains(list[0].Message, "larger than 256 MiB") {
		t.Errorf("%v", list)
	}
}
