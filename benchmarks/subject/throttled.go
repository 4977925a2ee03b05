package subject

import (
	"context"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/headgate/headgate/benchmarks/workload"
)

// throttledLimiter is throttled's GCRA on its map without a bound, which is
// faster than its LRU.
type throttledLimiter struct {
	limiter *throttled.GCRARateLimiterCtx
}

func newThrottled(limit workload.Limit, _ int) (Subject, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(limit.N), limit.Period),
		MaxBurst: int(limit.N) - 1,
	})
	return &throttledLimiter{limiter}, err
}

func (t *throttledLimiter) Take(key string) Outcome { return t.Fill(key, 1) }

func (t *throttledLimiter) Fill(key string, n int64) Outcome {
	limited, _, err := t.limiter.RateLimitCtx(context.Background(), key, int(n))
	if err != nil {
		return Failed
	}
	return outcome(!limited)
}

func (t *throttledLimiter) Close() error { return nil }
