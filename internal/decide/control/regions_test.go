//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package control_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// world is some regions with a table and two processes each.
type world struct {
	testing.TB
	r        *rand.Rand
	clock    *clock
	names    []string
	tables   map[string]*regionTable
	nodes    map[string][]*node
	replicas map[string]*regionTable
	windows  map[[2]string]*window // from, to
	follow   map[[2]string][]*control.Follower
	carried  map[string]map[string]int // by region and order
	most     int
	fails    float64 // how often carrying fails
	rules    *rules.Ruleset
	store    *memory.Store
}

func newWorld(t testing.TB, seed uint64, most int, names ...string) *world {
	t.Helper()
	w := &world{
		TB: t, r: rand.New(rand.NewPCG(seed, 7)), clock: newClock(), names: names, most: most,
		tables: map[string]*regionTable{}, replicas: map[string]*regionTable{}, nodes: map[string][]*node{}, windows: map[[2]string]*window{},
		follow: map[[2]string][]*control.Follower{}, carried: map[string]map[string]int{},
	}
	w.rules, w.store = parse(t, twoRules), memory.New(memory.WithMaxKeys(10))
	t.Cleanup(func() { _ = w.store.Close() })
	for _, name := range names {
		w.tables[name], w.carried[name] = newRegionTable(w.clock, name), map[string]int{}
	}
	for _, from := range names {
		for _, to := range names {
			if from != to {
				w.windows[[2]string{from, to}] = &window{regionTable: w.tables[to]}
			}
		}
		w.nodes[from] = []*node{nil, nil}
		w.restart(from, 0)
		w.restart(from, 1)
	}
	return w
}

// restart replaces a process.
func (w *world) restart(region string, i int) {
	n := &node{rules: w.rules, table: w.tables[region], engine: engine.New(w.store, w.rules)}
	openRegion(n, region, w.clock, w.most)
	w.nodes[region][i] = n
	for _, to := range w.names {
		if to == region {
			continue
		}
		at := [2]string{region, to}
		f, err := control.Follow(control.FollowOptions{Manager: n.Manager, Region: to, Table: w.windows[at], Clock: w.clock.Now, Carry: func(_ context.Context, o *control.Order) error {
			if w.r.Float64() < w.fails {
				return headgate.ErrUnavailable
			}
			w.carried[region][o.ID]++
			return nil
		}})
		if err != nil {
			w.Fatal(err)
		}
		if w.follow[at] == nil {
			w.follow[at] = make([]*control.Follower, 2)
		}
		w.follow[at][i] = f
	}
}

// calm lets all regions read each other until nothing changes.
func (w *world) calm() {
	for _, at := range w.windows {
		at.cut = false
	}
	w.fails = 0
	for range 8 {
		w.clock.advance(time.Second)
		for _, name := range w.names {
			for i := range w.nodes[name] {
				_ = w.nodes[name][i].Sync(context.Background())
			}
			for _, to := range w.names {
				for _, f := range w.follow[[2]string{name, to}] {
					f.Tick(context.Background())
				}
			}
		}
	}
	for at, list := range w.follow {
		if is := list[0].Stats(); is.Err != nil {
			w.Errorf("%s: %v", at, is.Err)
		}
	}
}

// agree checks that all tables say the same.
func (w *world) agree() {
	w.Helper()
	first := w.tables[w.names[0]].what(w.names[0])
	for _, name := range w.names[1:] {
		if got := w.tables[name].what(name); !maps.Equal(first, got) {
			w.Fatalf("%s and %s differ: %s", w.names[0], name, cmp.Diff(first, got, cmp.AllowUnexported(what{})))
		}
	}
}

// change does something in a region, and returns the names that it wrote.
func (w *world) change(region string) {
	n := w.nodes[region][w.r.IntN(2)]
	rate := []string{"", "7/minute", "9/minute"}[w.r.IntN(3)]
	e := n.entry([]string{"a", "b"}[w.r.IntN(2)], fmt.Sprint(w.r.IntN(4)), rate, w.clock.Now().Add(time.Duration(1000+w.r.IntN(1000))*time.Hour))
	switch w.r.IntN(4) {
	case 0, 1:
		_ = n.Put(context.Background(), e)
	case 2:
		_, _ = n.Delete(context.Background(), e)
	case 3:
		e.Kind, e.Amount, e.ID, e.Rate = control.Grant, 5, fmt.Sprint(w.r.Uint32()), ""
		if w.r.IntN(4) == 0 {
			_ = n.ForgetGrants(context.Background(), e.Scope, e.Key)
		} else {
			_ = n.Put(context.Background(), e)
		}
	}
}

