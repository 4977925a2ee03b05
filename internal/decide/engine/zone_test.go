package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the tests do not depend on the machine's zones

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/zone"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

const ownZones = `
domain: api
limits:
  - {name: daily, key: [user], rate: 3/day, algorithm: fixed_window, timezone: {from: zone, default: Europe/Berlin}}
`

// noon is 2027-01-15 12:00 UTC.
const noon = 1_800_014_400_000_000

// midnight asks how long the day of a request lasts that names a zone.
func midnight(t *testing.T, e *engine.Engine, user, zone string, at int64) time.Duration {
	t.Helper()
	r := request{"user": user}
	if zone != "" {
		r["zone"] = zone
	}
	v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: r, Cost: 1}, At: at})
	defer v.Release()
	return v.Decision.ResetAfter
}

// A request's day ends at midnight in the zone that it names. One that names none, or none
// that exists, has the rule's default.
func TestRequestsNameTheirZone(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, ownZones))
	for name, want := range map[string]time.Duration{
		"Asia/Tokyo": 3 * time.Hour, "America/New_York": 17 * time.Hour, "UTC": 12 * time.Hour, "Europe/Berlin": 11 * time.Hour,
		"": 11 * time.Hour, "Local": 11 * time.Hour, "asia/tokyo": 11 * time.Hour, "../Asia/Tokyo": 11 * time.Hour, strings.Repeat("x", 1000): 11 * time.Hour,
	} {
		if got := midnight(t, e, "user of "+name, name, noon); got != want {
			t.Errorf("%.20q: the day ends in %v, want %v", name, got, want)
		}
	}
}

// The running day stays as it is when its user moves, and so does what was used of it.
func TestMovingDoesNotEndTheDay(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, ownZones))
	for i, zone := range []string{"Asia/Tokyo", "America/New_York", "Pacific/Kiritimati", ""} {
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": "ann", "zone": zone}, Cost: 1}, At: noon})
		if v.Allowed != (i < 3) || v.Decision.ResetAfter != 3*time.Hour {
			t.Errorf("request %d, from %q: %+v, want 3 within the day of Tokyo", i, zone, v.Decision)
		}
		v.Release()
	}
}

// claimant names another zone with every request and takes whatever it can get.
type claimant struct {
	*testing.T
	nodes []*engine.Engine
	zones []string
	rng   *rand.Rand
	used  []int64 // when a request passed
}

// days lets it try at every step for some days.
func (c *claimant) days(days int, step time.Duration) {
	for at := int64(noon); at < noon+int64(days)*24*int64(time.Hour/time.Microsecond); at += step.Microseconds() {
		for range 4 {
			e := c.nodes[c.rng.IntN(len(c.nodes))]
			r := request{"user": "eve", "zone": c.zones[c.rng.IntN(len(c.zones))]}
			v := decide(c.T, e, engine.Query{Domain: "api", Part: engine.Part{Request: r, Cost: 1}, At: at})
			if v.Allowed {
				c.used = append(c.used, at)
			}
			v.Release()
		}
	}
}

// check fails if in any k days more than k+1 budgets were used.
func (c *claimant) check(budget, days int) {
	day := 24 * int64(time.Hour/time.Microsecond)
	if len(c.used) < budget*days/2 {
		c.Fatalf("the premise is wrong: only %d requests passed in %d days", len(c.used), days)
	}
	for k := 1; k <= days; k++ {
		for i, from := range c.used {
			last, _ := slices.BinarySearch(c.used, from+int64(k)*day)
			if got := last - i; got > (k+1)*budget {
				c.Fatalf("%d requests in %d days from %v, %d a day", got, k, time.UnixMicro(from).UTC(), budget)
			}
		}
	}
}

