package storing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/blocks"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// returnEvery is how often the token secrets are checked, in addition to when the store
// has lost its data, and when a token is unknown.
const returnEvery = time.Minute

// controlTable is the name of the table of bans and overrides.
const controlTable = "control"

// Control reads the bans and overrides, and follows changes by other processes. It sets
// the table in o.
func (s *Store) Control(o control.Options) (*control.Manager, error) {
	// Without Redis, only expiry must be noticed.
	interval := time.Second
	if s.shared != nil {
		o.Table, o.Changed, interval = sharedTable{s.shared.Table(controlTable)}, s.forget, control.PollInterval
		o.Reset = func(scope, key string) {
			s.eachBlocks(func(b *blocks.Store) { b.Forget(store.Op{Scope: scope, Key: key}) })
		}
		o.Forgot, o.Evicted = s.secrets.Return, s.evicting
		s.returnSecrets()
		s.Life.Every(returnEvery, s.returnSecrets)
		s.watch()
	} else {
		table, err := s.openTable()
		if err != nil {
			return nil, err
		}
		o.Table, s.table = table, table
		s.saveTable()
	}
	if s.regions != nil {
		o.Region = s.Config.Regions.Name
	}
	m := control.New(o)
	// If the store is down, the table is read later; the failure is logged.
	_ = m.Sync(context.Background())
	if n := len(m.Entries()); n > 0 {
		s.Logger.Info("active bans and overrides", "entries", n)
	}
	s.Life.Every(interval, func() { _ = m.Sync(context.Background()) })
	return m, s.followRegions(m, o.Engine)
}

// openTable returns the table of a single process; with a snapshot, it is saved in a
// file next to it.
func (s *Store) openTable() (*control.Local, error) {
	path := s.FileFor("control")
	if path == "" {
		return control.NewLocal(s.Clock), nil
	}
	table, err := control.OpenLocal(path, s.Clock)
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
	s.Logger.Error("damaged file of bans and overrides, only what is readable is active",
		"entries", table.Len(), "file", path, "set_aside_as", aside, "err", err)
	if err := table.Save(); err != nil { // the next start must find it again
		s.Logger.Error("bans and overrides not saved", "err", errors.Join(err, os.Rename(aside, path)))
	}
	return table, nil
}

// saveTable saves at intervals what could not be saved when it changed.
func (s *Store) saveTable() {
	if s.snapshot.file == "" {
		return
	}
	s.Life.Every(s.Config.Memory.SnapshotInterval, func() {
		if err := s.table.Save(); err != nil {
			s.Logger.Error("bans and overrides not saved", "err", err)
		}
	})
}

// DescribeControl adds the metrics of bans and overrides.
func DescribeControl(m *control.Manager, c *metrics.Asked) {
	overrides := c.Gauge("headgate_overrides", "Active bans and overrides of keys, by kind: ban or limit.", "kind")
	lost := c.Counter("headgate_store_lost_total", "Times that the store was found to have lost data (flushed, restarted without its data, evicted, or failed over to a lagging replica), which was then written back.")
	c.Ask(func(out chan<- prometheus.Metric) {
		bans, limits := m.Count()
		overrides(out, float64(bans), "ban")
		overrides(out, float64(limits), "limit")
		lost(out, float64(m.Lost()))
	})
}

// sharedTable is a table in Redis.
type sharedTable struct{ *redis.Table }

// Put implements control.Table.
func (t sharedTable) Put(ctx context.Context, r control.Row, most int) error {
	err := t.Table.Put(ctx, r, most)
	if errors.Is(err, redis.ErrTableFull) {
		return control.ErrFull
	}
	return err
}
