package app_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
)

const listsAtDoors = `
domain: api
allow:
  client_ip: [192.0.2.0/24, 2001:db8:a::/48]
  user: ann
  "header:X-Partner": [p-1, p-2]
  "cookie:partner": [c-1]
deny:
  client_ip: [203.0.113.0/24, 192.0.2.66]
  "header:X-Api-Key": [k-bad]
  "cookie:session": [s-bad]
  "query:token": [t-bad]
  user: [eve]
limits:
  - {name: all, rate: 0/minute}
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 0}}
`

// Every door answers requests on lists; no other request passes, so that a list that is
// not looked at shows.
func TestListsAtEveryDoor(t *testing.T) {
	t.Parallel()
	f := run(t, listsAtDoors, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), func(c *config.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	for _, row := range []struct {
		what            string
		fields          []string
		query           string
		proxy, forwards int
	}{
		{"a partner", []string{"X-Forwarded-For", "192.0.2.1"}, "", 204, 200},
		{"a partner as IPv6", []string{"X-Forwarded-For", "::ffff:192.0.2.1"}, "", 204, 200},
		{"on both lists", []string{"X-Forwarded-For", "192.0.2.66"}, "", 204, 200},
		{"someone", []string{"X-Forwarded-For", "198.51.100.1"}, "", 429, 429},
		{"denied", []string{"X-Forwarded-For", "203.0.113.1"}, "", 403, 403},
		{"a claim about itself", []string{"X-Forwarded-For", "192.0.2.1, 203.0.113.1"}, "", 403, 403},
		{"a partner with a bad key", []string{"X-Forwarded-For", "192.0.2.1", "X-Api-Key", "k-bad"}, "", 204, 200},
		{"a partner's key", []string{"X-Partner", "p-1"}, "", 204, 200},
		{"two keys of partners, which some servers join", []string{"X-Partner", "p-1", "X-Partner", "p-2"}, "", 429, 429},
		{"a partner's key and another", []string{"X-Partner", "p-1", "X-Partner", "p-3"}, "", 429, 429},
		{"a partner's cookie", []string{"Cookie", "partner=c-1"}, "", 204, 200},
		{"a partner's cookie and another", []string{"Cookie", "partner=c-1; partner=c-2"}, "", 429, 429},
		{"a cookie that servers read in several ways", []string{"Cookie", `partner=c-1\`}, "", 429, 429},
		{"a session that servers read in several ways", []string{"Cookie", `session=s\-x`}, "", 403, 403},
		{"a bad key", []string{"X-Api-Key", "k-bad"}, "", 403, 403},
		{"a bad key among two", []string{"X-Api-Key", "k-good", "X-Api-Key", "k-bad"}, "", 403, 403},
		{"a bad session", []string{"Cookie", `a=b; session="s-bad"`}, "", 403, 403},
		{"a bad session in disguise", []string{"Cookie", "session=s%2Dbad"}, "", 403, 403},
		{"a bad token", nil, "?x=1&token=t-bad", 403, 403},
		{"a bad token among two", nil, "?token=t&token=t%2dbad", 403, 403},
	} {
		got, body := f.get(t, f.proxyURL("/a"+row.query), row.fields...)
		if got.StatusCode != row.proxy {
			t.Errorf("%s: the proxy answers %d, want %d", row.what, got.StatusCode, row.proxy)
		}
		if got.StatusCode == http.StatusForbidden {
			if body != `{"type":"about:blank","title":"Forbidden","status":403,"detail":"Requests from you are not accepted."}`+"\n" {
				t.Errorf("%s: %s", row.what, body)
			}
			for name := range got.Header {
				if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
					t.Errorf("%s: the answer has %s", row.what, name)
				}
			}
		}
		fields := append([]string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a" + row.query, "X-Forwarded-Host", "h"}, row.fields...)
		if got, _ = f.get(t, f.apiURL("/v1/auth"), fields...); got.StatusCode != row.forwards {
			t.Errorf("%s: forward-auth answers %d, want %d", row.what, got.StatusCode, row.forwards)
		}
	}
	for user, want := range map[string][2]string{
		"ann": {`{"allowed":true,"reason":"unlimited"}`, `"overallCode":"OK"`},
		"bob": {`"reason":"too_large"`, `"overallCode":"OVER_LIMIT"`},
		"eve": {`"rule":"deny user",`, `"rawBody":"eyJ0eXBlIjoiYWJvdXQ6YmxhbmsiL`}, // {"type":"about:blank"
	} {
		if _, body := f.post(t, "/v1/check", fmt.Sprintf(`{"domain":"api","attributes":{"user":%q}}`, user)); !strings.Contains(body, want[0]) {
			t.Errorf("%s: /v1/check answers %s, want %s", user, body, want[0])
		}
		_, body := f.post(t, "/json", fmt.Sprintf(`{"domain":"api","descriptors":[{"entries":[{"key":"user","value":%q}]}]}`, user))
		if !strings.Contains(strings.ReplaceAll(body, " ", ""), want[1]) {
			t.Errorf("%s: Envoy's service answers %s, want %s", user, body, want[1])
		}
	}
}

// The rule tests of the example pass.
func TestRuleTestsOfLists(t *testing.T) {
	t.Parallel()
	report, err := offline.RuleTests{Paths: []string{examples + "lists/rules_test.yaml"}}.Run(t.Context())
	if err != nil || report.Passed != 3 || report.Failed != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
