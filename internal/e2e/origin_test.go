package e2e

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
)

// An untrusted web page, in the browser of a machine that can reach the API, uses up no
// budget and reads no rules: neither from its own origin, nor with its own name pointed
// here.
func TestWebPagesGetNowhereAtTheAPI(t *testing.T) {
	t.Parallel()
	const (
		check = `{"domain":"api","attributes":{"path":"/login","method":"POST"}}`
		evil  = "http://evil.example"
	)
	anywhere := func(c *config.Config) { c.Door("api").Address = "0.0.0.0:0" }
	shared := func(c *config.Config) { c.Door("api").Address, c.Door("shared").Address = "", "127.0.0.1:0" }
	named := func(c *config.Config) { apiOf(c).Hosts = []string{"api.example.org"} }
	token := func(c *config.Config) { c.Tokens = []config.Secret{"0123456789abcdef"} }
	for _, row := range []struct {
		name         string
		change       set
		path, host   string
		origin, site string
		want         int
	}{
		{"a caller", nil, "/v1/check", "", "", "", 200},
		{"a caller by name", nil, "/v1/check", "localhost:8080", "", "", 200},
		{"a form of a page", nil, "/v1/check", "", evil, "cross-site", 403},
		{"a form of a page, in an old browser", nil, "/v1/check", "", evil, "", 403},
		{"a page on another port", nil, "/v1/reserve", "", "http://127.0.0.1:3000", "same-site", 403},
		{"an own name", nil, "/v1/check", "evil.example:8080", "", "", 403},
		{"an own name", nil, "/v1/explain", "evil.example:8080", evil + ":8080", "", 403},
		{"an own name", nil, "/v1/reserve", "evil.example:8080", evil + ":8080", "same-origin", 403},
		{"an own name", nil, "/json", "evil.example:8080", "", "", 403},
		{"an own name", nil, "/v1/release", "evil.example:8080", "", "", 403},
		{"an own name", shared, "/v1/check", "evil.example:8080", "", "", 403},
		{"a form of a page", shared, "/v1/check", "", evil, "", 403},
		{"a probe by any name", nil, "/healthz", "evil.example", "", "", 405},
		{"forward-auth for a page", nil, "/v1/auth", "", evil, "cross-site", 403},
		{"forward-auth by an own name", nil, "/v1/auth", "evil.example:8080", "", "", 403},
		{"a caller of forward-auth", nil, "/v1/auth", "", "", "", 200},
		{"a name that is known", named, "/v1/check", "api.example.org", "", "", 200},
		{"one that is not", named, "/v1/check", "headgate", "", "", 403},
		{"a service's name in a cluster", anywhere, "/v1/check", "headgate.prod:8080", "", "", 200},
		{"a form of a page there", anywhere, "/v1/check", "headgate.prod:8080", evil, "", 403},
		{"an own name there", anywhere, "/v1/check", "evil.example:8080", evil + ":8080", "", 403},
		{"who knows the token comes by any name", token, "/v1/check", "headgate", "", "", 200},
		{"a page does not know it", token, "/v1/check", "", evil, "", 403},
	} {
		f := newFixture(t, loginRules, nil)
		if row.change != nil {
			row.change(f.config)
			f.renew(t)
		}
		f.start(t)
		door := doorAPI
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+strings.Replace(f.Addr(door), "[::]", "127.0.0.1", 1)+row.path, strings.NewReader(check))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "text/plain")
		if r.Host = row.host; row.host == "" {
			r.Host = r.URL.Host
		}
		for name, value := range map[string]string{"Origin": row.origin, "Sec-Fetch-Site": row.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if row.want == 200 && len(f.config.Tokens) > 0 {
			r.Header.Set("Authorization", "Bearer 0123456789abcdef")
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := read(t, res); res.StatusCode != row.want {
			t.Errorf("%s: %s as %q from %q: %d, want %d: %s", row.name, row.path, row.host, row.origin, res.StatusCode, row.want, body)
		}
		_ = f.Stop(t.Context())
	}
}

