package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

const twoRules = `
domain: api
limits:
  - {name: a, key: [user], rate: 5/minute}
  - {name: b, key: [user], rate: 5/minute, algorithm: sliding_log}
`

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	return rs
}

// clock is a time that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// node is one of the processes that share a table.
type node struct {
	*control.Manager
	engine  *engine.Engine
	rules   *rules.Ruleset
	table   control.Table
	changed int
	resets  []string // the keys
	evicted bool
	forgot  func() error // handles a loss, if not nil
	log     bytes.Buffer
}

func newNode(t testing.TB, table control.Table, clock *clock, most int) *node {
	t.Helper()
	return newNodeAt(t, table, clock.Now, most)
}

func newNodeAt(t testing.TB, table control.Table, now func() time.Time, most int) *node {
	t.Helper()
	n := &node{rules: parse(t, twoRules), table: table}
	store := memory.New(memory.WithMaxKeys(10))
	t.Cleanup(func() { _ = store.Close() })
	n.engine = engine.New(store, n.rules)
	n.Manager = control.New(control.Options{
		Table: table, Engine: n.engine, Clock: now, Most: most,
		Logger: slog.New(slog.NewTextHandler(&n.log, nil)), Changed: func() { n.changed++ },
		Reset: func(_, key string) { n.resets = append(n.resets, key) },
		Forgot: func(context.Context) error {
			if n.forgot == nil {
				return nil
			}
			return n.forgot()
		},
		Evicted: func(context.Context) bool { return n.evicted },
	})
	return n
}

// openRegion opens a process of a region.
func openRegion(n *node, region string, clock *clock, most int) {
	n.Manager = control.New(control.Options{
		Table: n.table, Engine: n.engine, Clock: clock.Now, Most: most, Region: region,
		Logger: slog.New(slog.NewTextHandler(&n.log, nil)), Reset: func(_, key string) { n.resets = append(n.resets, key) },
	})
}

func key(part string) string { return string(headgate.AppendKey(nil, part)) }

// entry returns a ban, or with a rate another limit.
func (n *node) entry(rule, user, rate string, until time.Time) *control.Entry {
	r := n.rules.Rule("api", rule)
	e := &control.Entry{Domain: "api", Rule: rule, Scope: r.Scope, Key: key(user), Until: until, Created: until.Add(-time.Hour), By: "test"}
	if rate != "" {
		e.Kind, e.Rate = control.Limit, rate
	}
	return e
}

// state returns what the engine of n applies to a key.
func (n *node) state(rule, user string, now time.Time) string {
	applies, banned := n.engine.Applies(n.rules.Rule("api", rule), key(user), now)
	text := fmt.Sprint(applies.Limit.N())
	if !banned.IsZero() {
		text += " banned for " + banned.Sub(now).String()
	}
	return text
}

func (n *node) sync(t testing.TB) {
	t.Helper()
	if err := n.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (n *node) put(t testing.TB, e *control.Entry) {
	t.Helper()
	if err := n.Put(context.Background(), e); err != nil {
		t.Fatal(err)
	}
}

// flaky is a table that sometimes fails, before or after it has executed a call.
type flaky struct {
	control.Table
	r     *rand.Rand
	often float64
}

var errDown = errors.New("down")

func (f *flaky) fails() error {
	if f.r.Float64() < f.often {
		return errDown
	}
	return nil
}

func (f *flaky) Look(ctx context.Context) (control.State, error) {
	state, err := f.Table.Look(ctx)
	return state, errors.Join(f.fails(), err)
}

func (f *flaky) Since(ctx context.Context, version int64, most int) ([]control.Row, int64, error) {
	rows, now, err := f.Table.Since(ctx, version, most)
	return rows, now, errors.Join(f.fails(), err)
}

func (f *flaky) Put(ctx context.Context, r control.Row, most int) error {
	if err := f.fails(); err != nil {
		return err
	}
	return errors.Join(f.Table.Put(ctx, r, most), f.fails())
}

func (f *flaky) Delete(ctx context.Context, r control.Row, most int) (bool, error) {
	if err := f.fails(); err != nil {
		return false, err
	}
	ok, err := f.Table.Delete(ctx, r, most)
	return ok, errors.Join(f.fails(), err)
}
