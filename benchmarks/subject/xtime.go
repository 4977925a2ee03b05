package subject

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/benchmarks/workload"
)

// xtime is what most programs write: a mutex, a map, a rate.Limiter per key.
type xtime struct {
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

func (x *xtime) Take(key string) Outcome { return outcome(x.limiter(key).Allow()) }

func (x *xtime) Fill(key string, n int64) Outcome {
	return outcome(x.limiter(key).AllowN(time.Now(), int(n)))
}

func (x *xtime) Close() error { return nil }