// A caller that names another zone with every request never uses more than k+1 budgets in
// k days: in memory, and on two nodes with one Redis.
func TestClaimingZonesGainsNothing(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, days int, step time.Duration, zones []string, stores ...store.Store) {
		t.Helper()
		c := &claimant{T: t, zones: zones, rng: rand.New(rand.NewPCG(1, 7))}
		for _, s := range stores {
			c.nodes = append(c.nodes, engine.New(s, parse(t, ownZones)))
		}
		c.days(days, step)
		c.check(3, days)
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		run(t, 30, 7*time.Minute, zone.Names(), memory.New())
		run(t, 8, 20*time.Minute, []string{"Pacific/Kiritimati", "Etc/GMT+12", "nowhere"}, memory.New())
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Standalone(t)
		var stores []store.Store
		for range 2 {
			s, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, CallerTime: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			stores = append(stores, s)
		}
		run(t, 8, 20*time.Minute, zone.Names(), stores...)
	})
}

// An override keeps the zone of the request, and a reservation is settled in it.
func TestZoneOfOverridesAndReservations(t *testing.T) {
	t.Parallel()
	rs := parse(t, ownZones)
	base := rs.Rule("api", "daily")
	key, err := base.ComposeKey([]rules.KeyPart{{Value: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := base.WithLimit("7/day", 0)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(memory.New(), rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{{
		Scope: base.Scope, Key: key, LimitUntil: noon + 1e15, Instead: []engine.Instead{{Of: base, Rule: other}},
	}}, noon))
	q := engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": "ann", "zone": "Asia/Tokyo"}, Cost: 2}, At: noon}
	v, token, err := e.Reserve(context.Background(), q, 24*time.Hour)
	if err != nil || v.Decision.Limit != 7 || v.Rule.Limit.Rule().Zone.String() != "Asia/Tokyo" || v.Decision.ResetAfter != 3*time.Hour {
		t.Fatalf("%v %+v %v, want 7 a day in Tokyo", v.Rule.Limit, v.Decision, err)
	}
	v.Release()
	// After midnight in Tokyo, the difference opens a new day there, not one in Berlin.
	later := int64(noon + 4*time.Hour/time.Microsecond)
	if out, err := e.Commit(context.Background(), token, 5, later); err != nil || out.Ending != engine.Done {
		t.Fatalf("%+v %v", out, err)
	}
	q.At, q.Kind = later, store.KindPeek
	v = decide(t, e, q)
	if v.Decision.Remaining != 4 || v.Decision.ResetAfter != 23*time.Hour {
		t.Errorf("%+v, want 3 of 7 used until midnight in Tokyo", v.Decision)
	}
	v.Release()
}

// What a queued request has claimed keeps its zone.
func TestClaimsKeepTheZone(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, ownZones))
	v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": "ann", "zone": "Asia/Tokyo"}, Cost: 1, Kind: store.KindPeek}, At: noon})
	claims := v.Claims()
	v.Release()
	v, err := e.Again(context.Background(), "api", claims, noon)
	if err != nil || len(claims) != 1 || claims[0].Given != "@Asia/Tokyo" || v.Decision.ResetAfter != 3*time.Hour {
		t.Errorf("%+v %v, %v", v.Decision, err, claims)
	}
	v.Release()
}

