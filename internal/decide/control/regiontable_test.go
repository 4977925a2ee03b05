package control_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/store/redis"
)

// regionTable is a table of a region with a clock of its own, as in lua/table*.lua.
type regionTable struct {
	clock      *clock
	name       string
	skew       time.Duration
	identity   int
	generation int64
	version    int64
	rows       map[string]control.Row
	marks      map[string]string
	down       func() error
}

func newRegionTable(c *clock, name string) *regionTable {
	t := &regionTable{clock: c, name: name, down: func() error { return nil }}
	t.lose()
	return t
}

func (t *regionTable) lose() {
	t.identity++
	t.generation, t.version, t.rows, t.marks = 0, 0, map[string]control.Row{}, map[string]string{}
}

// lag makes the table that of a replica which has missed what followed a call of copied.
func (t *regionTable) lag(old *regionTable) {
	if old.identity == t.identity {
		t.generation, t.version, t.rows, t.marks = old.generation, old.version, maps.Clone(old.rows), maps.Clone(old.marks)
	}
}

func (t *regionTable) copied() *regionTable {
	out := *t
	out.rows, out.marks = maps.Clone(t.rows), maps.Clone(t.marks)
	return &out
}

func (t *regionTable) now() time.Time { return t.clock.Now().Add(t.skew) }

func (t *regionTable) state() control.State {
	return control.State{Identity: fmt.Sprint(t.name, t.identity), Generation: t.generation, Version: t.version, Now: t.now()}
}

func (t *regionTable) set(r control.Row, above int64) {
	t.version = max(t.now().UnixMicro(), t.version+1, above+1)
	r.Version = t.version
	t.rows[r.Name] = r
}

func (t *regionTable) Look(context.Context) (control.State, error) { return t.state(), t.down() }

func (t *regionTable) since(version int64, most int) []control.Row {
	list := slices.SortedFunc(maps.Values(t.rows), func(a, b control.Row) int { return cmp.Compare(a.Version, b.Version) })
	list = slices.DeleteFunc(list, func(r control.Row) bool { return r.Version <= version })
	return list[:min(most, len(list))]
}

func (t *regionTable) Since(_ context.Context, version int64, most int) ([]control.Row, int64, error) {
	return t.since(version, most), t.version, t.down()
}

func (t *regionTable) full(name string, most int) bool {
	n := 0
	for _, r := range t.rows {
		if !r.Deleted {
			n++
		}
	}
	r, ok := t.rows[name]
	return n >= most && (!ok || r.Deleted)
}

func (t *regionTable) Put(_ context.Context, r control.Row, most int) error {
	if err := t.down(); err != nil {
		return err
	}
	if t.full(r.Name, most) {
		return control.ErrFull
	}
	if old := t.rows[r.Name]; !old.Deleted && old.Until.After(r.Until) {
		r.Until = old.Until
	}
	t.set(r, r.Version)
	return nil
}

func (t *regionTable) Delete(_ context.Context, r control.Row, _ int) (bool, error) {
	if err := t.down(); err != nil {
		return false, err
	}
	if old, ok := t.rows[r.Name]; (!ok || old.Deleted) && r.Value == "" {
		return false, nil
	}
	t.set(control.Row{Name: r.Name, Deleted: true, Until: t.now().Add(7 * 24 * time.Hour)}, r.Version)
	return true, nil
}

func (t *regionTable) Touch(context.Context) error {
	t.version = max(t.now().UnixMicro(), t.version+1)
	return t.down()
}

func (t *regionTable) Restore(_ context.Context, rows []control.Row) (taken int, err error) {
	if err := t.down(); err != nil {
		return 0, err
	}
	for _, r := range rows {
		if have, ok := t.rows[r.Name]; !ok || r.Version > have.Version {
			t.rows[r.Name] = r
			t.version = max(t.version+1, r.Version+1, t.now().UnixMicro())
			taken++
		}
	}
	t.generation++
	return taken, nil
}

func (t *regionTable) Merge(_ context.Context, news *redis.TableNews, most int) (is redis.TableMerged, err error) {
	if err := t.down(); err != nil {
		return is, err
	}
	for _, r := range news.Rows {
		switch have, ok := t.rows[r.Name]; {
		case ok && have.Version != r.Was:
			is.Changed++
		case t.full(r.Name, most):
			is.Full++
		default:
			t.set(control.Row{Name: r.Name, Value: r.Value, Until: r.Until}, max(r.Above, news.Seen))
			is.Written++
		}
	}
	if is.Changed+is.Full == 0 {
		t.marks[news.Region] = news.Mark
	}
	return is, nil
}

func (t *regionTable) Mark(_ context.Context, region string) (string, error) {
	return t.marks[region], t.down()
}

// what says what the table has of a name, and when and where that was said.
type what struct {
	at   int64
	from string
	text string // empty if it was ended
}

// Ends are left out: they are moved by how far clocks are apart.
func (t *regionTable) what(region string) map[string]what {
	out := map[string]what{}
	for name, r := range t.rows {
		is := what{at: r.Version, from: region}
		var s struct {
			Kind, Rate, ID, From string
			Key                  []byte
			At                   int64
		}
		if !r.Deleted {
			if err := json.Unmarshal([]byte(r.Value), &s); err != nil {
				panic(err)
			}
			if is.text = fmt.Sprint(s.Kind, s.Rate, s.ID); s.Kind == "ended" {
				is.text = ""
			}
			if s.From != "" {
				is.at, is.from = s.At, s.From
			}
		}
		if s.Kind != "reset" {
			out[name] = is
		}
	}
	return out
}

// window is a region's view of another one's table.
type window struct {
	*regionTable
	cut bool
}

var errCut = errors.New("cut")

func (w *window) Look(_ context.Context, region string) (control.State, string, error) {
	if w.cut {
		return control.State{}, "", errCut
	}
	return w.state(), w.marks[region], nil
}

func (w *window) Since(_ context.Context, of control.State, version int64, most int) ([]control.Row, error) {
	if w.cut || of.Identity != w.state().Identity || of.Generation != w.generation {
		return nil, errCut
	}
	return w.since(version, most), nil
}
