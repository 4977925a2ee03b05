package subject

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/benchmarks/workload"
	"github.com/headgate/headgate/store/memory"
)

// ours is what a user of the library calls: a Limiter on the memory store,
// with the store's own clock.
type ours struct {
	limiter *headgate.Limiter
	store   *memory.Store
	limit   headgate.Limit
}

func newHeadgate(limit workload.Limit, keys int) (Subject, error) {
	// A quarter more than there are: shards fill unevenly, and a full one would
	// have to evict.
	store := memory.New(memory.WithMaxKeys(max(keys+keys/4, 100_000)))
	return &ours{
		limiter: headgate.New(store),
		store:   store,
		limit:   headgate.Per(limit.N, limit.Period),
	}, nil
}

func (o *ours) Take(key string) Outcome { return o.Fill(key, 1) }

func (o *ours) Fill(key string, n int64) Outcome {
	d, err := o.limiter.AllowN(context.Background(), key, o.limit, n)
	if err != nil {
		return Failed
	}
	return outcome(d.Allowed)
}

func (o *ours) Close() error { return o.store.Close() }
