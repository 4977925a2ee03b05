package blocks_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkHot compares a busy key in blocks with the same key in store/memory.
func BenchmarkHot(b *testing.B) {
	exact := headgate.PerSecond(1_000_000_000)
	in := headgate.LimitOf(exact.Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 1}))
	for _, c := range []struct {
		name  string
		store store.Store
		limit headgate.Limit
	}{
		{"memory", memory.New(), exact},
		{"blocks", blocks.New(memory.New(), blocks.Options{}), in},
	} {
		limiter := headgate.New(c.store)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, err := limiter.AllowN(b.Context(), "user:1234567", c.limit, 1); err != nil || !d.Allowed {
					b.Fatal("refused", err)
				}
			}
		})
		b.Run(c.name+"Parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if d, err := limiter.AllowN(b.Context(), "user:1234567", c.limit, 1); err != nil || !d.Allowed {
						b.Error("refused", err)
					}
				}
			})
		})
	}
}
