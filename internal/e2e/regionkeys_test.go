package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const regionKeyRules = `domain: api
limits:
  - {name: search, match: {path: /search}, key: client_ip, rate: 30/day, algorithm: fixed_window, regions: shared}
  - {name: login, match: {path: /login}, key: client_ip, rate: 5/day, algorithm: fixed_window, on_repeat: {refusals: 5/hour, ban: 1h, mode: enforce}}
`

// readerOfKeys is the user of docs/many/regions.md.
const readerOfKeys = "ACL SETUSER headgate-reader on >secret resetkeys ~hg:{%regions}:news ~hg:{%tcontrol}:* resetchannels -@all +xrange +get +hmget +hlen +zcard +zrangebyscore +zmscore +time +ping +hello"

// earth is three regions with a Redis and a server each, and a wire from each to each
// other.
type earth struct {
	*testing.T
	redis   map[string]*redistest.Server
	wires   map[[2]string]*redistest.Proxy // from, to
	servers map[string]*fixture
}

var earthly = []string{"ap", "eu", "us"}

func newEarth(t *testing.T) *earth {
	t.Helper()
	e := &earth{t, map[string]*redistest.Server{}, map[[2]string]*redistest.Proxy{}, map[string]*fixture{}}
	for _, name := range earthly {
		e.redis[name] = redistest.Standalone(t)
		e.redis[name].Do(strings.Fields(readerOfKeys)...)
	}
	for _, from := range earthly {
		for _, to := range earthly {
			if from != to {
				e.wires[[2]string{from, to}] = redistest.NewProxy(t, e.redis[to].Addr)
			}
		}
	}
	for _, name := range earthly {
		e.start(name)
	}
	return e
}

func (e *earth) start(name string) {
	e.Helper()
	e.servers[name] = run(e.T, regionKeyRules, nil, withAdmin, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.URL, c.Store.Redis.Timeout = config.InRedis, config.Secret("redis://"+e.redis[name].Addr), patient
		c.Store.Regions = config.Regions{Name: name, Interval: 50 * time.Millisecond, Peers: map[string]config.Secret{}}
		for at, wire := range e.wires {
			if at[0] == name {
				c.Store.Regions.Peers[at[1]] = config.Secret("redis://headgate-reader:secret@" + wire.Addr)
			}
		}
	})
}

// cut cuts a region off from the others, both ways.
func (e *earth) cut(name string) { e.each(name, (*redistest.Proxy).Cut) }

func (e *earth) heal(name string) { e.each(name, (*redistest.Proxy).Heal) }

func (e *earth) each(name string, do func(*redistest.Proxy)) {
	for at, wire := range e.wires {
		if slices.Contains(at[:], name) {
			do(wire)
		}
	}
}

// banned awaits that a region bans a client, or does not.
func (e *earth) banned(name, ip string, want bool) {
	e.Helper()
	e.servers[name].await(e.T, func() bool { return (e.servers[name].check(e.T, "/login", ip).Reason == "banned") == want })
}

// keysOf is keys without a warning being a mistake.
func (f *fixture) keysOf(t *testing.T, action, body string) admin.KeyAnswer {
	t.Helper()
	status, is, text := f.keys(t, action, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", action, body, status, text)
	}
	return is
}

func about(rule, ip, more string) string {
	return fmt.Sprintf(`{"rule":%q,"key":[%q]%s}`, rule, ip, more)
}

