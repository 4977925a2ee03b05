package keytable_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules/keytable"
)

// A table finds what a map finds, whatever the keys are: empty, long, alike.
func TestFindsWhatAMapFinds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{0, 1, 2, 7, 100, 5000} {
		b, want := keytable.NewBuilder(), map[string]keytable.Row{}
		var repeated, wantRepeated int
		for i := range rows {
			key := fmt.Sprintf("%d", random.IntN(2*rows))
			switch random.IntN(10) {
			case 0:
				key = strings.Repeat(key, 1+random.IntN(60)) // past 127 bytes
			case 1:
				key = strings.Repeat("x", 20_000+random.IntN(30_000))
			case 2:
				key = ""
			}
			row := keytable.Row{Value: uint16(random.Uint32()), Line: uint32(i)}
			b.Add([]byte(key), row)
			if _, twice := want[key]; twice {
				wantRepeated++
				continue
			}
			want[key] = row
		}
		table := b.Table(func(first, again keytable.Row) {
			if repeated++; first.Line >= again.Line {
				t.Errorf("line %d is named before line %d", first.Line, again.Line)
			}
		})
		if repeated != wantRepeated || table.Len() != len(want) {
			t.Errorf("%d rows: %d repeated, want %d; %d left, want %d", rows, repeated, wantRepeated, table.Len(), len(want))
		}
		for key, row := range want {
			if got, ok := table.Find(key); !ok || got != row {
				t.Errorf("%.40q: %v %v, want %v", key, got, ok, row)
			}
		}
		for i := range 1000 {
			key := fmt.Sprint("-", i)
			if got, ok := table.Find(key); ok {
				t.Errorf("%q: %v, which was never added", key, got)
			}
		}
	}
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	if row, ok := (*keytable.Table)(nil).Find("x"); ok {
		t.Errorf("a table that is not there has %v", row)
	}
}

// A million rows take less than 25 bytes each, however long their keys are.
func TestSize(t *testing.T) {
	t.Parallel()
	const rows = 1_000_000
	b := keytable.NewBuilder()
	for i := range rows {
		b.Add(fmt.Appendf(nil, "\x24%036d", i), keytable.Row{Line: uint32(i)}) // as long as a UUID
	}
	table := b.Table(nil)
	each := float64(table.Size()) / rows
	t.Logf("%.1f bytes a row with keys of 37 bytes", each)
	if each > 25 || table.Len() != rows {
		t.Errorf("%.1f bytes a row, %d rows", each, table.Len())
	}
}