// step does anything: a change, a read, a cut, a failure, a clock that is set.
func (w *world) step(bad int) {
	region := w.names[w.r.IntN(len(w.names))]
	other := w.names[w.r.IntN(len(w.names))]
	at := [2]string{region, other}
	switch k := w.r.IntN(40); {
	case k < 12:
		w.change(region)
	case k < 22:
		_ = w.nodes[region][w.r.IntN(2)].Sync(context.Background())
	case k < 32:
		if list := w.follow[at]; list != nil {
			list[w.r.IntN(len(list))].Tick(context.Background())
		}
	case k < 35:
		w.clock.advance(time.Duration(w.r.IntN(3000)) * time.Millisecond)
	case k < 37:
		if l := w.windows[at]; l != nil {
			l.cut = !l.cut
		}
	case k < 38 && bad > 0:
		w.tables[region].skew = time.Duration(w.r.IntN(7200)-3600) * time.Second
	case k < 39 && bad > 1:
		switch w.r.IntN(4) {
		case 0:
			w.tables[region].lose()
		case 1:
			w.replicas[region] = w.tables[region].copied()
		case 2:
			if old := w.replicas[region]; old != nil {
				w.tables[region].lag(old)
			}
		}
	case bad > 1:
		w.restart(region, w.r.IntN(2))
	}
}

// Whatever is changed where, in whatever order regions read each other, with cuts, clocks
// that differ by an hour and are set, lost tables and restarted processes: once all can
// read each other again, all say the same. Without lost tables, they say what was said
// last, and each grant was carried out in each region.
func TestRegionsComeToTheSame(t *testing.T) {
	seeds, steps := uint64(21), 400
	for seed := range seeds {
		w := newWorld(t, seed, 0, "ap", "eu", "us")
		bad := int(seed % 3)
		w.fails = 0.2
		last := map[string]what{}
		for range steps {
			w.step(bad)
			for _, name := range w.names {
				for row, is := range w.tables[name].what(name) {
					if is.from == name && (is.at > last[row].at || is.at == last[row].at && is.from > last[row].from) {
						last[row] = is
					}
				}
			}
		}
		w.calm()
		w.agree()
		if bad < 2 {
			if got := w.tables["eu"].what("eu"); !maps.Equal(got, last) {
				t.Fatalf("seed %d: %s", seed, cmp.Diff(last, got, cmp.AllowUnexported(what{})))
			}
			w.allCarried(seed)
		}
	}
}

func (w *world) allCarried(seed uint64) {
	for _, name := range w.names {
		for _, is := range w.tables[name].what(name) {
			id, grant := strings.CutPrefix(is.text, "grant")
			if !grant || is.from == name {
				continue
			}
			n := 0
			for order, times := range w.carried[name] {
				if _, of, _ := strings.Cut(order, ":"); strings.HasPrefix(id, of) {
					n += times
				}
			}
			if n == 0 {
				w.Fatalf("seed %d: %s has not carried out grant %s of %s", seed, name, id, is.from)
			}
		}
	}
}

// pair is two regions, of which eu is in front of the test.
func pair(t *testing.T, most int) (w *world, eu, us *node, tick func()) {
	w = newWorld(t, 1, most, "eu", "us")
	eu, us = w.nodes["eu"][0], w.nodes["us"][0]
	tick = func() {
		for _, name := range w.names {
			for _, n := range w.nodes[name] {
				n.sync(t)
			}
		}
		for _, at := range [][2]string{{"eu", "us"}, {"us", "eu"}} {
			w.follow[at][0].Tick(context.Background())
		}
	}
	tick()
	return w, eu, us, tick
}

// A ban reaches the other region; ended there, it is ended here; and while both are cut
// off, the later change wins. A region is asked how far it has read.
func TestBanReachesTheOtherRegion(t *testing.T) {
	w, eu, us, tick := pair(t, 0)
	later := w.clock.Now().Add(time.Hour)
	ban := eu.entry("a", "ann", "", later)
	reached := func(want bool) {
		t.Helper()
		if got, err := w.follow[[2]string{"eu", "us"}][1].Reached(context.Background()); got != want || err != nil {
			t.Errorf("us has read everything: %v, %v, want %v", got, err, want)
		}
	}
	eu.put(t, ban)
	reached(false)
	tick()
	reached(true)
	if got := us.state("a", "ann", w.clock.Now()); got != "5 banned for 1h0m0s" {
		t.Errorf("us: %s", got)
	}
	if ok, err := us.Delete(context.Background(), ban); !ok || err != nil {
		t.Errorf("ended: %v, %v", ok, err)
	}
	tick()
	if got := eu.state("a", "ann", w.clock.Now()); got != "5" {
		t.Errorf("eu: %s", got)
	}
	if ok, err := eu.Delete(context.Background(), ban); ok || err != nil {
		t.Errorf("ended twice: %v, %v", ok, err)
	}
	for _, at := range w.windows {
		at.cut = true
	}
	eu.put(t, ban)
	w.clock.advance(time.Second)
	us.put(t, us.entry("a", "ann", "", later.Add(time.Hour)))
	tick()
	if got := us.state("a", "ann", w.clock.Now()); got != "5 banned for 1h59m59s" {
		t.Errorf("cut off: %s", got)
	}
	w.calm()
	w.agree()
	if got := eu.state("a", "ann", later); got != "5 banned for 1h0m0s" {
		t.Errorf("eu: %s", got)
	}
}

