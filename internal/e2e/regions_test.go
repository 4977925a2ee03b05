package e2e

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const regionRules = `domain: api
limits:
  - {name: search, key: client_ip, rate: 300/day, algorithm: fixed_window, regions: shared}
`

// patient is a timeout that even a busy machine meets.
const patient = 2 * time.Second

// region configures a process of a region whose Redis is at own.
func region(name, own, other, at string) func(*config.Config) {
	return func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.URL, c.Store.Redis.Timeout = config.InRedis, config.Secret("redis://"+own), patient
		c.Store.Regions = config.Regions{Name: name, Peers: map[string]config.Secret{other: config.Secret("redis://" + at)}, Interval: 20 * time.Millisecond}
	}
}

// Two servers with a Redis each share a limit: all of it can be used in one region, and
// then nothing is left in the other.
func TestRegionsShareALimit(t *testing.T) {
	t.Parallel()
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	one := run(t, regionRules, nil, region("eu", eu.Addr, "us", us.Addr), withAdmin)
	two := run(t, regionRules, nil, region("us", us.Addr, "eu", eu.Addr), withAdmin)
	allowed := 0
	take := func(f *fixture) bool {
		answer := f.check(t, "/", "198.51.100.7")
		if answer.Allowed {
			allowed++
		}
		return answer.Allowed
	}
	one.await(t, func() bool {
		for take(one) {
		}
		return allowed >= 300
	})
	for range 20 {
		take(one)
		take(two)
		time.Sleep(10 * time.Millisecond)
	}
	if allowed != 300 {
		t.Errorf("%d were admitted, want 300", allowed)
	}
	if n := one.metric(t, `headgate_region_received_tokens_total{region="us"}`); n != "150" {
		t.Errorf("%s tokens received, want 150", n)
	}
	if n := one.metric(t, `headgate_region_reachable{region="us"}`); n != "1" {
		t.Errorf("us is reachable: %s", n)
	}
	status, body := one.get(t, one.adminURL("/v1/regions"))
	if status.StatusCode != http.StatusOK || !strings.Contains(body, `"region":"eu","acts":true,"asked":`) || !strings.Contains(body, `"given":0,"received":150,"unacknowledged":0,"unconfirmed":0,`) {
		t.Errorf("%d %s", status.StatusCode, body)
	}
	two.await(t, func() bool {
		other := answerOf[admin.Regions](t, two, "/v1/regions").Others[0]
		return other.State == "reachable" && other.Given == 150 && other.Unacknowledged == 0
	})
	us.Kill()
	one.await(t, func() bool { return one.metric(t, `headgate_region_reachable{region="us"}`) == "0" })
	one.await(t, func() bool { return answerOf[admin.Regions](t, one, "/v1/regions").Others[0].State == "cut" })
	if n := one.metric(t, `headgate_region_cut_seconds{region="us"}`); n == "0" || n == "" {
		t.Errorf("us has been away for %s seconds", n)
	}
	if log := one.journal.text.String(); !strings.Contains(log, "no news from a region") {
		t.Error("the log does not say that us is gone")
	}
}