// A page uses up no budget with a GET of forward-auth, as for an image. A trusted proxy
// can still pass on the browser's fields of the original request.
func TestWebPagesGetNowhereAtForwardAuth(t *testing.T) {
	const evil = "http://evil.example"
	trusting := func(c *config.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	for _, row := range []struct {
		name   string
		change set
		query  string
		header []string
		want   int
	}{
		{"an image", nil, "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"an image of a page on another port", nil, "", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"a fetch by an old browser", nil, "", []string{"Origin", evil}, 403},
		{"a fetch of a page without an origin", nil, "", []string{"Origin", "null"}, 403},
		{"a stranger who tells of a request, at a cost", nil, "?cost=1000", []string{"X-Original-Uri", "/login"}, 400},
		{"an image over plain HTTP, of which browsers say nothing", nil, "", nil, 403},
		{"an image over plain HTTP", nil, "", []string{"Accept-Language", "de", "Referer", evil + "/"}, 403},
		{"a stranger who tells of a request", nil, "", []string{"X-Forwarded-Uri", "/login", "X-Forwarded-Method", "GET"}, 200},
		{"an image where a trusted proxy runs", trusting, "?cost=1000", []string{"Sec-Fetch-Site", "cross-site"}, 400},
		{
			"a trusted proxy", trusting, "?cost=2",
			[]string{"Host", "shop.example", "Origin", evil, "Sec-Fetch-Site", "cross-site", "X-Original-Uri", "/login", "X-Original-Method", "GET"},
			200,
		},
	} {
		f := newFixture(t, loginRules, nil)
		if row.change != nil {
			row.change(f.config)
			f.renew(t)
		}
		f.start(t)
		if res, body := f.get(t, f.apiURL("/v1/auth"+row.query), row.header...); res.StatusCode != row.want {
			t.Errorf("%s: %d, want %d: %s", row.name, res.StatusCode, row.want, body)
		}
		_ = f.Stop(t.Context())
	}
}

// Wrong tokens are counted and logged, and never shown. A request without a token does
// not count.
func TestWrongTokensAreCounted(t *testing.T) {
	f := run(t, loginRules, nil, func(c *config.Config) {
		c.Door("admin").Address, c.Door("grpc").Address = "127.0.0.1:0", "127.0.0.1:0"
		c.Tokens, adminOf(c).Token = []config.Secret{"0123456789abcdef"}, "fedcba9876543210"
	})
	for range 3 {
		f.get(t, f.apiURL("/v1/check"), "Authorization", "Bearer not-the-token")
		f.get(t, f.adminURL("/metrics"), "Authorization", "Bearer not-the-token")
		f.get(t, f.adminURL("/metrics"))
	}
	f.get(t, f.apiURL("/v1/auth"), "X-Headgate-Token", "not-the-token")
	f.get(t, f.apiURL("/v1/auth"))
	f.get(t, f.apiURL("/v1/check"), "X-Headgate-Token", "not-the-token")
	f.get(t, f.apiURL("/v1/check"))
	f.get(t, f.apiURL("/healthz"), "Authorization", "Bearer not-the-token") // does not check tokens
	limiter := headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC)))
	for _, pair := range [][]string{
		nil, {"authorization", "Bearer not-the-token"}, {"x-headgate-token", "not-the-token"}, {"authorization", "Bearer 0123456789abcdef"},
	} {
		_, err := limiter.Check(metadata.AppendToOutgoingContext(t.Context(), pair...), &headgatev1.CheckRequest{Domain: "api"})
		if wrong := len(pair) == 0 || strings.Contains(pair[1], "not-"); wrong != (grpcstatus.Code(err) == codes.Unauthenticated) {
			t.Errorf("%q: %v", pair, err)
		}
	}
	_, text := f.get(t, f.adminURL("/metrics"), "Authorization", "Bearer fedcba9876543210")
	for _, line := range []string{`headgate_auth_failures_total{door="api"} 5`, `headgate_auth_failures_total{door="grpc"} 2`, `headgate_auth_failures_total{door="admin"} 3`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	log := f.journal.text.String()
	if n := strings.Count(log, "wrong token or password"); n != 3 || strings.Contains(log, "not-the-token") {
		t.Errorf("%d lines:\n%s", n, log)
	}
}
