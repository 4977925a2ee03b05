package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const regionRules = `domain: api
limits:
  - {name: search, key: client_ip, rate: 300/day, algorithm: fixed_window, regions: shared}
`

// region configures a process of a region whose Redis is at own.
func region(name, own, other, at string) func(*config.Config) {
	return func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.Addresses = config.InRedis, []string{own}
		c.Store.Regions = config.Regions{Name: name, Peers: map[string]config.Secret{other: config.Secret("redis://" + at)}, Interval: 20 * time.Millisecond}
	}
}

// Two servers with a Redis each share a limit: all of it can be used in one region, and
// then nothing is left in the other.
func TestRegionsShareALimit(t *testing.T) {
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
	if status.StatusCode != http.StatusOK || !strings.Contains(body, `"region":"eu","acts":true,"others":[{"region":"us","news_ms":`) || !strings.Contains(body, `"given":0,"received":150}`) {
		t.Errorf("%d %s", status.StatusCode, body)
	}
	us.Kill()
	one.await(t, func() bool { return one.metric(t, `headgate_region_reachable{region="us"}`) == "0" })
	if log := one.journal.text.String(); !strings.Contains(log, "no news from a region") {
		t.Error("the log does not say that us is gone")
	}
}

// A rule that regions share says so in the log if there are none.
func TestRulesWithoutRegionsAreReported(t *testing.T) {
	f := run(t, regionRules, nil)
	f.await(t, func() bool { return strings.Contains(f.journal.text.String(), "regions do not share this limit") })
}
