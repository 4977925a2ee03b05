package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/internal/door"
)

// closeDoors closes all doors at once, so that no request is lost that could be
// answered. First no door accepts more connections than there are already; then
// each asks its clients to close theirs, and closes those that say nothing more.
func (a *App) closeDoors(ctx context.Context) error {
	_ = a.each(func(d *openDoor) error { d.drain(ctx); return nil })
	return a.each(func(d *openDoor) error {
		if err := d.server.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", d.Name, err)
		}
		return nil
	})
}

// each calls f for all doors at once.
func (a *App) each(f func(*openDoor) error) error {
	errs := make([]error, len(a.doors))
	var wg sync.WaitGroup
	for i, d := range a.doors {
		wg.Go(func() { errs[i] = f(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain accepts no more connections but those that clients have made already.
func (d *openDoor) drain(ctx context.Context) {
	if d.watched != nil {
		d.watched.Drain(ctx)
	}
	if s, ok := d.server.(door.Drainer); ok {
		s.Drain(ctx)
	}
}
