package store_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// watched is a store that counts what another refuses.
type watched struct {
	store.Store

	calls, refused int
}

func (w *watched) Do(ctx context.Context, b *store.Batch) {
	w.Store.Do(ctx, b)
	w.calls++
	for i := range b.Ops {
		if b.Err() == nil && !b.Out[i].Allowed {
			w.refused++
		}
	}
}

// A store around another is one method, whatever is asked of it: single requests,
// several limits at once, or many requests together.
func Example_wrapper() {
	ctx, limit := context.Background(), headgate.PerHour(2)
	db := &watched{Store: memory.New()}
	limiter := headgate.New(db)
	for range 3 {
		_, _ = limiter.Allow(ctx, "ann", limit)
	}
	ops := []store.Op{{Key: "ann", Rule: limit.Rule(), Cost: 1}, {Key: "bob", Rule: limit.Rule(), Cost: 1}}
	_ = limiter.Caller().Batch(ctx, ops, make([]store.Decision, len(ops)))
	fmt.Println(db.calls, "calls,", db.refused, "refused")
	// Output: 4 calls, 2 refused
}
