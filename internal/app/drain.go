package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// closeDoors closes all doors at once, so that no request is lost that could be
// answered. First no door accepts more connections than there are already; then
// each asks its clients to close theirs, and closes those that say nothing more.
// What the proxy calls comes last.
func (a *App) closeDoors(ctx context.Context) error {
	var own, others []*door
	for _, d := range a.doors {
		if d.name == backendDoor {
			own = append(own, d)
		} else {
			others = append(others, d)
		}
	}
	_ = each(others, func(d *door) error { d.drain(ctx); return nil })
	err := each(others, func(d *door) error { return d.shutdown(ctx, a.options.Config.ShutdownIdle) })
	return errors.Join(err, each(own, func(d *door) error { return d.shutdown(ctx, 0) }))
}

// each calls f for all doors at once.
func each(doors []*door, f func(*door) error) error {
	errs := make([]error, len(doors))
	var wg sync.WaitGroup
	for i, d := range doors {
		wg.Go(func() { errs[i] = f(d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain accepts no more connections but those that clients have made already.
func (d *door) drain(ctx context.Context) {
	if d.watched != nil {
		d.watched.Drain(ctx)
	}
	if d.port != nil {
		d.port.Drain(ctx)
	}
}

//nolint:gochecknoglobals // an immutable header value
var connectionClose = []string{"close"}

// parting asks clients to close their connections once the door is closing: over
// HTTP/2, to open no more streams on them. What becomes another protocol is not
// asked, since its connection is no longer one of HTTP.
func (d *door) parting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.closing.Load() && len(r.Header["Upgrade"]) == 0 {
			w.Header()["Connection"] = connectionClose
		}
		h.ServeHTTP(w, r)
	})
}

// quiet waits until clients have no more to ask.
func (d *door) quiet(ctx context.Context, idle time.Duration) {
	d.closing.Store(true)
	if l := cmp.Or(d.bound, d.over); l != nil && idle > 0 {
		l.Quiet(ctx, idle)
	}
}

// shutdown lets requests finish until ctx is done and then cuts off the rest. A
// connection over HTTP/1 is closed when it has been idle for so long.
func (d *door) shutdown(ctx context.Context, idle time.Duration) error {
	if d.grpc != nil {
		if err := d.grpc.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", d.name, err)
		}
		return nil
	}
	if d.resp != nil {
		if err := d.resp.Shutdown(ctx); err != nil {
			return fmt.Errorf("%s: some requests were cut off: %w", d.name, err)
		}
		return nil
	}
	if d.port != nil {
		return d.port.Close()
	}
	if d.server == nil {
		return nil
	}
	d.quiet(ctx, idle)
	err := d.server.Shutdown(ctx)
	d.cut() // also ends upgraded connections, which the server has lost sight of
	if err != nil {
		_ = d.server.Close()
		return fmt.Errorf("%s: some requests were cut off: %w", d.name, err)
	}
	return nil
}
