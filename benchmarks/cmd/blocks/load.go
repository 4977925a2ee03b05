package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// tally is what callers counted.
type tally struct {
	ops, passed, degraded int64
	latencies             []time.Duration // of some of them
	counts                []int32         // of each key
	took                  time.Duration
	mallocs               uint64
}

// load lets all callers ask for a time, while during runs.
func (s *setup) load(ctx context.Context, long time.Duration, during func() error) (sum tally, err error) {
	callers := make([]caller, s.row.callers)
	for i := range callers {
		callers[i] = s.newCaller(i)
	}
	var stop atomic.Bool
	var last atomic.Int64 // when a request passed, if they must all do
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { callers[i].run(ctx, s, began, &stop, &last) })
	}
	err = during()
	time.Sleep(long - time.Since(began))
	for s.row.total > 0 && ctx.Err() == nil && time.Since(began)-time.Duration(last.Load()) < quiet {
		time.Sleep(quiet / 10)
	}
	stop.Store(true)
	group.Wait()
	sum.took = time.Since(began)
	runtime.ReadMemStats(&after)
	sum.mallocs = after.Mallocs - before.Mallocs
	sum.counts = make([]int32, s.row.keys)
	for i := range callers {
		c := &callers[i]
		sum.ops, sum.passed, sum.degraded = sum.ops+c.ops, sum.passed+c.passed, sum.degraded+c.degraded
		sum.latencies = append(sum.latencies, c.latencies...)
		for j, n := range c.counts {
			sum.counts[j] += n
		}
		err = errors.Join(err, c.err)
	}
	slices.Sort(sum.latencies)
	return sum, errors.Join(err, ctx.Err())
}

// quiet is how long nothing passes before a window is used up: longer than a process keeps
// what it does not use.
const quiet = 500 * time.Millisecond

// caller makes one request after another.
type caller struct {
	limiter *headgate.Limiter
	next    func() int // the next key
	every   int64      // the latency of one request of so many is measured
	pause   time.Duration
	tally
	err error
}

func (s *setup) newCaller(i int) caller {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	c := caller{limiter: headgate.New(s.stores[i%len(s.stores)]), every: 1}
	c.counts = make([]int32, s.row.keys)
	c.latencies = make([]time.Duration, 0, 1<<16)
	if s.row.pace > 0 {
		c.pause = time.Duration(float64(time.Second) * float64(s.row.callers) / s.row.pace)
	} else if s.row.keys == 1 {
		c.every = 61 // or reading the clock would be most of what is measured
	}
	switch {
	case s.row.skew > 0:
		zipf := rand.NewZipf(random, s.row.skew, 1, uint64(s.row.keys-1))
		c.next = func() int { return int(zipf.Uint64()) }
	case s.row.keys > 1:
		c.next = func() int { return random.IntN(s.row.keys) }
	}
	return c
}

// run asks until stopped. With a pace, the first requests of the callers are spread over a
// pause, and one that is late is not made up for.
func (c *caller) run(ctx context.Context, s *setup, began time.Time, stop *atomic.Bool, last *atomic.Int64) {
	due := time.Since(began) + rand.N(c.pause+1)
	for !stop.Load() && c.err == nil {
		if c.pause > 0 {
			time.Sleep(due - time.Since(began))
			due = max(due+c.pause, time.Since(began)-c.pause)
		}
		key := 0
		if c.next != nil {
			key = c.next()
		}
		var at time.Time
		timed := c.ops%c.every == 0 && len(c.latencies) < cap(c.latencies)
		if timed {
			at = time.Now()
		}
		d, err := c.limiter.AllowN(ctx, s.names[key], s.limit, 1)
		if timed {
			c.latencies = append(c.latencies, time.Since(at))
		}
		c.count(key, &d, err)
		if d.Allowed && s.row.total > 0 {
			last.Store(int64(time.Since(began)))
		}
	}
}

func (c *caller) count(key int, d *headgate.Decision, err error) {
	c.ops++
	c.counts[key]++
	switch {
	case err != nil && !errors.Is(err, headgate.ErrUnavailable):
		c.err = err
	case err != nil || d.Reason == headgate.ReasonFailOpen || d.Reason == headgate.ReasonFailClosed:
		c.degraded++
	case d.Allowed:
		c.passed++
	}
}

// summary computes the figures.
func (s *setup) summary(t *tally, commands, cpu float64) sample {
	ops, seconds := float64(t.ops), t.took.Seconds()
	out := sample{
		Requests: t.ops, PerSecond: ops / seconds, NsPerOp: seconds * 1e9 / ops,
		Passed: float64(t.passed) / seconds, Share: float64(t.passed) / ops,
		Commands: commands / ops, ServerCPU: cpu / ops * 1e6,
		Allocs: float64(t.mallocs) / ops, Degraded: t.degraded,
	}
	if n := len(t.latencies); n > 0 {
		out.P50, out.P99 = t.latencies[n/2], t.latencies[n*99/100]
	}
	draws := float64(s.row.nodes) * mostDraws * seconds / s.beat().Seconds()
	for _, n := range t.counts {
		if n == 0 {
			continue
		}
		out.Keys++
		out.Expected += min(float64(n), draws) / ops
	}
	return out
}

// mostDraws is how often each process draws a busy key in a beat, at most.
const mostDraws = 2

// beat returns the time for which a process draws tokens; see docs/many/blocks.md.
func (s *setup) beat() time.Duration {
	return min(100*time.Millisecond, max(s.limit.Rule().BlockAge(), time.Microsecond)*3/4)
}

// leastKeys returns how many distinct keys so many requests must have used.
func (s *setup) leastKeys(out *sample) int {
	keys, requests := float64(s.row.keys), float64(out.Requests)
	if s.row.skew > 0 {
		return int(math.Sqrt(requests))
	}
	return int(0.9 * keys * -math.Expm1(-requests/keys))
}
