package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const peekRules = `domain: api
limits:
  - {name: shared, key: client_ip, rate: 300/day, algorithm: fixed_window, regions: shared}
  - {name: at-home, key: client_ip, rate: 10/day, algorithm: sliding_log, regions: {home: eu}}
  - {name: alone, key: client_ip, rate: 300/day, algorithm: fixed_window}
`

// A peek says what this region has of a limit that regions share, that it is shared, and
// whose count that of a limit with a home is. A grant of such limits is not said to be made
// in other regions.
func TestPeeksSayWhatRegionsShare(t *testing.T) {
	t.Parallel()
	const ip = "198.51.100.7"
	eu, us := redistest.Standalone(t), redistest.Standalone(t)
	between := redistest.NewProxy(t, eu.Addr)
	one := run(t, peekRules, nil, region("eu", eu.Addr, "us", us.Addr), withAdmin)
	two := run(t, peekRules, nil, region("us", us.Addr, "eu", eu.Addr), withAdmin, func(c *config.Config) {
		c.Store.Regions.Homes = map[string]config.Secret{"eu": config.Secret("redis://" + between.Addr)}
	})
	peek := func(f *fixture, rule string) admin.KeyAnswer {
		t.Helper()
		return f.keysOf(t, "peek", about(rule, ip, ""))
	}
	for range 4 {
		two.check(t, "/", ip)
	}
	is := peek(two, "shared")
	if is.Limit != 300 || is.Here() != 150 || is.Remaining != 146 || is.InRegions == nil || is.InRegions.Region != "us" || len(is.InRegions.Parts) != 2 {
		t.Errorf("of a shared limit: %+v, %+v", is, is.InRegions)
	}
	for name, f := range map[string]*fixture{"eu": one, "us": two} {
		if is := peek(f, "at-home"); is.Limit != 10 || is.Here() != 10 || is.Remaining != 6 || is.InRegions == nil || is.InRegions.Home != "eu" || is.InRegions.Region != name {
			t.Errorf("of a limit with a home: %+v, %+v", is, is.InRegions)
		}
	}
	if is := peek(two, "alone"); is.InRegions != nil || is.Here() != 300 {
		t.Errorf("of a separate limit: %+v, %+v", is, is.InRegions)
	}
	for rule, want := range map[string]bool{"shared": false, "at-home": false, "alone": true} {
		if is := two.keysOf(t, "grant", about(rule, ip, `,"amount":5`)); (is.Regions != nil) != want {
			t.Errorf("a grant of %s was made in %v", rule, is.Regions)
		}
	}
	for rule, want := range map[string]bool{"shared": true, "at-home": false, "alone": true} {
		if is := two.keysOf(t, "reset", about(rule, ip, "")); (is.Regions != nil) != want {
			t.Errorf("a reset of %s was made in %v", rule, is.Regions)
		}
	}
	if _, audit := two.get(t, two.adminURL("/v1/audit?n=10")); !strings.Contains(audit, "150 of 150 left in us") {
		t.Errorf("the audit does not say what us had: %s", audit)
	}

	between.Cut()
	two.await(t, func() bool { return !peekable(t, two, ip) })
	status, _, text := two.keys(t, "peek", about("at-home", ip, ""))
	if status == 200 || !strings.Contains(text, "region eu") {
		t.Errorf("without its home: %d %s", status, text)
	}
	_, body := two.post(t, "/v1/explain", fmt.Sprintf(`{"domain":"api","attributes":{"client_ip":%q}}`, ip))
	var x httpapi.Explanation
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(x.StoreError, "region eu") {
		t.Errorf("the error is %q, and does not name the region", x.StoreError)
	}
	for _, r := range x.Parts[0].Rules {
		if c := r.Count; r.Rule == "at-home" && (c.Used != 0 || c.Remaining != 0 || c.Reason != "fail_open") || r.Rule == "shared" && c.Remaining != 150 {
			t.Errorf("%s: %+v", r.Rule, c)
		}
	}
}

// peekable reports whether the home of a limit answers.
func peekable(t *testing.T, f *fixture, ip string) bool {
	t.Helper()
	status, _, _ := f.keys(t, "peek", about("at-home", ip, ""))
	return status == 200
}
