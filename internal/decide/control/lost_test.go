package control_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/control"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// inRedis is a table in Redis from which a node may be cut off.
type inRedis struct {
	table *redis.Table
	clock func() time.Time // if not nil, replaces the server's clock
	off   bool
	// looking and reading, if not nil, are called before the state or rows are read.
	looking, reading func()
}

func (r *inRedis) down() error {
	if r.off {
		return errDown
	}
	return nil
}

func (r *inRedis) Look(ctx context.Context) (control.State, error) {
	if r.looking != nil {
		r.looking()
	}
	state, err := r.table.Look(ctx)
	if r.clock != nil {
		state.Now = r.clock()
	}
	return state, errors.Join(err, r.down())
}

func (r *inRedis) Since(ctx context.Context, version int64, most int) ([]control.Row, int64, error) {
	if r.reading != nil {
		r.reading()
	}
	return r.table.Since(ctx, version, most)
}

func (r *inRedis) Put(ctx context.Context, row control.Row, most int) error {
	if r.off {
		return errDown
	}
	err := r.table.Put(ctx, row, most)
	if errors.Is(err, redis.ErrTableFull) {
		return control.ErrFull
	}
	return err
}

func (r *inRedis) Delete(ctx context.Context, row control.Row, most int) (bool, error) {
	if r.off {
		return false, errDown
	}
	return r.table.Delete(ctx, row, most)
}

func (r *inRedis) Touch(ctx context.Context) error { return r.table.Touch(ctx) }

func (r *inRedis) Restore(ctx context.Context, rows []control.Row) (int, error) {
	return r.table.Restore(ctx, rows)
}

// connect returns nodes on a server, each with its own connection.
func connect(t *testing.T, server *redistest.Server, clock func() time.Time, n int) (nodes []*node, tables []*inRedis) {
	t.Helper()
	for range n {
		store, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		table := &inRedis{table: store.Table("control"), clock: clock}
		nodes, tables = append(nodes, newNodeAt(t, table, clock, 0)), append(tables, table)
	}
	return nodes, tables
}

// Whatever the server loses, and however nodes are cut off from it, in the end the last
// change of each key is active on all of them: no change is lost while a node that
// knows it lives, and nothing that was lifted comes back.
func TestWhatTheServerLosesNodesReturn(t *testing.T) {
	server := redistest.Standalone(t)
	for seed := range uint64(15) {
		server.Do("FLUSHALL")
		r := rand.New(rand.NewPCG(seed, 9))
		nodes, tables := connect(t, server, time.Now, 3)
		for _, n := range nodes {
			n.sync(t)
		}
		ctx, said, trace := context.Background(), map[string]string{}, []string{}
		for range 120 {
			i, user := r.IntN(len(nodes)), fmt.Sprint(r.IntN(8))
			n, rate := nodes[i], fmt.Sprintf("%d/minute", 6+r.IntN(90))
			e := n.entry("a", user, rate, time.Now().Add(time.Hour))
			switch op := r.IntN(10); {
			case op < 4:
				if n.Put(ctx, e) == nil {
					said[user] = rate[:strings.IndexByte(rate, '/')]
					trace = append(trace, fmt.Sprint(i, " put ", user, " ", rate))
				}
			case op < 6:
				if was, err := n.Delete(ctx, e); err == nil {
					if was {
						delete(said, user)
					}
					trace = append(trace, fmt.Sprint(i, " delete ", user, " ", was))
				}
			case op < 8:
				_ = n.Sync(ctx)
				trace = append(trace, fmt.Sprint(i, " sync"))
			case op == 8:
				tables[i].off = !tables[i].off
				trace = append(trace, fmt.Sprint(i, " off ", tables[i].off))
			case r.IntN(3) == 0: // a replica that lagged becomes primary
				from, to := "hg:{%tcontrol}:", "{%tcontrol}-old:"
				if r.IntN(2) == 0 {
					from, to = to, from
				}
				for _, part := range []string{"rows", "changes", "ends", "version", "store"} {
					server.Do("DEL", to+part)
					server.Do("COPY", from+part, to+part)
				}
				trace = append(trace, "copied to "+to)
			default:
				part := []string{"rows", "changes", "ends", "version", "store"}[r.IntN(5)]
				if server.Do("DEL", "hg:{%tcontrol}:"+part); r.IntN(2) == 0 {
					server.Do("FLUSHALL")
					part = "all"
				}
				trace = append(trace, "lost "+part)
			}
		}
		for range 2 { // the first look returns missing rows, the second sees them
			for i, n := range nodes {
				tables[i].off = false
				n.sync(t)
			}
		}
		late, _ := connect(t, server, time.Now, 1)
		late[0].sync(t)
		for i, n := range append(nodes, late...) {
			for user := range 8 {
				want := said[fmt.Sprint(user)]
				if want == "" {
					want = "5"
				}
				if got := n.state("a", fmt.Sprint(user), time.Now()); got != want {
					t.Fatalf("seed %d: node %d has %s for %d, want %s:\n%s", seed, i, got, user, want, strings.Join(trace, "\n"))
				}
			}
		}
	}
}

