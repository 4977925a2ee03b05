package offenders_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/standalone"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features/offenders"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

const search = `
domain: api
limits:
  - name: search
    key: [user]
    rate: 10/minute
    on_repeat: {refusals: 100/10m, ban: 1m, factor: 4, max: 24h, forget: 48h, mode: enforce}
`

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	return rs
}

// counted returns what the metrics have for a reason, or a mode.
func counted(w *offenders.Watch, reason string) (sum int64) {
	for _, c := range w.Metrics() {
		c.Read(func(n int64, labels ...string) {
			if labels[len(labels)-1] == reason {
				sum += n
			}
		})
	}
	return sum
}

// node is a process on virtual time.
type node struct {
	t      testing.TB
	rs     *rules.Ruleset
	engine *engine.Engine
	watch  *offenders.Watch
	now    time.Time
	bans   []string // in the order in which they started: key, mode, number, duration
}

func newNode(t testing.TB, store store.Store, text string, change ...func(*feature.Process)) *node {
	t.Helper()
	n := &node{t: t, rs: parse(t, text), now: time.UnixMicro(1_800_000_000_000_000)}
	o := feature.Process{
		Store: store, Clock: func() time.Time { return n.now },
		Ban: standalone.Bans(func() *engine.Engine { return n.engine }, math.MaxInt),
		Started: func(b feature.Ban) {
			parts, _ := rules.SplitKey(b.Key)
			n.bans = append(n.bans, fmt.Sprintf("%s %s %d %s", parts[0].Text(), b.Mode, b.Number, rate.Short(b.Until.Sub(b.From))))
		},
	}
	for _, f := range change {
		f(&o)
	}
	n.watch = offenders.New(o)
	n.engine = engine.New(store, n.rs, engine.WithRefusals(n.watch))
	return n
}

// ask makes a request of a user and returns its reason.
func (n *node) ask(user string) headgate.Reason {
	n.t.Helper()
	q := new(described.Request)
	if user != "" {
		q.Add(rules.Attribute{Name: "user"}, user, nil)
	}
	v, err := n.engine.Decide(n.t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: q, Cost: 1}, At: n.now.UnixMicro()})
	if err != nil {
		n.t.Fatal(err)
	}
	defer v.Release()
	return v.Decision.Reason
}

// refuse makes requests of a user until the next refusals were counted.
func (n *node) refuse(user string, refusals int) {
	n.t.Helper()
	for refused := 0; refused < refusals; {
		switch reason := n.ask(user); reason {
		case headgate.ReasonLimited:
			refused++
		case headgate.ReasonOK:
		default:
			n.t.Fatalf("%s after %d refusals: %s", user, refused, reason)
		}
	}
	n.watch.Flush(n.t.Context())
}

// A key that is refused again and again is banned for longer each time. After a while
// without a ban the ladder starts again.
func TestLadder(t *testing.T) {
	n := newNode(t, memory.New(), search)
	for _, row := range []struct {
		wait time.Duration // after the last ban has ended
		want string
	}{
		{0, "ann enforce 1 1m"},
		{0, "ann enforce 2 4m"},
		{0, "ann enforce 3 16m"},
		{0, "ann enforce 4 1h4m"},
		{0, "ann enforce 5 4h16m"},
		{0, "ann enforce 6 17h4m"},
		{0, "ann enforce 7 24h"},
		{0, "ann enforce 8 24h"},
		{24*time.Hour - time.Microsecond, "ann enforce 9 24h"}, // the last ban started less than 48h ago
		{24 * time.Hour, "ann enforce 1 1m"},
		{0, "ann enforce 2 4m"},
	} {
		n.now = n.now.Add(row.wait)
		n.bans = nil
		n.refuse("ann", 99)
		if len(n.bans) > 0 || n.ask("ann") != headgate.ReasonLimited {
			t.Fatalf("%s: after 99 refusals: %v", row.want, n.bans)
		}
		n.watch.Flush(t.Context())
		if diff := cmp.Diff([]string{row.want}, n.bans); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		lasts, err := time.ParseDuration(row.want[strings.LastIndexByte(row.want, ' ')+1:])
		if err != nil {
			t.Fatal(err)
		}
		if n.now = n.now.Add(lasts - time.Microsecond); n.ask("ann") != store.ReasonBanned {
			t.Fatalf("%s: not banned at its end", row.want)
		}
		if n.now = n.now.Add(time.Microsecond); n.ask("ann") == store.ReasonBanned {
			t.Fatalf("%s: still banned after its end", row.want)
		}
	}
}

