package main

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// pings sends Redis a command now and then.
type pings struct {
	stop context.CancelFunc
	done chan error
}

// ping sends so many PINGs a second, evenly, until it is closed.
func (b *bench) ping(ctx context.Context, perSecond float64) *pings {
	ctx, stop := context.WithCancel(ctx)
	p := &pings{stop: stop, done: make(chan error, 1)}
	go func() {
		ticks := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				p.done <- nil
				return
			case <-ticks.C:
			}
			if err := b.admin.Do(ctx, b.admin.B().Ping().Build()).Error(); err != nil && !errors.Is(err, context.Canceled) {
				p.done <- err
				return
			}
		}
	}()
	return p
}

func (p *pings) close() error {
	p.stop()
	return <-p.done
}

// drawsPerSecond returns how often all processes together draw a bucket that is asked for at
// the row's pace; docs/many/blocks.md says how long a block lasts.
func (w row) drawsPerSecond() float64 {
	age := w.inBlocks().Rule().BlockAge()
	lasts := age * 3 / 4
	if age >= 500*time.Millisecond {
		lasts = min(age*2/5, 400*time.Millisecond)
	}
	return float64(w.nodes) / lasts.Seconds()
}

// inBlocks returns the row's limit in blocks.
func (w row) inBlocks() headgate.Limit {
	return headgate.LimitOf(w.limit.Rule().InBlocks(store.Blocks{MaxAge: age, MaxOver: w.over}))
}
