package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// openControl reads the bans and overrides there are, and follows what other
// processes say about them.
func (a *App) openControl() error {
	o := control.Options{
		Engine: a.engine, Rules: a.state.Load().rules, Clock: a.options.Clock, Logger: a.log,
	}
	// Alone, all there is to notice is that something ends.
	interval := time.Second
	if a.shared != nil {
		o.Table, o.Changed, interval = sharedTable{a.shared.Table("control")}, a.safe.Forget, control.PollInterval
		o.Forgot = a.returnSecrets
		a.returnSecrets()
		a.every(returnEvery, a.returnSecrets)
		a.watchStore()
	} else {
		table, err := a.openTable()
		if err != nil {
			return err
		}
		o.Table = table
	}
	a.control = control.New(o)
	// Without the store it is read later, and the log says so.
	_ = a.control.Sync(context.Background())
	if n := len(a.control.Entries()); n > 0 {
		a.log.Info("bans and overrides in force", "entries", n)
	}
	a.every(interval, func() { _ = a.control.Sync(context.Background()) })
	return nil
}

// openTable returns the table of a process that is alone; with a snapshot of
// its counts it has a file beside it.
func (a *App) openTable() (*control.Local, error) {
	if a.snapshots.file == "" {
		return control.NewLocal(a.options.Clock), nil
	}
	path := a.snapshots.file + ".control"
	table, err := control.OpenLocal(path, a.options.Clock)
	if err == nil {
		return table, nil
	}
	if !errors.Is(err, control.ErrDamaged) {
		return nil, fmt.Errorf("bans and overrides not restored: %w", err)
	}
	aside, asideErr := memory.SetAside(path)
	if asideErr != nil {
		return nil, fmt.Errorf("bans and overrides not restored: %w; %w", err, asideErr)
	}
	a.log.Error("the file of bans and overrides is damaged, there are none now", "file", path, "set_aside_as", aside, "err", err)
	return control.OpenLocal(path, a.options.Clock)
}

// controlMetrics tells how many bans and overrides there are.
func (a *App) controlMetrics(c *metrics.Asked) {
	overrides := c.Gauge("headgate_overrides", "Bans of keys, and limits of their own, that are in force.", "kind")
	lost := c.Counter("headgate_store_lost_total", "How often the store had lost what it was told, which was then written back: emptied, restarted without its data, evicted, or failed over to a replica that lagged.")
	c.Ask(func(out chan<- prometheus.Metric) {
		bans, limits := a.control.Count()
		overrides(out, float64(bans), "ban")
		overrides(out, float64(limits), "limit")
		lost(out, float64(a.control.Lost()))
	})
}

// sharedTable is a table in Redis.
type sharedTable struct{ table *redis.Table }

// Look implements control.Table.
func (t sharedTable) Look(ctx context.Context) (control.State, error) {
	state, err := t.table.Look(ctx)
	return control.State(state), err
}

// Since implements control.Table.
func (t sharedTable) Since(ctx context.Context, version int64, most int) ([]control.Row, int64, error) {
	rows, now, err := t.table.Since(ctx, version, most)
	out := make([]control.Row, len(rows))
	for i, r := range rows {
		out[i] = control.Row(r)
	}
	return out, now, err
}

// Put implements control.Table.
func (t sharedTable) Put(ctx context.Context, r control.Row, most int) error {
	err := t.table.Put(ctx, redis.TableRow(r), most)
	if errors.Is(err, redis.ErrTableFull) {
		return control.ErrFull
	}
	return err
}

// Delete implements control.Table.
func (t sharedTable) Delete(ctx context.Context, r control.Row, most int) (bool, error) {
	return t.table.Delete(ctx, redis.TableRow(r), most)
}

// Touch implements control.Table.
func (t sharedTable) Touch(ctx context.Context) error { return t.table.Touch(ctx) }

// Restore implements control.Forgetful.
func (t sharedTable) Restore(ctx context.Context, rows []control.Row) (int, error) {
	out := make([]redis.TableRow, len(rows))
	for i, r := range rows {
		out[i] = redis.TableRow(r)
	}
	return t.table.Restore(ctx, out)
}