// TestRegionsOfRules: what regions have of each limit, and how much all admit: for
// operators, in explanations and as a metric.
func TestRegionsOfRules(t *testing.T) {
	const text = `domain: api
limits:
  - {name: search, key: client_ip, rate: 301/minute, algorithm: sliding_window, regions: shared}
  - {name: upload, key: client_ip, rate: 10/second, burst: 100, regions: {slack: 5%}}
  - {name: alone, key: client_ip, rate: 10/second}
`
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	f := run(t, text, nil, region("eu", eu.Addr, "us", us.Addr), withAdmin)
	is := answerOf[admin.Regions](t, f, "/v1/regions")
	if is.Region != "eu" || len(is.Rules) != 2 {
		t.Fatalf("%+v", is)
	}
	want := []httpapi.Regions{
		{
			Region: "eu", Limit: 301, Parts: []httpapi.RegionPart{{Region: "eu", Limit: 150}, {Region: "us", Limit: 151}}, Over: 1,
			Bound: "all regions together admit at most 302 in a window: the limit of 301, and 1 by rounding",
			Alone: "it keeps what it has, and has 150 in every window; what others hold is refused here",
		},
		{
			Region: "eu", Limit: 100, Parts: []httpapi.RegionPart{{Region: "eu", Limit: 50}, {Region: "us", Limit: 50}}, Over: 5,
			Bound: "all regions together admit at most 105 at once: the burst of 100, and 5 on the way between regions",
			Alone: "it keeps what it has, in a bucket of 50 with its part of the rate; what others hold is refused here",
		},
	}
	for i := range want {
		if got := is.Rules[i].Regions; !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: %+v, want %+v", is.Rules[i].Rule, got, want[i])
		}
	}
	if n := f.metric(t, `headgate_region_over_admission_bound_tokens{domain="api",rule="upload"}`); n != "5" {
		t.Errorf("the metric says %s, want 5", n)
	}
	_, body := f.post(t, "/v1/explain", `{"domain":"api","attributes":{"client_ip":"198.51.100.7"}}`)
	var x httpapi.Explanation
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatal(err)
	}
	for _, r := range x.Parts[0].Rules {
		switch {
		case r.Rule == "alone" && r.Regions != nil:
			t.Errorf("alone is shared: %+v", r.Regions)
		case r.Rule == "search" && (r.Regions == nil || !reflect.DeepEqual(*r.Regions, want[0])):
			t.Errorf("explained as %+v", r.Regions)
		case r.Rule == "search" && (r.Count.Used != 0 || r.Count.Remaining != 150):
			t.Errorf("of an unused key %+v", r.Count)
		}
	}
}

// TestRegionIsNotItsOwnPeer: a process does not start if the store of another region is
// its own, whatever the URL looks like.
func TestRegionIsNotItsOwnPeer(t *testing.T) {
	eu := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, eu.Addr)
	err := newFixture(t, regionRules, nil, region("eu", eu.Addr, "us", proxy.Addr)).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "that of region us is the store of this region, eu") {
		t.Errorf("started with its own store as that of us: %v", err)
	}
}

// TestRegionThatCannotAsk: the log tells what the own Redis refuses from news of others.
func TestRegionThatCannotAsk(t *testing.T) {
	t.Parallel()
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	eu.Do("ACL", "SETUSER", "default", "-xadd")
	one := run(t, regionRules, nil, region("eu", eu.Addr, "us", us.Addr))
	one.await(t, func() bool {
		one.check(t, "/", "198.51.100.7")
		return strings.Contains(one.journal.text.String(), "this region cannot ask the others for tokens")
	})
	eu.Do("ACL", "SETUSER", "default", "+xadd")
	one.await(t, func() bool {
		one.check(t, "/", "198.51.100.7")
		return strings.Contains(one.journal.text.String(), "this region can ask the others for tokens again")
	})
	if log := one.journal.text.String(); strings.Contains(log, "no news from a region") {
		t.Errorf("us can be read: %s", log)
	}
}

// A rule that regions share says so in the log if there are none.
func TestRulesWithoutRegionsAreReported(t *testing.T) {
	f := run(t, regionRules, nil)
	f.await(t, func() bool { return strings.Contains(f.journal.text.String(), "regions do not share this limit") })
}

const homeRules = `domain: api
limits:
  - {name: logins, key: client_ip, rate: 5/day, algorithm: sliding_log, regions: {home: eu}}
  - {name: all, key: client_ip, rate: 300/day, algorithm: fixed_window}
`

