// Package lifetime ends what a process has begun, last to first.
package lifetime

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Lifetime is what has to be ended. The zero Lifetime has nothing to end. It is
// safe for concurrent use.
type Lifetime struct {
	mu   sync.Mutex
	ends []func()
}

// OnEnd has f called at the end, before all that was added earlier.
func (l *Lifetime) OnEnd(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, f)
}

// Go calls run in the background. At the end its context is cancelled, and run is
// waited for.
func (l *Lifetime) Go(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	l.OnEnd(func() {
		cancel()
		running.Wait()
	})
}

// Every calls f at intervals until the end.
func (l *Lifetime) Every(interval time.Duration, f func()) {
	l.Go(func(ctx context.Context) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f()
			}
		}
	})
}

// End ends everything. What is added later is for the next End.
func (l *Lifetime) End() {
	l.mu.Lock()
	ends := l.ends
	l.ends = nil
	l.mu.Unlock()
	for _, end := range slices.Backward(ends) {
		end()
	}
}
