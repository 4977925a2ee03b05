// Package lifetime stops what a process has started, in reverse order.
package lifetime

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Lifetime collects functions to call at the end. The zero Lifetime is ready to use.
// It is safe for concurrent use.
type Lifetime struct {
	mu   sync.Mutex
	ends []func()
}

// OnEnd adds f, to be called by End before functions that were added earlier.
func (l *Lifetime) OnEnd(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, f)
}

// Go calls run in the background. End cancels its context and waits for it.
func (l *Lifetime) Go(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	l.OnEnd(func() {
		cancel()
		running.Wait()
	})
}

// Every calls f at intervals until End.
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

// End calls all functions, the last added first. Later additions are for the next End.
func (l *Lifetime) End() {
	l.mu.Lock()
	ends := l.ends
	l.ends = nil
	l.mu.Unlock()
	for _, end := range slices.Backward(ends) {
		end()
	}
}
