package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/internal/door"
)

// Close closes all doors at once, so that no request is lost that could be
// answered. First no door accepts more connections than there are already; then
// each asks its clients to close theirs, and closes those that say nothing more.
func (d *Doors) Close(ctx context.Context) error {
	_ = d.each(func(o *openDoor) error { o.drain(ctx); return nil })
	return d.each(func(o *openDoor) error {
		if err := o.server.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", o.Name, err)
		}
		return nil
	})
}

// each calls f for all doors at once.
func (d *Doors) each(f func(*openDoor) error) error {
	errs := make([]error, len(d.open))
	var wg sync.WaitGroup
	for i, o := range d.open {
		wg.Go(func() { errs[i] = f(o) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain accepts no more connections but those that clients have made already.
func (o *openDoor) drain(ctx context.Context) {
	if o.watched != nil {
		o.watched.Drain(ctx)
	}
	if s, ok := o.server.(door.Drainer); ok {
		s.Drain(ctx)
	}
}