// Rows of a table have zones of their own, or the default.
func TestZonesOfATable(t *testing.T) {
	t.Parallel()
	const text = `
domain: api
limits:
  - {name: a, key: [user], rate: {table: customers.csv, default: 2/day}, algorithm: fixed_window, timezone: {column: zone, default: UTC}}
`
	e := engine.New(memory.New(), tabled(t, text, "key,rate,zone\nann,5/day,Asia/Tokyo\nbob,6/day,\n"))
	for user, want := range map[string]struct {
		limit int64
		reset time.Duration
	}{"ann": {5, 3 * time.Hour}, "bob": {6, 12 * time.Hour}, "zoe": {2, 12 * time.Hour}} {
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": user}, Cost: 1}, At: noon})
		if d := v.Decision; d.Limit != want.limit || d.ResetAfter != want.reset {
			t.Errorf("%s: %+v, want %+v", user, d, want)
		}
		v.Release()
	}
	// The row of a key changes its zone: the day that is running stays.
	e.SetRules(tabled(t, text, "key,rate,zone\nann,5/day,America/New_York\n"))
	if got := midnight(t, e, "ann", "", noon); got != 3*time.Hour {
		t.Errorf("the day ends in %v, want 3h", got)
	}
	// An override of the rate keeps the zone of the row.
	rs := tabled(t, text, "key,rate,zone\nann,5/day,Asia/Tokyo\n")
	r := rs.Rule("api", "a")
	key, err := r.ComposeKey([]rules.KeyPart{{Value: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	if other, err := r.ForKey(key).WithLimit("9/day", 0); err != nil || !strings.Contains(other.Limit.String(), "9/day fixed_window in Asia/Tokyo, the caller's own") {
		t.Errorf("%v %v", other.Limit, err)
	}
}

// Rows with different rates and requests with different zones combine.
func TestZonesOfRequestsWithATable(t *testing.T) {
	t.Parallel()
	const text = `
domain: api
limits:
  - {name: a, key: [user], rate: {table: customers.csv, default: deny}, algorithm: fixed_window, timezone: zone:x}
`
	var table strings.Builder
	table.WriteString("key,rate\n")
	for i := range 200 {
		fmt.Fprintf(&table, "user-%d,%d/day\n", i, 100+i)
	}
	e := engine.New(memory.New(), tabled(t, strings.ReplaceAll(text, "zone:x", `"header:X-Zone"`), table.String()))
	zones := zone.Names()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		i, name := rng.IntN(200), zones[rng.IntN(len(zones))]
		v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: request{"user": fmt.Sprint("user-", i), "header:X-Zone": name}, Cost: 1, Kind: store.KindPeek}, At: noon})
		if got := v.Rule.Limit.Rule(); got.Limit != int64(100+i) || got.Zone.String() != name {
			t.Fatalf("user-%d in %s: %v", i, name, v.Rule.Limit)
		}
		v.Release()
	}
}

// Many clients with other zones and rates at once never get each other's.
func TestGivenAtOnce(t *testing.T) {
	t.Parallel()
	const text = `
domain: api
limits:
  - {name: a, key: ["jwt:sub"], rate: {from: "jwt:rate", max: 100000/day, default: 1/day}, algorithm: fixed_window, timezone: "header:X-Zone"}
`
	e := engine.New(memory.New(), parse(t, text))
	zones := zone.Names()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 4))
			for range 3000 {
				n, name := 1+rng.Int64N(90_000), zones[rng.IntN(len(zones))]
				v, err := e.Decide(context.Background(), engine.Query{
					Domain: "api", Part: engine.Part{Request: request{"jwt:sub": "ann", "jwt:rate": fmt.Sprint(n, "/day"), "header:X-Zone": name}, Cost: 1, Kind: store.KindPeek}, At: noon,
				})
				if got := v.Rule.Limit.Rule(); err != nil || got.Limit != n || got.Zone.String() != name {
					t.Errorf("%d/day in %s: %v %v", n, name, v.Rule.Limit, err)
				}
				v.Release()
			}
		})
	}
	wg.Wait()
}

// Explain says which zone a request has, and why.
func TestExplainZones(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, ownZones))
	for name, want := range map[string]string{
		"Asia/Tokyo": "Asia/Tokyo, from zone", "Mars/Olympus": `Europe/Berlin, the default: "Mars/Olympus" in zone is not a time zone`,
		"": "Europe/Berlin, the default: the request has no zone",
	} {
		r := request{"user": "ann"}
		if name != "" {
			r["zone"] = name
		}
		x, err := e.Explain(context.Background(), engine.ExplainQuery{Domain: "api", Parts: []rules.Request{r}, Cost: 1, At: noon})
		if err != nil || len(x.Parts) != 1 || x.Parts[0].Rules[0].ZoneFrom != want {
			t.Errorf("%q: %+v %v, want %s", name, x.Parts, err, want)
		}
	}
	const text = "3/day fixed_window in the zone of zone, else Europe/Berlin"
	if got := e.Rules().Rule("api", "daily").LimitText(); got != text {
		t.Errorf("%s, want %s", got, text)
	}
}