// A node that was away longer than deletions are remembered writes nothing back; one
// that was away for less does.
func TestWhoWasAwayForTooLongReturnsNothing(t *testing.T) {
	for _, row := range []struct {
		away time.Duration
		want []string
	}{
		{6 * 24 * time.Hour, []string{"5 banned", "5 banned"}},
		{8 * 24 * time.Hour, []string{"5", "5"}},
	} {
		server, clock := redistest.Standalone(t), newClock()
		clock.now = time.Now()
		nodes, tables := connect(t, server, clock.Now, 2)
		ban := nodes[0].entry("a", "ann", "", clock.Now().Add(30*24*time.Hour))
		ban.Created = clock.Now()
		nodes[0].put(t, ban)
		tables[0].off = true
		if nodes[0].Sync(t.Context()) == nil {
			t.Error("not cut off")
		}
		server.Do("FLUSHALL")
		clock.advance(row.away)
		tables[0].off = false
		nodes[0].sync(t)
		nodes[1].sync(t)
		for i, n := range nodes {
			got, _, _ := strings.Cut(n.state("a", "ann", clock.Now()), " for")
			if got != row.want[i] {
				t.Errorf("away for %s, node %d: %s, want %s", row.away, i, got, row.want[i])
			}
		}
	}
}

// A ban that was replaced by a shorter one does not come back, after that has expired,
// from a node that only knows the longer one.
func TestShortenedBan(t *testing.T) {
	server, clock := redistest.Standalone(t), newClock()
	clock.now = time.Now()
	nodes, tables := connect(t, server, clock.Now, 2)
	nodes[0].put(t, nodes[0].entry("a", "ann", "", clock.Now().Add(30*24*time.Hour)))
	nodes[1].sync(t)
	tables[1].off = true
	nodes[0].put(t, nodes[0].entry("a", "ann", "", clock.Now().Add(time.Hour)))
	clock.advance(2 * time.Hour)
	nodes[0].sync(t)
	server.Do("FLUSHALL")
	tables[1].off = false
	for _, i := range []int{1, 0, 1} {
		nodes[i].sync(t)
	}
	for i, n := range nodes {
		if got := n.state("a", "ann", clock.Now()); got != "5" {
			t.Errorf("node %d: %s", i, got)
		}
	}
}