// Refusals count within their time only, and refusals of a banned key not at all.
func TestWhatCounts(t *testing.T) {
	n := newNode(t, memory.New(), search)
	n.refuse("ann", 99)
	n.now = n.now.Add(10 * time.Minute)
	n.refuse("ann", 99)
	if len(n.bans) > 0 {
		t.Fatal("banned for refusals of different times")
	}
	n.refuse("ann", 1)
	for range 500 {
		n.ask("ann")
	}
	n.watch.Flush(t.Context())
	n.now = n.now.Add(time.Minute)
	n.refuse("ann", 99)
	n.refuse("bob", 99)
	if diff := cmp.Diff([]string{"ann enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is not a refusal by the rule does not count.
func TestWhatDoesNotCount(t *testing.T) {
	n := newNode(t, memory.New(), strings.Replace(search, "100/10m", "1/10m", 1))
	for range 10 {
		n.ask("ann")
	}
	ann := new(described.Request)
	ann.Add(rules.Attribute{Name: "user"}, "ann", nil)
	q := engine.Query{Domain: "api", Part: engine.Part{Request: ann}, At: n.now.UnixMicro()}
	for _, kind := range []store.Kind{store.KindPeek, store.KindTake} {
		if q.Kind = kind; kind == store.KindPeek {
			q.Cost = 1
		} else {
			q.Cost = 0 // a dry run
		}
		v, err := n.engine.Decide(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	for range 20 {
		n.ask("") // has no key: anybody
	}
	n.watch.Flush(t.Context())
	if len(n.bans) > 0 {
		t.Errorf("banned: %v", n.bans)
	}
	if n.ask("ann"); len(n.bans) > 0 {
		t.Error("banned on the path of a request")
	}
	n.watch.Flush(t.Context())
	if diff := cmp.Diff([]string{"ann enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// In shadow mode nobody is banned, and what would be banned is the same. The ladder of the
// shadow does not matter once bans are enforced. A rule that observes bans nobody either.
func TestShadow(t *testing.T) {
	for name, text := range map[string]string{
		"on_repeat": strings.Replace(search, "mode: enforce", "mode: shadow", 1),
		"default":   strings.Replace(search, ", mode: enforce", "", 1),
		"rule":      search + "    mode: shadow\n",
		"percent":   search + "    percent: 0\n",
	} {
		t.Run(name, func(t *testing.T) {
			db := memory.New()
			n := newNode(t, db, text)
			for range 1000 {
				if n.ask("ann") == store.ReasonBanned {
					t.Fatal("banned")
				}
				n.watch.Flush(t.Context())
				n.now = n.now.Add(100 * time.Millisecond)
			}
			// The hundredth refusal is in second 12, and refusals until second 72 do not
			// count, as if ann were banned. The next hundred are complete in second 84.
			if diff := cmp.Diff([]string{"ann shadow 1 1m", "ann shadow 2 4m"}, n.bans); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			enforced := newNode(t, db, search)
			enforced.now = n.now
			enforced.refuse("ann", 100)
			if diff := cmp.Diff([]string{"ann enforce 1 1m"}, enforced.bans); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A hidden ban counts like a visible refusal, and every tier of a limit bans its key.
func TestActionsAndTiers(t *testing.T) {
	for name, more := range map[string]string{
		"shadow_ban": "    on_limit: shadow_ban\n",
		"delay":      "    algorithm: leaky_bucket\n    on_limit: delay\n",
		"charge_on":  "    algorithm: sliding_log\n    charge_on: {status: 401}\n",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, memory.New(), search+more)
			for range 200 {
				n.ask("ann")
			}
			n.watch.Flush(t.Context())
			if diff := cmp.Diff([]string{"ann enforce 1 1m"}, n.bans); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	n := newNode(t, memory.New(), search+"    tiers: {by: plan, gold: {rate: 20/minute}}\n")
	n.refuse("ann", 100)
	if diff := cmp.Diff([]string{"ann enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An ended ban is not repeated for refusals before its planned end. A pardon starts the
// ladder again.
func TestEndedBanAndPardon(t *testing.T) {
	db := memory.New()
	n := newNode(t, db, search)
	n.refuse("ann", 100)
	n.now = n.now.Add(time.Second)
	n.engine.SetExceptions(nil) // an operator ends it
	n.refuse("ann", 500)
	if len(n.bans) != 1 {
		t.Errorf("banned again: %v", n.bans)
	}
	n.now = n.now.Add(time.Minute)
	n.refuse("ann", 100)
	n.now = n.now.Add(5 * time.Minute)
	n.refuse("ann", 99)
	out := make([]store.Decision, 4)
	if err := store.ExecuteAll(t.Context(), db, offenders.Feature().Resets(n.rs.Rules()[0], string(headgate.AppendKey(nil, "ann")), n.now), out, store.Independent); err != nil {
		t.Fatal(err)
	}
	n.refuse("ann", 99)
	n.refuse("ann", 1)
	if diff := cmp.Diff([]string{"ann enforce 1 1m", "ann enforce 2 4m", "ann enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Two processes that count the same refusals, at the same time, start each ban once.
func TestOneBanForAllProcesses(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"cluster": func(t *testing.T) store.Store {
			s, err := redis.New(t.Context(), redis.Options{Mode: redis.Cluster, Addresses: redistest.Cluster(t).Addrs(), Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		"memory": func(*testing.T) store.Store { return memory.New() },
		"redis": func(t *testing.T) store.Store {
			s, err := redis.New(t.Context(), redis.Options{Addresses: []string{redistest.Standalone(t).Addr}, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			const keys, processes, each = 20, 4, 100
			var mu sync.Mutex
			started := map[string]int{}
			rule := parse(t, search).Rules()[0]
			now := time.Now()
			var group sync.WaitGroup
			for p := range processes {
				w := offenders.New(feature.Process{
					Store: store, Clock: func() time.Time { return now },
					Ban: func(_ context.Context, list []feature.Ban) ([]feature.Ban, int, error) { return list, 0, nil },
					Started: func(b feature.Ban) {
						mu.Lock()
						defer mu.Unlock()
						started[fmt.Sprintf("%s %d", b.Key, b.Number)]++
					},
				})
				group.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(p)))
					for range each {
						for k := range keys {
							w.Refused(rule, string(headgate.AppendKey(nil, fmt.Sprint(k))), uint32(p), true)
						}
						if random.IntN(3) == 0 {
							w.Flush(t.Context())
						}
					}
					w.Flush(t.Context())
				})
			}
			group.Wait()
			if len(started) != keys {
				t.Errorf("%d bans of %d keys", len(started), keys)
			}
			for ban, n := range started {
				if n != 1 || !strings.HasSuffix(ban, " 1") {
					t.Errorf("%q started %d times", ban, n)
				}
			}
		})
	}
}

// A process that follows bans a key that another has banned, for the rest of the time,
// after its first refusal of the key.
func TestFollow(t *testing.T) {
	db := memory.New()
	one := newNode(t, db, search)
	one.refuse("ann", 100)
	two := newNode(t, db, search, func(o *feature.Process) {
		o.Follow, o.Started = true, func(feature.Ban) { t.Error("reported again") }
	})
	two.now = one.now.Add(3 * time.Second)
	two.refuse("ann", 1)
	for _, row := range []struct {
		after time.Duration
		want  bool
	}{{3 * time.Second, true}, {time.Minute - time.Microsecond, true}, {time.Minute, false}} {
		two.now = one.now.Add(row.after)
		if got := two.ask("ann") == store.ReasonBanned; got != row.want {
			t.Errorf("after %s: banned: %t", row.after, got)
		}
	}
}

// failing is a store that does not answer.
type failing struct{ store.Store }

func (failing) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

// Refusals that the store cannot count are dropped, and too many keys as well.
func TestLosses(t *testing.T) {
	rule := parse(t, search).Rules()[0]
	bans := 0
	w := offenders.New(feature.Process{
		Store: failing{}, Clock: time.Now, MaxKeys: 32,
		Ban: func(context.Context, []feature.Ban) ([]feature.Ban, int, error) { return nil, 0, errors.New("full") }, Started: func(feature.Ban) { bans++ },
	})
	for i := range 10_000 {
		w.Refused(rule, string(headgate.AppendKey(nil, fmt.Sprint(i%100))), 0, true)
	}
	w.Flush(t.Context())
	if bans > 0 {
		t.Error("banned without a count")
	}
	if uncounted, tooMany := counted(w, "store"), counted(w, "too_many_keys"); uncounted != 3200 || tooMany != 6800 {
		t.Errorf("%d not counted, %d of too many keys", uncounted, tooMany)
	}
	w = offenders.New(feature.Process{
		Store: memory.New(), Clock: time.Now, Started: func(feature.Ban) { bans++ },
		Ban: func(context.Context, []feature.Ban) ([]feature.Ban, int, error) { return nil, 0, errors.New("full") },
	})
	for range 100 {
		w.Refused(rule, string(headgate.AppendKey(nil, "ann")), 0, true)
	}
	w.Flush(t.Context())
	if unsaved, banned := counted(w, "not_saved"), counted(w, "enforce"); unsaved != 1 || banned > 0 || bans > 0 {
		t.Errorf("%d not saved, %d banned, %d bans reported", unsaved, banned, bans)
	}
}

// A known key costs no memory, and a request that passes nothing at all.
func TestRefusedDoesNotAllocate(t *testing.T) {
	n := newNode(t, memory.New(), search)
	n.refuse("ann", 1)
	rule, key := n.rs.Rules()[0], string(headgate.AppendKey(nil, "ann"))
	if got := testing.AllocsPerRun(1000, func() { n.watch.Refused(rule, key, 0, true) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkRefused(b *testing.B) {
	n := newNode(b, memory.New(), search)
	rule, key := n.rs.Rules()[0], string(headgate.AppendKey(nil, "ann"))
	b.ReportAllocs()
	for b.Loop() {
		n.watch.Refused(rule, key, 0, true)
	}
}

// BenchmarkFlush counts refusals of 1000 keys.
func BenchmarkFlush(b *testing.B) {
	n := newNode(b, memory.New(), search)
	rule := n.rs.Rules()[0]
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = string(headgate.AppendKey(nil, fmt.Sprint(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, key := range keys {
			n.watch.Refused(rule, key, uint32(i), true)
		}
		n.watch.Flush(b.Context())
	}
}

// Clients whose address is not known are not banned: they may be anybody.
func TestUnknownClientsAreNotBanned(t *testing.T) {
	n := newNode(t, memory.New(), strings.Replace(strings.Replace(search, "100/10m", "1/10m", 1), "[user]", "[client_ip]", 1))
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"unknown", "198.51.100.1"} {
		q := new(described.Request)
		q.Add(rules.Attribute{Kind: rules.ClientIP}, address, clients)
		for range 20 {
			v, err := n.engine.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: q, Cost: 1}, At: n.now.UnixMicro()})
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
	}
	n.watch.Flush(t.Context())
	if diff := cmp.Diff([]string{"198.51.100.1 enforce 1 1m"}, n.bans); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
