package subject

import (
	"context"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/benchmarks/workload"
	"github.com/headgate/headgate/store/memory"
)

// endless is for libraries without anything to close.
type endless struct{}

func (endless) Close() error { return nil }

// ours is what users of the library call: a Limiter on the memory store, with the store's
// clock.
type ours struct {
	limiter *headgate.Limiter
	store   *memory.Store
	limit   headgate.Limit
}

func newHeadgate(limit workload.Limit, keys int) (Subject, error) {
	// A quarter more than needed: shards fill unevenly, and a full one would evict.
	store := memory.New(memory.WithMaxKeys(max(keys+keys/4, 100_000)))
	return &ours{headgate.New(store), store, headgate.Per(limit.N, limit.Period)}, nil
}

func (o *ours) Take(key string) Outcome { return o.Fill(key, 1) }

func (o *ours) Fill(key string, n int64) Outcome {
	d, err := o.limiter.AllowN(context.Background(), key, o.limit, n)
	return outcome(d.Allowed, err)
}

func (o *ours) Close() error { return o.store.Close() }

// xtime is what most programs write: a mutex, a map, a rate.Limiter per key.
type xtime struct {
	endless

	rate     rate.Limit
	burst    int
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func newXTime(limit workload.Limit, _ int) (Subject, error) {
	return &xtime{
		rate:     rate.Limit(float64(limit.N) / limit.Period.Seconds()),
		burst:    int(limit.N),
		limiters: make(map[string]*rate.Limiter),
	}, nil
}

func (x *xtime) limiter(key string) *rate.Limiter {
	x.mu.Lock()
	defer x.mu.Unlock()
	l, ok := x.limiters[key]
	if !ok {
		l = rate.NewLimiter(x.rate, x.burst)
		x.limiters[key] = l
	}
	return l
}

func (x *xtime) Take(key string) Outcome { return outcome(x.limiter(key).Allow(), nil) }

func (x *xtime) Fill(key string, n int64) Outcome {
	return outcome(x.limiter(key).AllowN(time.Now(), int(n)), nil)
}

// throttledLimiter is throttled's GCRA on its unbounded map, which is faster than its LRU.
type throttledLimiter struct {
	endless

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
	return &throttledLimiter{limiter: limiter}, err
}

func (t *throttledLimiter) Take(key string) Outcome { return t.Fill(key, 1) }

func (t *throttledLimiter) Fill(key string, n int64) Outcome {
	limited, _, err := t.limiter.RateLimitCtx(context.Background(), key, int(n))
	return outcome(!limited, err)
}

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
	return outcome(ok, err)
}

// Fill takes only one: the library has no cost, and its window keeps the key as long as the
// limit lasts.
func (g *goLimiter) Fill(key string, _ int64) Outcome { return g.Take(key) }

func (g *goLimiter) Close() error { return g.store.Close(context.Background()) }

// ululeLimiter is ulule/limiter: a fixed window per key in a sync.Map.
type ululeLimiter struct {
	endless

	limiter *ulule.Limiter
}

func newUlule(limit workload.Limit, _ int) (Subject, error) {
	return &ululeLimiter{limiter: ulule.New(ululememory.NewStore(), ulule.Rate{Period: limit.Period, Limit: limit.N})}, nil
}

func (u *ululeLimiter) Take(key string) Outcome { return u.Fill(key, 1) }

func (u *ululeLimiter) Fill(key string, n int64) Outcome {
	answer, err := u.limiter.Increment(context.Background(), key, n)
	return outcome(err == nil && !answer.Reached, err)
}