// Rows that cannot be written back stay active, the log says so once, and they are
// written as soon as possible.
func TestLossThatCannotBeMended(t *testing.T) {
	server := redistest.Standalone(t, "--maxmemory-policy", "noeviction")
	nodes, _ := connect(t, server, time.Now, 2)
	n := nodes[0]
	n.put(t, n.entry("a", "ann", "", time.Now().Add(time.Hour)))
	server.Do("FLUSHALL")
	// The table is reset before there is no memory left for rows.
	if _, err := n.table.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	for range 3 {
		if n.Sync(t.Context()) == nil {
			t.Error("written without room")
		}
		if got := n.state("a", "ann", time.Now()); !strings.HasPrefix(got, "5 banned") {
			t.Errorf("meanwhile: %s", got)
		}
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	n.sync(t)
	nodes[1].sync(t)
	if got := nodes[1].state("a", "ann", time.Now()); !strings.HasPrefix(got, "5 banned") {
		t.Errorf("a node that comes later: %s", got)
	}
	lines := strings.Split(strings.TrimSpace(n.log.String()), "\n")
	for _, message := range []string{"the store has lost its data", "cannot restore the bans and overrides", "restored the bans and overrides that the store had lost"} {
		if k := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, message) }); k < 0 {
			t.Errorf("%q is not in the log:\n%s", message, &n.log)
		}
	}
	if len(lines) > 4 || n.Lost() != 1 {
		t.Errorf("%d losses:\n%s", n.Lost(), &n.log)
	}
}

// A store that loses its data again and again fills no log: a loss is logged once a
// minute, with what was restored, and not at all if the store evicts keys. All are
// counted.
func TestLossesAreLoggedOnceAMinute(t *testing.T) {
	server := redistest.Standalone(t)
	clock := &clock{now: time.Now()} // Redis restores nothing that has ended
	nodes, _ := connect(t, server, clock.Now, 1)
	n := nodes[0]
	n.put(t, n.entry("a", "ann", "", clock.Now().Add(10*time.Hour)))
	n.sync(t)
	for i, step := range []struct {
		after   time.Duration
		evicted bool
		logged  int
	}{
		{0, false, 1},
		{time.Second, false, 1},
		{58 * time.Second, false, 1},
		{time.Second, false, 2},
		{time.Hour / 2, true, 2},
		{time.Minute, true, 2},
		{time.Second, false, 3},
	} {
		clock.advance(step.after)
		n.evicted = step.evicted
		server.Do("FLUSHALL")
		n.sync(t)
		if got := n.state("a", "ann", clock.Now()); !strings.HasPrefix(got, "5 banned") {
			t.Errorf("step %d: %s", i, got)
		}
		log := n.log.String()
		lost, restored := strings.Count(log, "the store has lost its data"), strings.Count(log, "restored the bans")
		if lost != step.logged || restored != step.logged || n.Lost() != int64(i+1) {
			t.Errorf("step %d: %d losses, logged %d and %d times, want %d:\n%s", i, n.Lost(), lost, restored, step.logged, log)
		}
	}
}

// After a loss, Forgot is called until it has succeeded: each connection from before
// the loss may fail once.
func TestLossIsToldUntilItIsHeard(t *testing.T) {
	server := redistest.Standalone(t)
	nodes, _ := connect(t, server, time.Now, 1)
	n := nodes[0]
	n.sync(t)
	told, failures := 0, 2
	n.forgot = func() error {
		if told++; told <= failures {
			return errDown
		}
		return nil
	}
	for _, loss := range []struct {
		failures, told int
	}{{0, 1}, {2, 3}} {
		told, failures = 0, loss.failures
		n.sync(t)
		if told != 0 {
			t.Errorf("told %d times of no loss", told)
		}
		server.Do("FLUSHALL")
		for range 5 {
			n.sync(t)
		}
		if told != loss.told {
			t.Errorf("told %d times, want %d", told, loss.told)
		}
	}
	if n.Lost() != 2 {
		t.Errorf("%d losses", n.Lost())
	}
}

// A table that is lost while it is read counts as lost once.
func TestLossWhileReading(t *testing.T) {
	server := redistest.Standalone(t)
	nodes, tables := connect(t, server, time.Now, 2)
	n := nodes[0]
	n.put(t, n.entry("a", "ann", "", time.Now().Add(time.Hour)))
	told := 0
	n.forgot = func() error { told++; return nil }
	tables[0].off = true
	if n.Sync(t.Context()) == nil { // afterwards everything is read
		t.Fatal("not cut off")
	}
	tables[0].off, tables[0].reading = false, func() { server.Do("FLUSHALL") }
	n.sync(t)
	tables[0].reading = nil
	for range 3 {
		n.sync(t)
	}
	if n.Lost() != 1 || told != 1 {
		t.Errorf("%d losses, told %d times:\n%s", n.Lost(), told, &n.log)
	}
	nodes[1].sync(t)
	if got := nodes[1].state("a", "ann", time.Now()); !strings.HasPrefix(got, "5 banned") {
		t.Errorf("a node that comes later: %s", got)
	}
}