// A change wins over the one that it was made after, however wrong the clocks are.
func TestClockFarAhead(t *testing.T) {
	w, eu, us, tick := pair(t, 0)
	w.tables["us"].skew = 100 * 365 * 24 * time.Hour
	tick()
	ban := us.entry("a", "ann", "", w.clock.Now().Add(time.Hour))
	us.put(t, ban)
	tick()
	if list := eu.Entries(); len(list) != 1 || !list[0].Until.Equal(ban.Until) {
		t.Fatalf("%+v, want until %v", list, ban.Until)
	}
	for _, n := range []*node{eu, us} {
		if ok, err := n.Delete(context.Background(), ban); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		tick()
		tick()
		if len(eu.Entries())+len(us.Entries()) != 0 {
			t.Errorf("%+v, %+v", eu.Entries(), us.Entries())
		}
		n.put(t, ban)
		tick()
		tick()
	}
	w.agree()
	// Beyond the year 2223 nothing is taken.
	w.tables["us"].skew = 250 * 365 * 24 * time.Hour
	tick()
	us.put(t, us.entry("a", "bob", "", w.clock.Now().Add(time.Hour)))
	tick()
	tick()
	if is := w.follow[[2]string{"eu", "us"}][0].Stats(); is.Unreadable != 1 || len(eu.Entries()) != 1 {
		t.Errorf("%+v, %+v", is, eu.Entries())
	}
}

// What a release cannot read is left out and counted, and the rest goes on. A full table
// takes the rest once it has space.
func TestUnreadableAndFull(t *testing.T) {
	w, eu, us, tick := pair(t, 3)
	later := w.clock.Now().Add(time.Hour)
	for name, value := range map[string]string{
		"newer": `{"v":2,"kind":"ban"}`, "no": "", "list": `[]`, "other": `{"v":1,"kind":"ban","domain":"d","rule":"r","scope":"s","key":"","until":1,"created":1}`,
		"from": `{"v":1,"kind":"ended","key":"ZnJvbQ==","at":5}`,
	} {
		w.tables["us"].set(control.Row{Name: name, Value: value, Until: later}, 0)
	}
	w.tables["us"].set(control.Row{Name: "over", Value: "", Until: w.clock.Now()}, 0)
	tick()
	is := w.follow[[2]string{"eu", "us"}][0].Stats()
	if is.Unreadable != 5 || is.Received != 0 || is.Err != nil {
		t.Errorf("%+v", is)
	}
	clear(w.tables["us"].rows)
	for i := range 3 {
		us.put(t, us.entry("a", fmt.Sprint(i), "", later))
	}
	eu.put(t, eu.entry("b", "x", "", later))
	tick()
	if is = w.follow[[2]string{"eu", "us"}][0].Stats(); is.Received != 2 || is.Full != 1 {
		t.Errorf("%+v", is)
	}
	delete(w.tables["eu"].rows, control.NameOf(eu.entry("b", "x", "", later)))
	tick()
	if is = w.follow[[2]string{"eu", "us"}][0].Stats(); is.Received != 2 {
		t.Errorf("tried again at once: %+v", is)
	}
	w.clock.advance(10 * time.Second)
	tick()
	if is = w.follow[[2]string{"eu", "us"}][0].Stats(); is.Received != 3 || !slices.Equal(states(eu, w), states(us, w)) {
		t.Errorf("%+v: %q, %q", is, states(eu, w), states(us, w))
	}
}

