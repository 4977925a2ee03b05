package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A rule with when applies while the upstream is slow, at all doors of the process, and not when
// it is fast again.
func TestRuleOfASlowUpstream(t *testing.T) {
	var takes atomic.Int64
	var f *fixture
	f = newFixture(t, `
domain: api
limits:
  - {name: calm, key: client_ip, rate: 1/hour, algorithm: fixed_window, when: {upstream_p90: ">200ms"}}
`, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.clock.advance(time.Duration(takes.Load()))
		w.WriteHeader(http.StatusNoContent)
	}))
	f.start(t)
	asks := func(takesEach time.Duration, n, want int) {
		t.Helper()
		takes.Store(int64(takesEach))
		for i := range n {
			if res, body := f.get(t, f.proxyURL("/")); res.StatusCode != want {
				t.Fatalf("request %d: %d %s, want %d", i, res.StatusCode, body, want)
			}
		}
	}
	explained := func(want string) {
		t.Helper()
		body := f.postJSON(t, "/v1/explain", `{"domain": "api", "attributes": {"client_ip": "127.0.0.1"}}`)
		if !strings.Contains(body, want) {
			t.Errorf("%s\nwant %s", body, want)
		}
	}
	explained("not measured")
	asks(10*time.Millisecond, 50, http.StatusNoContent)
	explained(`"want":"upstream_p90 \u003e200ms"`)
	explained(`"got":"9.98ms"`)
	asks(300*time.Millisecond, 6, http.StatusNoContent)
	asks(0, 1, http.StatusNoContent) // which the rule counts
	asks(0, 3, http.StatusTooManyRequests)
	explained(`"applies":true`)
	f.clock.advance(5 * time.Second)
	asks(0, 3, http.StatusNoContent)
}

// Rules of a candidate wait for a slow upstream too: the same rules differ in nothing, and a rule
// that only the candidate has refuses.
func TestSlowUpstreamOfACandidate(t *testing.T) {
	const none = "domain: api\nlimits: []\n"
	const calm = `
domain: api
limits:
  - {name: calm, key: client_ip, rate: 1/hour, algorithm: fixed_window, when: {upstream_p90: ">200ms"}}
`
	for name, row := range map[string]struct {
		live, candidate string
		want            string
	}{
		"the same":     {calm, calm, "30 same, 0 newly refused, 0 newly allowed"},
		"a new rule":   {none, calm, "21 same, 9 newly refused, 0 newly allowed"},
		"without it":   {calm, none, "21 same, 0 newly refused, 9 newly allowed"},
		"without both": {none, none, "30 same, 0 newly refused, 0 newly allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			var f *fixture
			_, trying := trying(t, row.candidate)
			f = newFixture(t, row.live, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				f.clock.advance(215 * time.Millisecond)
				w.WriteHeader(http.StatusNoContent)
			}), withAdmin, trying)
			f.start(t)
			for range 20 {
				f.get(t, f.proxyURL("/"))
			}
			for range 10 {
				f.postJSON(t, "/v1/check", `{"domain": "api", "attributes": {"client_ip": "127.0.0.1"}}`)
			}
			s := f.candidate(t)
			if got := fmt.Sprintf("%d same, %d newly refused, %d newly allowed", s.Same, s.NewlyRefused, s.NewlyAllowed); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
			if n := strings.Count(f.journal.text.String(), "the upstream is slow"); n > 1 || (n == 1) != (row.live == calm) {
				t.Errorf("the log tells of a slow upstream %d times", n)
			}
		})
	}
}
