package subject

import (
	"context"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/headgate/headgate/benchmarks/workload"
)

// goLimiter is sethvargo/go-limiter: a fixed window per key.
type goLimiter struct {
	store limiter.Store
}

func newGoLimiter(limit workload.Limit, _ int) (Subject, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit.N), Interval: limit.Period})
	return &goLimiter{store}, err
}

func (g *goLimiter) Take(key string) Outcome {
	_, _, _, ok, err := g.store.Take(context.Background(), key)
	if err != nil {
		return Failed
	}
	return outcome(ok)
}

// Fill takes one only: the library knows no cost, and its window keeps the key
// as long as the limit lasts.
func (g *goLimiter) Fill(key string, _ int64) Outcome { return g.Take(key) }

func (g *goLimiter) Close() error { return g.store.Close(context.Background()) }