// Rows that found no space are read again, although later ones were merged.
func TestFullOnAnEarlierPage(t *testing.T) {
	w, eu, _, tick := pair(t, 505)
	later := w.clock.Now().Add(time.Hour)
	for i := range 10 {
		eu.put(t, eu.entry("a", fmt.Sprint(500+i), "", later))
	}
	w.most = 0
	w.restart("us", 0)
	us := w.nodes["us"][0]
	us.sync(t)
	w.clock.advance(time.Second)
	for i := range 510 {
		us.put(t, us.entry("a", fmt.Sprint(i), "", later))
	}
	follower := w.follow[[2]string{"eu", "us"}][0]
	follower.Tick(context.Background())
	if is := follower.Stats(); is.Received != 505 || is.Full != 5 {
		t.Errorf("%+v", is)
	}
	for i := range 5 {
		delete(w.tables["eu"].rows, control.NameOf(eu.entry("a", fmt.Sprint(500+i), "", later)))
	}
	w.clock.advance(10 * time.Second)
	tick()
	if is := follower.Stats(); is.Received != 510 {
		t.Errorf("%+v", is)
	}
}

func states(n *node, w *world) (out []string) {
	for i := range 3 {
		out = append(out, n.state("a", fmt.Sprint(i), w.clock.Now()))
	}
	return out
}

// A reset is carried out in the other region, once, unless it is old by then. Grants and
// resets do not come by way of a third region; what says that they ended does.
func TestOrders(t *testing.T) {
	w := newWorld(t, 1, 0, "ap", "eu", "us")
	eu := w.nodes["eu"][0]
	w.calm()
	reset := func(user string) {
		if err := eu.WasReset(context.Background(), eu.entry("a", user, "", time.Time{})); err != nil {
			t.Fatal(err)
		}
	}
	grant := eu.entry("a", "ann", "", w.clock.Now().Add(time.Hour))
	grant.Kind, grant.Amount, grant.ID = control.Grant, 7, "one"
	w.windows[[2]string{"ap", "eu"}].cut = true
	eu.put(t, grant)
	reset("ann")
	tick := func() {
		for range 3 {
			for at := range w.follow {
				w.nodes[at[0]][0].sync(t)
				w.follow[at][0].Tick(context.Background())
			}
		}
	}
	tick()
	if n := len(w.carried["us"]); n != 2 || w.carried["us"]["eu:one"] != 1 {
		t.Errorf("us has carried out %v", w.carried["us"])
	}
	if n := len(w.carried["ap"]); n != 0 {
		t.Errorf("ap has carried out %v", w.carried["ap"])
	}
	w.clock.advance(21 * time.Second)
	w.windows[[2]string{"ap", "eu"}].cut = false
	tick()
	if n := len(w.carried["ap"]); n != 1 || w.carried["ap"]["eu:one"] != 1 {
		t.Errorf("ap has carried out %v", w.carried["ap"])
	}
	if is := w.follow[[2]string{"ap", "eu"}][0].Stats(); is.Late != 1 {
		t.Errorf("%+v", is)
	}
	if len(w.carried["eu"]) != 0 {
		t.Errorf("eu has carried out its own: %v", w.carried["eu"])
	}
	// Its own grants come back to a region that has lost them, and are not made again.
	w.tables["eu"].lose()
	w.restart("eu", 0)
	w.restart("eu", 1)
	tick()
	if eu = w.nodes["eu"][0]; !eu.Granted(grant) || len(w.carried["eu"]) != 0 {
		t.Errorf("eu after it has lost everything: granted %v, carried out %v", eu.Granted(grant), w.carried["eu"])
	}
	if len(w.nodes["us"][1].resets) != 0 || len(w.nodes["us"][0].resets) != 1 {
		t.Errorf("processes of us drop what they know of a reset key: %q", w.nodes["us"][0].resets)
	}
}

// FuzzEntryOfARegion: whatever a region has in its table, others take it or leave it.
func FuzzEntryOfARegion(f *testing.F) {
	f.Add("n", `{"v":1,"kind":"ended","key":"bg==","at":5,"from":"ap"}`, int64(5))
	f.Add("n", `{"v":1,"kind":"ban"}`, int64(1)<<60)
	f.Add("", ``, int64(-1))
	f.Fuzz(func(t *testing.T, name, value string, version int64) {
		w := newWorld(t, 1, 0, "eu", "us")
		w.calm()
		w.tables["us"].rows[name] = control.Row{Name: name, Value: value, Version: version, Until: w.clock.Now().Add(time.Hour)}
		w.tables["us"].version = max(version, 1)
		w.follow[[2]string{"eu", "us"}][0].Tick(context.Background())
		if is := w.follow[[2]string{"eu", "us"}][0].Stats(); is.Err != nil || is.Received+is.Unreadable > 1 {
			t.Errorf("%+v", is)
		}
		for _, n := range w.nodes["eu"] {
			n.sync(t)
			if strings.Contains(n.log.String(), "ignored a ban") {
				t.Errorf("what was merged cannot be read: %s", &n.log)
			}
		}
	})
}
