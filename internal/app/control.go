package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/control"
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
	snapshot := a.options.Config.Store.Memory.Snapshot
	if snapshot == "" {
		return control.NewLocal(a.options.Clock), nil
	}
	path := snapshot + ".control"
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
func (a *App) controlMetrics(c *askedCollector) {
	overrides := c.gauge("headgate_overrides", "Bans of keys, and limits of their own, that are in force.", "kind")
	c.ask(func(out chan<- prometheus.Metric) {
		bans, limits := a.control.Count()
		overrides(out, float64(bans), "ban")
		overrides(out, float64(limits), "limit")
	})
}

// sharedTable is a table in Redis.
type sharedTable struct{ *redis.Table }

// Since implements control.Table.
func (t sharedTable) Since(ctx context.Context, version int64, most int) ([]control.Row, int64, error) {
	rows, now, err := t.Table.Since(ctx, version, most)
	out := make([]control.Row, len(rows))
	for i, r := range rows {
		out[i] = control.Row{Name: r.Name, Value: r.Value, Deleted: r.Deleted, Version: r.Version}
	}
	return out, now, err
}

// Put implements control.Table.
func (t sharedTable) Put(ctx context.Context, name, value string, until time.Time, most int) error {
	err := t.Table.Put(ctx, name, value, until, most)
	if errors.Is(err, redis.ErrTableFull) {
		return control.ErrFull
	}
	return err
}
