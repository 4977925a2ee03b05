package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// single is a table that is not Bulk, and fails after some rows.
type single struct {
	control.Table
	left atomic.Int64
}

var errStopped = errors.New("stopped")

func (s *single) Put(ctx context.Context, r control.Row, most int) error {
	if s.left.Add(-1) < 0 {
		return errStopped
	}
	return s.Table.Put(ctx, r, most)
}

// Many entries are written together, all or none in a local table; grants are recorded
// next to bans and never in their place.
func TestPutAll(t *testing.T) {
	rs, list := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - {name: r, key: [user], rate: 5/hour}\n")})
	if len(list) > 0 {
		t.Fatal(list)
	}
	scope, now := rs.Rule("d", "r").Scope, time.Now
	entries := func(kind control.Kind, n int) (out []*control.Entry) {
		for i := range n {
			e := &control.Entry{Kind: kind, Domain: "d", Rule: "r", Scope: scope, Key: fmt.Sprint("k", i), Until: now().Add(time.Hour), Created: now()}
			if kind == control.Grant {
				e.Amount, e.ID = 5, "one"
			}
			out = append(out, e)
		}
		return out
	}
	path := filepath.Join(t.TempDir(), "control")
	local, err := control.OpenLocal(path, now)
	if err != nil {
		t.Fatal(err)
	}
	open := func(table control.Table, most int) *control.Manager {
		return control.New(control.Options{Table: table, Engine: engine.New(memory.New(), rs), Clock: now, Logger: slog.New(slog.DiscardHandler), Most: most})
	}
	m := open(local, 1000)
	if n, err := m.PutAll(t.Context(), entries(control.Ban, 400)); n != 400 || err != nil {
		t.Errorf("%d written: %v", n, err)
	}
	if n, err := m.PutAll(t.Context(), entries(control.Grant, 400)); n != 400 || err != nil || m.Room() != 200 {
		t.Errorf("%d written, room for %d: %v", n, m.Room(), err)
	}
	if n, err := m.PutAll(t.Context(), entries(control.Limit, 400)); n != 0 || !errors.Is(err, control.ErrFull) {
		t.Errorf("%d written: %v", n, err)
	}
	if n, err := m.PutAll(t.Context(), entries(control.Ban, 400)); n != 400 || err != nil || m.Room() != 200 { // replaced
		t.Errorf("%d written, room for %d: %v", n, m.Room(), err)
	}
	bans, limits := m.Count()
	if bans != 400 || limits != 0 || len(m.Entries()) != 400 || len(m.All()) != 800 {
		t.Errorf("%d bans, %d limits, %d entries, %d in all", bans, limits, len(m.Entries()), len(m.All()))
	}
	e := entries(control.Grant, 1)[0]
	if err := m.ForgetGrants(t.Context(), scope, "k1"); err != nil || !m.Granted(e) || len(m.All()) != 799 {
		t.Errorf("%v, %d in all", err, len(m.All()))
	}
	again, err := control.OpenLocal(path, now)
	if err != nil {
		t.Fatal(err)
	}
	restarted := open(again, 1000)
	if err := restarted.Sync(t.Context()); err != nil || len(restarted.All()) != 799 || !restarted.Granted(e) {
		t.Errorf("after a restart: %v, %d in all", err, len(restarted.All()))
	}
	failing := &single{Table: control.NewLocal(now)}
	failing.left.Store(150)
	one := open(failing, 1000)
	if n, err := one.PutAll(t.Context(), entries(control.Ban, 400)); n != 150 || !errors.Is(err, errStopped) || len(one.Entries()) != 150 {
		t.Errorf("%d written, %d active: %v", n, len(one.Entries()), err)
	}
	if n, err := one.PutAll(t.Context(), []*control.Entry{{Kind: control.Ban, Key: strings.Repeat("x", 1<<14)}}); n != 0 || err == nil {
		t.Errorf("an entry that is too large: %v", err)
	}
}