// A limit at home in one region is counted there for all of them, by a user who may do
// nothing else; while it is cut off, only its own rules notice.
func TestALimitHasAHome(t *testing.T) {
	t.Parallel()
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	eu.Do("ACL", "SETUSER", "headgate-us", "on", ">secret", "resetkeys", "~hg:{[^%]*", "-@all", "+evalsha", "+eval", "+get", "+set", "+getrange", "+setrange",
		"+pttl", "+pexpire", "+pexpireat", "+pexpiretime", "+del", "+time", "+ping", "+hello")
	between := redistest.NewProxy(t, eu.Addr)
	one := run(t, homeRules, nil, withAdmin, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.URL, c.Store.Redis.Timeout = config.InRedis, config.Secret("redis://"+eu.Addr), patient
		c.Store.Regions = config.Regions{Name: "eu"}
	})
	two := run(t, homeRules, nil, withAdmin, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.URL, c.Store.Redis.Timeout = config.InRedis, config.Secret("redis://"+us.Addr), patient
		c.Store.Regions = config.Regions{Name: "us", Homes: map[string]config.Secret{"eu": config.Secret("redis://headgate-us:secret@" + between.Addr)}}
	})
	between.Delay(80 * time.Millisecond)
	allowed := 0
	for i := range 12 {
		answer := []*fixture{one, two}[i%2].check(t, "/", "198.51.100.7")
		if answer.Allowed {
			allowed++
		}
	}
	if allowed != 5 {
		t.Errorf("%d were admitted in both regions, want 5", allowed)
	}
	if n := two.metric(t, `headgate_home_reachable{region="eu"}`); n != "1" {
		t.Errorf("eu is reachable: %s", n)
	}
	_, body := two.get(t, two.adminURL("/v1/regions"))
	if !strings.Contains(body, `"homes":[{"region":"eu","reachable":true,"failed":0,"unasked":0}]`) {
		t.Error(body)
	}
	between.Cut()
	two.await(t, func() bool {
		two.check(t, "/", "198.51.100.8") // by default it passes
		return two.metric(t, `headgate_home_reachable{region="eu"}`) == "0"
	})
	if status, _ := two.get(t, two.adminURL("/readyz")); status.StatusCode != http.StatusOK {
		t.Errorf("not ready, because of another region: %d", status.StatusCode)
	}
	if n := two.metric(t, `headgate_store_circuit_open`); n != "0" {
		t.Errorf("the circuit of the own store is open: %s", n)
	}
	if log := two.journal.text.String(); !strings.Contains(log, "a region that counts limits does not answer") || strings.Contains(log, "secret@") {
		t.Error("the log:", log)
	}
	for range 300 {
		two.check(t, "/", "198.51.100.9")
	}
	if answer := two.check(t, "/", "198.51.100.9"); answer.Allowed {
		t.Error("a limit of this region does not hold while another region is cut off")
	}
	between.Heal()
	two.await(t, func() bool { return !two.check(t, "/", "198.51.100.7").Allowed })
}

// TestHomeIsNotThisRegion: a process does not start if the store of a limit's home is its own,
// whatever the URL looks like: each region would count for itself.
func TestHomeIsNotThisRegion(t *testing.T) {
	us := redistest.Standalone(t)
	proxy := redistest.NewProxy(t, us.Addr)
	err := newFixture(t, homeRules, nil, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.URL, c.Store.Redis.Timeout = config.InRedis, config.Secret("redis://"+us.Addr), patient
		c.Store.Regions = config.Regions{Name: "us", Homes: map[string]config.Secret{"eu": config.Secret("redis://" + proxy.Addr)}}
	}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the store of region eu is the store of this region, us") {
		t.Errorf("started with its own store as that of eu: %v", err)
	}
}

// Servers without a region say that they count a limit themselves, whose home is elsewhere.
func TestRulesWithoutTheirHomeAreReported(t *testing.T) {
	f := run(t, homeRules, nil)
	f.await(t, func() bool {
		return strings.Contains(f.journal.text.String(), "this server counts the limit itself instead of its home")
	})
}