// An operator's ban, override, grant or reset in one region is made in all, and the answer
// says so; a region that cannot be reached is named, and follows.
func TestKeysReachAllRegions(t *testing.T) {
	t.Parallel()
	e := newEarth(t)
	eu, us := e.servers["eu"], e.servers["us"]
	const ann, bob, cid = "198.51.100.1", "198.51.100.2", "198.51.100.3"
	all := map[string]bool{"ap": true, "us": true}
	// The first answer may come before all servers have found each other.
	eu.await(t, func() bool {
		_, is, _ := eu.keys(t, "ban", about("login", ann, `,"for":"1h"`))
		return maps.Equal(is.Regions, all)
	})
	began := time.Now()
	if is := eu.mustKeys(t, "ban", about("login", bob, `,"for":"1h"`)); !maps.Equal(is.Regions, all) {
		t.Errorf("made in %v", is.Regions)
	}
	e.banned("us", bob, true)
	t.Logf("a ban in eu is in force in us after %v", time.Since(began).Round(time.Millisecond))
	e.banned("ap", ann, true)
	us.mustKeys(t, "unban", about("login", ann, ""))
	e.banned("eu", ann, false)
	e.banned("ap", ann, false)

	// A limit that each region has for itself: a grant and a reset are made in each.
	us.mustKeys(t, "override", about("login", cid, `,"rate":"6/day","for":"1h"`))
	for eu.check(t, "/login", cid).Allowed {
	}
	us.mustKeys(t, "grant", about("login", cid, `,"amount":2,"for":"1h"`))
	eu.await(t, func() bool { return eu.mustKeys(t, "peek", about("login", cid, "")).Remaining == 2 })
	if n := us.mustKeys(t, "peek", about("login", cid, "")).Remaining; n != 8 {
		t.Errorf("%d left in us, want 8", n)
	}
	us.mustKeys(t, "reset", about("login", cid, ""))
	eu.await(t, func() bool { return eu.mustKeys(t, "peek", about("login", cid, "")).Remaining == 6 })

	// A limit that regions share: a grant is made once.
	before := left(t, e, cid)
	us.mustKeys(t, "grant", about("search", cid, `,"amount":10,"for":"1h"`))
	if after := left(t, e, cid); after != before+10 {
		t.Errorf("%d left in all regions, before the grant of 10 it were %d", after, before)
	}

	e.cut("ap")
	is := eu.keysOf(t, "ban", about("login", cid, `,"for":"1h"`))
	if !is.Regions["us"] || is.Regions["ap"] || !strings.Contains(is.Warning, "no answer from ap") {
		t.Errorf("%v, %q", is.Regions, is.Warning)
	}
	if is := eu.keysOf(t, "reset", about("login", cid, "")); !strings.Contains(is.Warning, "reset the key there too") {
		t.Errorf("%q", is.Warning)
	}
	// Changed on both sides of the cut: the later one wins everywhere.
	e.servers["ap"].keysOf(t, "ban", about("login", ann, `,"for":"2h"`))
	eu.keysOf(t, "ban", about("login", ann, `,"for":"1h"`))
	eu.keysOf(t, "unban", about("login", ann, ""))
	e.servers["ap"].keysOf(t, "unban", about("login", bob, ""))
	e.heal("ap")
	e.banned("ap", cid, true)
	for _, name := range earthly {
		e.banned(name, ann, false)
		e.banned(name, bob, false)
	}
	if n := eu.metric(t, `headgate_region_changes_total{region="us",result="merged"}`); n == "0" {
		t.Error("eu has merged nothing of us")
	}
	if _, body := eu.get(t, eu.adminURL("/v1/regions")); !strings.Contains(body, `"keys":{"read_ms":`) {
		t.Error(body)
	}
}

// left returns what all regions together have left of a shared limit.
func left(t *testing.T, e *earth, ip string) (sum int64) {
	t.Helper()
	for _, f := range e.servers {
		sum += f.mustKeys(t, "peek", about("search", ip, "")).Remaining
	}
	return sum
}

// A region that loses everything, or was away, gets what the others know; bans by
// on_repeat reach the others.
func TestRegionThatWasAway(t *testing.T) {
	t.Parallel()
	e := newEarth(t)
	eu := e.servers["eu"]
	const ann, bob = "198.51.100.1", "198.51.100.2"
	for range 12 {
		eu.check(t, "/login", bob)
	}
	e.banned("eu", bob, true)
	e.banned("us", bob, true)
	if err := e.servers["ap"].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.redis["ap"].Do("FLUSHALL")
	eu.keysOf(t, "ban", about("login", ann, `,"for":"1h"`))
	e.start("ap")
	e.banned("ap", ann, true)
	e.banned("ap", bob, true)
}
