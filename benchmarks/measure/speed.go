// Package measure runs workloads on limiters and checks that each run measured what its name
// says.
package measure

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// Speed is the result of one workload.
type Speed struct {
	Workload string  `json:"workload"`
	Cores    int     `json:"cores"`
	NsPerOp  float64 `json:"ns_per_op"` // wall time per decision, over all cores
	// AllocsPerOp includes the few allocations of the measurement.
	AllocsPerOp float64 `json:"allocs_per_op"`
	Ops         int64   `json:"ops"`
	Distinct    int     `json:"distinct_keys"`
	// AllowedShare and FailedShare (errors) are from 0 to 1.
	AllowedShare float64 `json:"allowed_share"`
	FailedShare  float64 `json:"failed_share"`
}

// Run is one limiter under one workload, all its keys in the table.
type Run struct {
	library  subject.Library
	work     workload.Workload
	subject  subject.Subject
	orders   [][]uint32
	restored int
}

// NewRun makes the limiter, inserts every key and sets GOMAXPROCS. Close undoes both.
func NewRun(library subject.Library, w workload.Workload) (*Run, error) {
	s, err := library.New(w.Limit, w.Keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library.Name, err)
	}
	r := &Run{library: library, work: w, subject: s, restored: runtime.GOMAXPROCS(w.Cores)}
	for worker := range w.Goroutines {
		r.orders = append(r.orders, w.Order(worker))
	}
	keys := workload.NewRenderer()
	for i := range uint32(w.Keys) {
		if s.Fill(strings.Clone(keys.Key(i)), max(w.Fill, 1)) != subject.Allowed {
			return nil, errors.Join(fmt.Errorf("%s: %s: key %d was refused while filling the table", library.Name, w.Name, i), r.Close())
		}
	}
	if w.Denied {
		// Spend the burst first, so that only refusals are measured.
		key := strings.Clone(keys.Key(0))
		for range 2 * w.Limit.N {
			s.Take(key)
		}
	}
	runtime.GC()
	return r, nil
}

// Close releases the limiter.
func (r *Run) Close() error {
	runtime.GOMAXPROCS(r.restored)
	return r.subject.Close()
}

// batch is how many requests a worker makes before it checks whether to stop.
const batch = 256

// For runs the workload for about d.
func (r *Run) For(duration time.Duration) (Speed, error) {
	var stop atomic.Bool
	timer := time.AfterFunc(duration, func() { stop.Store(true) })
	defer timer.Stop()
	return r.run(func(done int64) int64 {
		if done > 0 && stop.Load() {
			return 0
		}
		return batch
	})
}

// Times runs n requests, split among the workers.
func (r *Run) Times(n int) (Speed, error) {
	share := int64((n + r.work.Goroutines - 1) / r.work.Goroutines)
	return r.run(func(done int64) int64 { return min(batch, share-done) })
}

// tally is one worker's count, on separate cache lines.
type tally struct {
	allowed, failed, ops int64
	_                    [104]byte
}

// run runs all workers. Each makes as many requests as next returns for the number it has
// made, until that is 0.
func (r *Run) run(next func(done int64) int64) (Speed, error) {
	tallies := make([]tally, r.work.Goroutines)
	var ready, finished sync.WaitGroup
	start := make(chan struct{})
	for worker := range tallies {
		ready.Add(1)
		finished.Go(func() {
			ready.Done()
			<-start
			r.ask(r.orders[worker], &tallies[worker], next)
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	close(start)
	finished.Wait()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return r.summary(tallies, took, after.Mallocs-before.Mallocs)
}

// ask makes the requests of one worker.
func (r *Run) ask(order []uint32, t *tally, next func(done int64) int64) {
	keys := workload.NewRenderer()
	limiter := r.subject
	mask := len(order) - 1
	position := 0
	count := [...]int64{subject.Denied: 0, subject.Allowed: 0, subject.Failed: 0}
	var ops int64
	for n := next(ops); n > 0; n = next(ops) {
		if mask == 0 {
			key := keys.Key(order[0]) // one key: its text is made once
			for range n {
				count[limiter.Take(key)]++
			}
		} else {
			for range n {
				count[limiter.Take(keys.Key(order[position&mask]))]++
				position++
			}
		}
		ops += n
	}
	t.allowed, t.failed, t.ops = count[subject.Allowed], count[subject.Failed], ops
}

// summary adds up the tallies and checks the premises.
func (r *Run) summary(tallies []tally, took time.Duration, mallocs uint64) (Speed, error) {
	var sum tally
	each := make([]int64, len(tallies))
	for i, t := range tallies {
		each[i] = t.ops
		sum.allowed += t.allowed
		sum.failed += t.failed
		sum.ops += t.ops
	}
	ops := float64(sum.ops)
	speed := Speed{
		Workload:     r.work.Name,
		Cores:        r.work.Cores,
		NsPerOp:      float64(took) / ops,
		AllocsPerOp:  float64(mallocs) / ops,
		Ops:          sum.ops,
		Distinct:     r.work.Distinct(r.orders, each),
		AllowedShare: float64(sum.allowed) / ops,
		FailedShare:  float64(sum.failed) / ops,
	}
	err := errors.Join(
		r.work.CheckDistinct(speed.Distinct, sum.ops),
		r.work.CheckShare(sum.allowed, sum.failed, sum.ops),
	)
	if r.library.Name == subject.Ours && mallocs > 100+uint64(sum.ops/10_000) {
		err = errors.Join(err, fmt.Errorf("%s: %d allocations in %d requests, want none", r.work.Name, mallocs, sum.ops))
	}
	if err != nil {
		err = fmt.Errorf("%s: premise not met: %w", r.library.Name, err)
	}
	return speed, err
}

// Median returns the median of a figure over the samples. There must be at least one.
func Median[S any, T cmp.Ordered](samples []S, of func(S) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Processor returns the name of the machine's processor, if known.
func Processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
