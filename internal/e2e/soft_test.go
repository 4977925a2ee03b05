package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// softRules: of five requests the second is marked once, the third twice, then only by fair.
const softRules = `
domain: site
limits:
  - {name: tokens, match: {path: /a/**}, key: path, rate: 4/day, algorithm: fixed_window, soft: 25%}
  - {name: fair, match: {path: /a/**}, key: path, rate: 2/day, algorithm: fixed_window, on_limit: pass}
`

// softMarks are the marks of the first four requests for a path; the fifth is refused.
func softMarks() []string { return []string{"", "tokens", "tokens, fair", "tokens, fair"} }

// What the proxy's upstream sees is never what somebody sent.
func TestUpstreamsSeeMarks(t *testing.T) {
	for _, row := range []struct {
		name   string
		change []set
	}{
		{"a stranger", nil},
		{"a trusted proxy", []set{trust("127.0.0.0/8")}},
		{"underscores allowed", []set{func(c *config.Config) { proxyOf(c).Underscores = "allow" }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			f := run(t, softRules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var all []string
				for name, values := range r.Header {
					if strings.Contains(strings.ToLower(name), "soft") {
						all = append(all, values...)
					}
				}
				got = append(got, strings.Join(all, "|"))
			}), row.change...)
			for i := range 6 {
				res, _ := f.get(t, f.proxyURL("/a/1"), "X-Headgate-Soft", "forged", "X-Headgate-Soft", "again", "X_Headgate_Soft", "forged", "x.headgate-Soft", "forged", "Connection", "X-Headgate-Soft")
				if want := map[bool]int{true: 200, false: 429}[i < 4]; res.StatusCode != want || res.Header.Get("X-Headgate-Soft") != "" {
					t.Errorf("request %d: %d, want %d; %v", i, res.StatusCode, want, res.Header)
				}
			}
			if _, _ = f.get(t, f.proxyURL("/without/rules"), "X-Headgate-Soft", "forged"); !slices.Equal(got, append(softMarks(), "")) {
				t.Errorf("the upstream saw %q", got)
			}
		})
	}
}

