package keytable_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/rules/keytable"
)

func BenchmarkFind(b *testing.B) {
	const rows = 1_000_000
	t := keytable.NewBuilder()
	keys := make([]string, rows)
	for i := range rows {
		keys[i] = fmt.Sprintf("\x24customer-%027d", i)
		t.Add([]byte(keys[i]), keytable.Row{Line: uint32(i)})
	}
	table := t.Table(nil)
	random := rand.New(rand.NewPCG(1, 2))
	for name, n := range map[string]int{"hot": 100, "uniform": rows} {
		b.Run(name, func(b *testing.B) {
			order := make([]string, 1<<16)
			for i := range order {
				order[i] = keys[random.IntN(n)]
			}
			i := 0
			for b.Loop() {
				if _, ok := table.Find(order[i&(1<<16-1)]); !ok {
					b.Fatal("a key is missing")
				}
				i++
			}
		})
	}
}