// TestClocksApart: bans and limits end at the same time on all nodes that share a
// Redis, by its clock, whatever their own clocks say and while those are corrected.
func TestClocksApart(t *testing.T) {
	server := redistest.Standalone(t)
	store, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	wrong := []time.Duration{0, 100 * time.Millisecond, 2 * time.Hour, -2 * time.Hour, 40 * 24 * time.Hour, -40 * 24 * time.Hour}
	nodes := make([]*node, len(wrong))
	now := func(i int) time.Time { return time.Now().Add(wrong[i]) }
	for i := range nodes {
		nodes[i] = newNodeAt(t, &inRedis{table: store.Table("control")}, func() time.Time { return now(i) }, 0)
		nodes[i].sync(t)
	}
	began := time.Now()
	for i, n := range nodes {
		n.put(t, n.entry("a", fmt.Sprint("user", i), "", now(i).Add(30*time.Minute)))
	}
	check := func(when string) {
		t.Helper()
		for i, n := range nodes {
			n.sync(t)
			if got := len(n.Entries()); got != len(nodes) {
				t.Errorf("%s: node %d knows %d bans", when, i, got)
			}
			for user := range nodes {
				_, banned := n.engine.Applies(n.rules.Rule("api", "a"), key(fmt.Sprint("user", user)), now(i))
				left, least := banned.Sub(now(i)), 30*time.Minute-time.Since(began)
				if left < least-time.Second || left > 30*time.Minute+time.Second {
					t.Errorf("%s: at node %d, what node %d has banned is so for %s", when, i, user, left)
				}
			}
		}
	}
	check("apart")
	for i := range wrong {
		wrong[i] /= 3
	}
	check("nearer")
	clear(wrong)
	check("put right")
	for i, n := range nodes {
		was := n.changed
		for range 5 {
			n.sync(t)
		}
		if n.changed != was {
			t.Errorf("node %d reads all again all the time", i)
		}
	}
}

// A change that a node has made is not lost if the server loses everything before the node
// looks again: what was lifted does not come back, from that node or from another.
func TestLossRightAfterAChange(t *testing.T) {
	server := redistest.Standalone(t)
	nodes, tables := connect(t, server, time.Now, 2)
	one, two := nodes[0], nodes[1]
	scope := one.rules.Rule("api", "a").Scope
	lose := func(i int) {
		tables[i].looking = func() {
			tables[i].looking = nil
			server.Do("FLUSHALL")
		}
	}
	expect := func(user, what string, want bool) {
		t.Helper()
		for range 2 { // the first look returns missing rows, the second sees them
			one.sync(t)
			two.sync(t)
		}
		for i, n := range nodes {
			if ban, _ := n.Of(scope, key(user)); (ban != nil) != want {
				t.Errorf("%s: banned at node %d: %t, want %t", what, i, ban != nil, want)
			}
		}
	}
	one.sync(t)
	two.sync(t)
	for _, name := range []string{"ann", "bob"} {
		e := one.entry("a", name, "", time.Now().Add(time.Hour))
		lose(0)
		one.put(t, e)
		expect(name, "a ban", true)
		lose(1)
		if was, err := two.Delete(t.Context(), e); !was || err != nil {
			t.Fatal(was, err)
		}
		expect(name, "an ended ban", false)
		lose(0)
		if _, err := one.PutAll(t.Context(), []*control.Entry{e}); err != nil {
			t.Fatal(err)
		}
		expect(name, "one of many", true)
	}
}
