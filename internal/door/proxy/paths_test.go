package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/store/memory"
)

const pathRules = `
domain: api
limits:
  - {name: v1, match: {path: [/v1/**, "!/v1/health"]}, rate: 1/day}
  - {name: login, match: {path: /login}, rate: 1/day}
`

// Each row is what the upstream gets, or the status, under each policy.
func TestPathPolicies(t *testing.T) {
	var sent string
	p := map[reading.Policy]*proxy.Proxy{}
	for policy := reading.Forward; policy <= reading.Refuse; policy++ {
		p[policy] = newProxy(t, "domain: api\nlimits: []\n", memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			sent = r.URL.RequestURI()
			return ok(r)
		}, func(o *proxy.Options) { o.Paths = policy })
	}
	for _, row := range []struct{ path, forward, clean, refuse string }{
		{"/login?a=b//c", "/login?a=b//c", "/login?a=b//c", "/login?a=b//c"},
		{"/a%20b/caf%C3%A9/", "/a%20b/caf%C3%A9/", "/a%20b/caf%C3%A9/", "/a%20b/caf%C3%A9/"},
		{"/x%40y", "/x%40y", "/x@y", "/x%40y"},
		{"/login/../x?q", "/login/../x?q", "/x?q", "400"},
		{"/v1/1%2f..%2fx", "/v1/1%2f..%2fx", "/v1/x", "400"},
		{"//x/login", "//x/login", "/x/login", "400"},
		{"/x/..;/login", "/x/..;/login", "/login", "400"},
		{"/a;b=c", "/a;b=c", "/a;b=c", "400"},
		{"/%252flogin", "/%252flogin", "/%252flogin", "400"},
		{"/a%2fb\"c|", "/a%2fb%22c%7C", "/a/b%22c%7C", "400"},
		{"/../x", "/../x", "/x", "400"},
		{"/" + strings.Repeat("a/..%5c..;x%2f//%253b", 9), "400", "/%253b", "400"},
	} {
		for policy, want := range map[reading.Policy]string{reading.Forward: row.forward, reading.CleanUp: row.clean, reading.Refuse: row.refuse} {
			sent = ""
			w := httptest.NewRecorder()
			p[policy].ServeHTTP(w, request(t.Context(), "GET", row.path))
			got := sent
			if w.Code == http.StatusBadRequest {
				got = "400"
				if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
					t.Errorf("%s, %s: refused with %s", policy, row.path, kind)
				}
			}
			if got != want {
				t.Errorf("%s, %s: %q, want %q", policy, row.path, got, want)
			}
		}
	}
}

// Rules see the cleaned paths, and only those reach the upstream.
func TestRulesSeeCleanedPaths(t *testing.T) {
	p := newProxy(t, pathRules, memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) { o.Paths = reading.CleanUp })
	for _, row := range []struct {
		path string
		want int
	}{
		{"/login/../x", 200},
		{"/v1/otp/..%2fhealth", 200},
		{"/v1//health", 200},
		{"/v1/otp", 200},
		{"/v1/otp/..%2f..%2fv1/otp", 429},
		{"/x/..%5clogin", 200},
		{"/LOGIN", 429},
	} {
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), "GET", row.path)); w.Code != row.want {
			t.Errorf("%s: %d, want %d", row.path, w.Code, row.want)
		}
	}
}

// Spellings that an attacker may try: some server reads each as the same request, so
// only the first is allowed.
func TestSpellingsShareABudget(t *testing.T) {
	for rule, spellings := range map[string][]string{
		"login": {
			"/login", "/login/", "//login", "/./login", "/x/../login", "/login/.", "/login//", "/%6cogin", "/%6Cogin", "/LOGIN", "/Login/",
			"/login;x=1", "/;x/login", "/x/..;/login", "/x/%2e%2e/login", "/x%2f..%2flogin", "/x%5c..%5clogin", "/%2flogin", "/%252flogin", "/%256cogin",
			"//host/login", "/login%00", "/login%3fx", "/login%23x", "/x/..%252flogin", "/.;/login", "/x/y/../../login", "/../login", "http://upstream.example/login",
		},
		"v1": {
			"/v1/otp", "/v1/otp/1234%2f..%2f..%2f..%2fx", "/v1/otp/../../x", "/v1/otp/%2e%2e/%2e%2e/x", "/V1/otp", "/v1/health/..;/otp", "/v1/otp/1%2f..%2f..%2fhealth",
			"/v1//health", "/v1/./health", "/v1/%68ealth", "/v1/health;x", "/v1/HEALTH", "/v1%2fhealth", "/v1/health%00", "/x/../v1/health", "//v1/health",
		},
	} {
		p := newProxy(t, pathRules, memory.New(memory.WithClock(time.Now)), ok)
		for i, path := range spellings {
			want := http.StatusTooManyRequests
			if i == 0 {
				want = http.StatusOK
			}
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, request(t.Context(), "GET", path)); w.Code != want {
				t.Errorf("%s: %s is answered %d, want %d", rule, path, w.Code, want)
			}
		}
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), "GET", "/v1/health")); w.Code != http.StatusOK {
			t.Errorf("the exclusion is gone: %d", w.Code)
		}
	}
}

// Twelve spellings of a host match the same rule.
func TestHostSpellingsShareABudget(t *testing.T) {
	p := newProxy(t, "domain: api\nlimits:\n  - {name: host, match: {host: api.example.com}, key: host, rate: 1/day}\n", memory.New(memory.WithClock(time.Now)), ok)
	for i, host := range []string{
		"api.example.com", "API.EXAMPLE.COM", "api.example.com.", "api.example.com:80", "api.example.com:443", "Api.Example.Com.:8080",
		"api.example.com:", "api.example.com.:", "api.Example.com.:443", "api.example.com:080", "aPI.example.com:65535", "apI.example.com:99999",
	} {
		want := http.StatusTooManyRequests
		if i == 0 {
			want = http.StatusOK
		}
		r := request(t.Context(), "GET", "/")
		r.Host = host
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q is answered %d, want %d", host, w.Code, want)
		}
	}
}

// No path leads out of the upstream's own path.
func TestPathsStayBelowTheUpstreams(t *testing.T) {
	for base, want := range map[string]int{"": 200, "/": 200, "/app": 400} {
		p := newProxy(t, pathRules, memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) {
			o.Upstream = &url.URL{Scheme: "http", Host: "upstream.example", Path: base}
		})
		for _, path := range []string{"/../admin", "/x/../../admin", "/..%2fadmin", "/%2e%2e/admin", "/x/..;/..;/admin", "/..%5cadmin"} {
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, request(t.Context(), "GET", path)); w.Code != want {
				t.Errorf("behind %q, %s is answered %d, want %d", base, path, w.Code, want)
			}
		}
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), "GET", "/x/../y")); w.Code != http.StatusOK {
			t.Errorf("behind %q, /x/../y is answered %d", base, w.Code)
		}
	}
}
