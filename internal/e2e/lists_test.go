package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
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

const listedUsers = `
domain: api
allow: {user: ann}
deny: {user: eve}
limits:
  - {name: all, key: [user], rate: 0/minute}
---
domain: api
deny: {mode: shadow, user: sid}
---
domain: mesh
compat: envoy
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 0}}
---
domain: mesh
allow: {user: ann}
deny: {user: eve}
limits: []
`

// RESP answers requests on lists as the other doors do, also in a batch, a peek and a
// reservation, and a client that is written as IPv6.
func TestListsInTheRedisProtocol(t *testing.T) {
	t.Parallel()
	f := run(t, listedUsers, nil, func(c *config.Config) { c.Door("resp").Address = "127.0.0.1:0" })
	c, err := net.Dial("tcp", f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewReader(c)
	const (
		allowed = "*9 :1 $-1 $-1 $-1 :0 $-1 $9 unlimited :0 $5 allow"
		denied  = "*9 :0 $9 deny user :0 :0 :-1 :0 $6 banned :0 $6 reject"
		other   = "*9 :0 $3 all :0 :0 :-1 :0 $9 too_large :0 $6 reject"
	)
	for _, row := range [][2]string{
		{"HG.CHECK api user ann", allowed},
		{"HG.CHECK api user eve", denied},
		{"HG.PEEK api user eve", denied},
		{"HG.CHECK api user bob", other},
		{"HG.CHECK api user sid", other},
		{"HG.CHECK mesh user ann", allowed},
		{"HG.CHECK mesh user eve", denied},
		{"HG.MCHECK 3 api user eve 3 api user ann 3 api user bob", "*3 " + denied + " " + allowed + " " + other},
	} {
		if _, err := c.Write([]byte(row[0] + "\r\n")); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for got.Len() < len(row[1]) {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %q, %v", row[0], &got, err)
			}
			got.WriteString(strings.TrimSpace(line) + " ")
		}
		if strings.TrimSpace(got.String()) != row[1] {
			t.Errorf("%s: %s, want %s", row[0], &got, row[1])
		}
	}
}

// So do headgate.v1 and Envoy's service, for rules of both forms.
func TestListsInGRPC(t *testing.T) {
	t.Parallel()
	f := run(t, listedUsers, nil, func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	conn := dialGRPC(t, f.Addr(doorGRPC))
	limiter, mesh := headgatev1.NewLimiterClient(conn), envoy.NewRateLimitServiceClient(conn)
	for user, want := range map[string]struct {
		verdict, limits string
		code            envoy.RateLimitResponse_Code
	}{
		"ann": {"true REASON_UNLIMITED  []", "unlimited", envoy.RateLimitResponse_OK},
		"eve": {"false REASON_BANNED deny user []", "denied", envoy.RateLimitResponse_OVER_LIMIT},
		"sid": {"false REASON_TOO_LARGE all [deny user]", "1", envoy.RateLimitResponse_OVER_LIMIT},
		"bob": {"false REASON_TOO_LARGE all []", "1", envoy.RateLimitResponse_OVER_LIMIT},
	} {
		attributes := map[string]string{"user": user}
		check := &headgatev1.CheckRequest{Domain: "api", Attributes: attributes}
		said := func(v *headgatev1.Verdict) string {
			return fmt.Sprint(v.GetAllowed(), " ", v.GetReason(), " ", v.GetRule(), " ", v.GetShadow())
		}
		one, err := limiter.Check(t.Context(), check)
		if err != nil || said(one.GetVerdict()) != want.verdict {
			t.Errorf("%s: Check: %v, %v", user, one, err)
		}
		batch, err := limiter.CheckBatch(t.Context(), &headgatev1.CheckBatchRequest{Checks: []*headgatev1.CheckRequest{check, check}})
		if err != nil || said(batch.GetResults()[1].GetVerdict()) != want.verdict {
			t.Errorf("%s: CheckBatch: %v, %v", user, batch, err)
		}
		reserved, err := limiter.Reserve(t.Context(), &headgatev1.ReserveRequest{Domain: "api", Attributes: attributes})
		if err != nil || said(reserved.GetVerdict()) != want.verdict || (reserved.GetReservation() != "") != (user == "ann") {
			t.Errorf("%s: Reserve: %v, %v", user, reserved, err)
		}
		own, err := limiter.Limits(t.Context(), &headgatev1.LimitsRequest{Domain: "api", Attributes: attributes})
		got := fmt.Sprint(len(own.GetLimits()))
		switch {
		case own.GetUnlimited():
			got = "unlimited"
		case own.GetDenied():
			got = "denied"
		}
		if err != nil || got != want.limits {
			t.Errorf("%s: Limits: %v, %v", user, own, err)
		}
		for _, domain := range []string{"api", "mesh"} {
			res, err := mesh.ShouldRateLimit(t.Context(), &envoy.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
			}})
			forbidden := strings.Contains(string(res.GetRawBody()), `"status":403`)
			if err != nil || res.GetOverallCode() != want.code || forbidden != (user == "eve") {
				t.Errorf("%s: Envoy's service, %s: %v, %v", user, domain, res, err)
			}
		}
	}
}

// A comparison with candidate rules names the lists that refuse now, or would.
func TestListsOfACandidate(t *testing.T) {
	t.Parallel()
	const limits = "limits: [{name: all, key: [user], rate: 1/minute}]\n"
	_, with := trying(t, "domain: api\nallow: {user: ann}\ndeny: {user: bob}\n"+limits+"---\ndomain: api\ndeny: {mode: shadow, user: sid}\n")
	f := run(t, "domain: api\ndeny: {user: [eve, ann]}\n"+limits, nil, withAdmin, with)
	for _, user := range []string{"ann", "bob", "eve", "sid"} {
		f.post(t, "/v1/check", fmt.Sprintf(`{"domain":"api","attributes":{"user":%q}}`, user))
	}
	s := f.candidate(t)
	if got := compared(&s); got != "comparing 4: 1 same, 1 newly refused, 2 newly allowed" {
		t.Error(got)
	}
	var got []string
	for _, by := range s.By {
		for _, key := range by.Keys {
			got = append(got, fmt.Sprintf("%s %s +%d -%d", by.Rule, *key.Parts[0], by.NewlyRefused, by.NewlyAllowed))
		}
	}
	slices.Sort(got)
	if want := "deny user ann +0 -2, deny user bob +1 -0, deny user eve +0 -2"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
