package subject

import (
	"context"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/headgate/headgate/benchmarks/workload"
)

// ululeLimiter is ulule/limiter: a fixed window per key in a sync.Map.
type ululeLimiter struct {
	limiter *limiter.Limiter
}

func newUlule(limit workload.Limit, _ int) (Subject, error) {
	store := memory.NewStore()
	return &ululeLimiter{limiter.New(store, limiter.Rate{Period: limit.Period, Limit: limit.N})}, nil
}

func (u *ululeLimiter) Take(key string) Outcome { return u.Fill(key, 1) }

func (u *ululeLimiter) Fill(key string, n int64) Outcome {
	answer, err := u.limiter.Increment(context.Background(), key, n)
	if err != nil {
		return Failed
	}
	return outcome(!answer.Reached)
}

func (u *ululeLimiter) Close() error { return nil }