// The answers of /v1/check, of gRPC, of forward-auth and of Envoy's service say the same.
func TestAnswersHaveMarks(t *testing.T) {
	f := run(t, softRules, nil, trust("127.0.0.1/32"), func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	conn := dialGRPC(t, f.Addr(doorGRPC))
	check := func() string {
		body := `{"domain":"site","attributes":{"path":"/a/check"}}`
		res, err := f.client.Post(f.apiURL("/v1/check"), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			Soft []string `json:"soft"`
		}
		if err := json.Unmarshal([]byte(read(t, res)), &out); err != nil {
			t.Fatal(err)
		}
		return strings.Join(out.Soft, ", ")
	}
	grpc := func() string {
		v, err := headgatev1.NewLimiterClient(conn).Check(t.Context(), &headgatev1.CheckRequest{Domain: "site", Attributes: map[string]string{"path": "/a/grpc"}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(v.GetVerdict().GetSoft(), ", ")
	}
	auth := func() string {
		res, _ := f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/a/auth", "X-Forwarded-Method", "GET", "X-Forwarded-For", "198.51.100.7", "X-Headgate-Soft", "forged")
		return strings.Join(res.Header["X-Headgate-Soft"], "|")
	}
	mesh := func() string {
		r, err := envoy.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &envoy.RateLimitRequest{
			Domain: "site", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "path", Value: "/a/mesh"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range r.GetResponseHeadersToAdd() {
			if h.GetKey() == "X-Headgate-Soft" {
				t.Error("the client is told, too")
			}
		}
		for _, h := range r.GetRequestHeadersToAdd() {
			if h.GetKey() == "X-Headgate-Soft" {
				return h.GetValue()
			}
		}
		return ""
	}
	for name, ask := range map[string]func() string{"check": check, "grpc": grpc, "auth": auth, "envoy": mesh} {
		var got []string
		for range 6 {
			got = append(got, ask())
		}
		if want := append(softMarks(), "", ""); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Behind nginx and Caddy, with the lines of the page, the backend sees the mark, and never a
// client's.
func TestProxiesPassMarksOn(t *testing.T) {
	page := readFile(t, "../../docs/more/soft.md")
	for name, start := range map[string]func(t *testing.T, p *forwardProxy, backend *httptest.Server, lines string){
		"nginx": func(t *testing.T, p *forwardProxy, backend *httptest.Server, lines string) {
			t.Helper()
			p.startNginx(t, backend, func(text, folder string) string {
				const before = "            proxy_pass http://" // the backend
				at := strings.Index(text, before)
				return nginxHome(text[:at]+lines+text[at:], folder)
			})
		},
		"caddy": func(t *testing.T, p *forwardProxy, backend *httptest.Server, lines string) {
			t.Helper()
			lines = strings.NewReplacer("127.0.0.1:8080", p.Addr(doorAPI), "domain=api", "domain=site", "127.0.0.1:9000", backend.Listener.Addr().String()).Replace(lines)
			p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string {
				before, _, _ := strings.Cut(text, "\troute {")
				return before + lines + "}\n"
			}, program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, after, _ := strings.Cut(page, "```"+name+"\n")
			lines, _, ok := strings.Cut(after, "```")
			if !ok {
				t.Fatal("the page has no lines for it")
			}
			p, got := &forwardProxy{}, []string{}
			backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = append(got, strings.Join(r.Header["X-Headgate-Soft"], "|"))
			}))
			t.Cleanup(backend.Close)
			p.fixture = run(t, softRules, nil, func(c *config.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
			start(t, p, backend, lines)
			for range 6 {
				_, _ = p.get(t, "http://"+p.address+"/a/1?b=c", "X-Headgate-Soft", "forged")
			}
			if !slices.Equal(got, softMarks()) {
				t.Errorf("the backend saw %q", got)
			}
		})
	}
}

// Metrics, events, explanations and the list of rules show marks.
func TestMarksAreShown(t *testing.T) {
	f := run(t, softRules, http.NotFoundHandler(), withAdmin)
	e := f.stream(t, "/v1/events?outcome=marked&rule=fair")
	e.lines.Scan() // it has joined
	for range 5 {
		_, _ = f.get(t, f.proxyURL("/a/1"))
	}
	var event metrics.Event
	if err := json.Unmarshal([]byte(e.next(t, "decision")), &event); err != nil || event.Outcome != "marked" || event.Limit != 2 || event.Remaining != 0 {
		t.Errorf("%+v, %v", event, err)
	}
	for series, want := range map[string]string{
		`headgate_decisions_total{domain="site",outcome="marked",rule="tokens"}`:  "3",
		`headgate_decisions_total{domain="site",outcome="allowed",rule="tokens"}`: "1",
		`headgate_decisions_total{domain="site",outcome="refused",rule="tokens"}`: "1",
		`headgate_decisions_total{domain="site",outcome="marked",rule="fair"}`:    "2",
		`headgate_requests_total{door="proxy",outcome="marked"}`:                  "3",
	} {
		if got := f.metric(t, series); got != want {
			t.Errorf("%s %s, want %s", series, got, want)
		}
	}
	res, err := f.client.Post(f.adminURL("/v1/explain"), "application/json", strings.NewReader(`{"domain":"site","attributes":{"path":"/a/1"},"rule":"fair"}`))
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, res)
	for _, want := range []string{`"soft":"over the limit: refuses nothing"`, `"marked":true`, `"over":2`, `"used":4`} {
		if !strings.Contains(text, want) {
			t.Errorf("the explanation lacks %s: %s", want, text)
		}
	}
	if _, list := f.get(t, f.adminURL("/v1/rules")); strings.Count(list, `"soft":`) != 2 {
		t.Errorf("the list of rules: %s", fmt.Sprintf("%.2000s", list))
	}
}
