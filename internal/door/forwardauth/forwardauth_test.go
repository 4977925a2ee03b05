package forwardauth_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/forwardauth"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// proxyPeer is a trusted proxy, stranger an untrusted peer.
const (
	proxyPeer = "127.0.0.1:4711"
	stranger  = "192.0.2.66:4711"
)

// door is a door under test, with its log.
type door struct {
	*forwardauth.Handler
	log *bytes.Buffer
}

func open(t testing.TB, store store.Store, options []engine.Option, rulesText ...string) door {
	t.Helper()
	var sources []rulefile.Source
	for _, text := range rulesText {
		sources = append(sources, rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	}
	rs, diagnostics := rulefile.Parse(sources...)
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	clients, err := client.New(client.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	d := door{log: new(bytes.Buffer)}
	d.Handler = forwardauth.New(forwardauth.Options{
		Asker: admission.Asker{Engine: engine.New(store, rs, options...), Clients: clients, Clock: time.Now, Logger: slog.New(slog.NewTextHandler(d.log, nil))},
	})
	return d
}

// ask sends a request to target, such as /v1/auth?deny=403, with header lines such as
// "X-A: b".
func (d door) ask(ctx context.Context, peer, method, target string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, nil)
	r.RemoteAddr, r.Host = peer, "auth.example"
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// dialects are the three ways to describe the same request.
var dialects = map[string][]string{
	"traefik, caddy": {"X-Forwarded-Method: POST", "X-Forwarded-Uri: /a%20b/%2e/login?q=1+2&x=y", "X-Forwarded-Host: shop.example:8443", "X-Forwarded-Proto: https"},
	"nginx":          {"X-Original-Method: POST", "X-Original-URI: /a%20b//login?q=1+2&x=y", "Host: shop.example"},
	"ingress-nginx":  {"X-Original-Method: POST", "X-Original-URL: https://shop.example/a%20b/login/?q=1+2&x=y", "X-Forwarded-Host: forged.example"},
}

// However the client spells the path, the rule applies and the exclusion does not; a
// path that can be read in too many ways is an error.
func TestSpellingsOfTheOriginalPath(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, "domain: api\nlimits: [{name: none, match: {path: [/v1/**, \"!/v1/health\"]}, rate: 0/s}]\n")
	for path, want := range map[string]int{
		"/v1/health": 200, "/x": 200, "/v1/otp/1%2f..%2f..%2fhealth": 429, "/v1/otp/..%2f..%2fx": 429, "/V1/x": 429, "/v1//health": 429, "/x/..;/v1/y": 429,
		"/a/..%5c..;x%2f/%253b//%2e%2e;/b%255c..//;": 400,
	} {
		for _, field := range []string{"X-Forwarded-", "X-Original-"} {
			if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", field+"Method: GET", field+"Uri: "+path); w.Code != want {
				t.Errorf("%s of %sUri is answered %d, want %d", path, field, w.Code, want)
			}
		}
	}
}

func TestRulesSeeTheOriginalRequest(t *testing.T) {
	t.Parallel()
	const matchAll = `
domain: api
limits:
  - name: all
    match:
      method: POST
      path: /a b/login
      host: shop.example
      headers: {X-Tenant: red}
      query: {q: "1 2"}
      cookies: {session: s1}
      client_ip: 198.51.100.0/24
    rate: 0/minute
`
	d := open(t, memory.New(), nil, matchAll)
	for name, lines := range dialects {
		more := []string{"X-Forwarded-For: 6.6.6.6, 198.51.100.7", "X-Tenant: red", "Cookie: a=b; session=s1", "Forwarded: for=192.0.2.1"}
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			if w := d.ask(t.Context(), proxyPeer, method, "/v1/auth", append(more, lines...)...); w.Code != 429 {
				t.Errorf("%s by %s: %d %s", name, method, w.Code, w.Body)
			}
		}
		for i := range lines {
			for _, other := range []string{"POST -> PUT", "login -> logout", "shop -> shut", "q=1+2 -> q=12"} {
				from, to, _ := strings.Cut(other, " -> ")
				changed := append([]string{}, lines...)
				if changed[i] = strings.Replace(lines[i], from, to, 1); changed[i] == lines[i] {
					continue
				}
				if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", append(more, changed...)...); w.Code != 200 {
					t.Errorf("%s, %s: %d %s", name, changed[i], w.Code, w.Body)
				}
			}
		}
		for i := range more[:3] {
			changed := append([]string{more[i] + "9"}, more[:i]...)
			changed = append(append(changed, more[i+1:]...), lines...)
			want := 200
			if i == 0 { // 198.51.100.79 is in the network too
				want = 429
			}
			if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", changed...); w.Code != want {
				t.Errorf("%s, %s: %d %s, want %d", name, changed[0], w.Code, w.Body, want)
			}
		}
	}
}

const loginRules = `
domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 2/minute}
`

// trusted returns the header lines for a request to /login from a client at address.
func trusted(address string) []string {
	return []string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /login", "X-Forwarded-For: " + address}
}

func TestAnswers(t *testing.T) {
	synctest.Test(t, testAnswers)
}

func testAnswers(t *testing.T) {
	d := open(t, memory.New(memory.WithClock(time.Now)), nil, loginRules)
	for i, row := range []struct {
		target string
		status int
		want   map[string]string
	}{
		{"/v1/auth", 200, map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "RateLimit": `"login";r=1;t=30`}},
		{"/v1/auth?cost=2", 429, map[string]string{"X-RateLimit-Remaining": "1", "Retry-After": "30"}},
		{"/v1/auth?domain=api&cost=1", 200, map[string]string{"X-RateLimit-Remaining": "0", "Retry-After": ""}},
		{"/v1/auth", 429, map[string]string{"Retry-After": "30", "X-RateLimit-Retry-After": "30", "X-Headgate-Status": "", "Content-Type": "application/problem+json"}},
		{"/v1/auth?deny=403", 403, map[string]string{"Retry-After": "30", "X-RateLimit-Limit": "2", "X-Headgate-Status": "429"}},
	} {
		w := d.ask(t.Context(), proxyPeer, "GET", row.target, trusted("198.51.100.7")...)
		if w.Code != row.status {
			t.Errorf("%d, %s: %d %s", i, row.target, w.Code, w.Body)
		}
		for name, want := range row.want {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%d, %s: %s %q, want %q", i, row.target, name, got, want)
			}
		}
		if w.Code == 200 && w.Body.Len() > 0 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %s: %v %s", i, row.target, w.Header(), w.Body)
		}
	}
	if w := d.ask(t.Context(), proxyPeer, "HEAD", "/v1/auth", trusted("198.51.100.7")...); w.Code != 429 || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
	if d.log.Len() > 0 {
		t.Errorf("log: %s", d.log)
	}
}

// A refusal never has a status that allows the request.
func TestStatusOfTheRule(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, `
domain: api
limits:
  - {name: gone, match: {path: /gone}, rate: 0/s, on_limit: {status: 410, body: Gone., headers: {X-Reason: closed}}}
  - {name: away, match: {path: /away}, rate: 0/s, on_limit: {status: 302, headers: {Location: /slow}}}
`)
	for _, row := range []struct {
		path, target string
		status       int
		told         string
	}{
		{"/gone", "/v1/auth", 410, ""},
		{"/gone", "/v1/auth?deny=403", 403, "410"},
		{"/away", "/v1/auth", 302, ""},
	} {
		w := d.ask(t.Context(), proxyPeer, "GET", row.target, "X-Original-Method: GET", "X-Original-URI: "+row.path)
		if w.Code != row.status || w.Header().Get("X-Headgate-Status") != row.told {
			t.Errorf("%s: %d %v", row.path, w.Code, w.Header())
		}
		if row.path == "/gone" && (w.Body.String() != "Gone." || w.Header().Get("X-Reason") != "closed") {
			t.Errorf("%s: %v %s", row.path, w.Header(), w.Body)
		}
	}
}

func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		policy, target string
		status         int
		told           string
	}{{"allow", "/v1/auth", 200, ""}, {"deny", "/v1/auth", 503, ""}, {"deny", "/v1/auth?deny=403", 403, "503"}} {
		s := memory.New()
		_ = s.Close()
		d := open(t, s, nil, "domain: api\nlimits:\n  - {name: x, rate: 9/minute, on_store_error: "+row.policy+"}\n")
		w := d.ask(t.Context(), proxyPeer, "GET", row.target, trusted("198.51.100.7")...)
		if w.Code != row.status || w.Header().Get("X-Headgate-Status") != row.told {
			t.Errorf("%s, %s: %d %v, want %d", row.policy, row.target, w.Code, w.Header(), row.status)
		}
	}
}

// An untrusted peer cannot choose its identity: it is counted by its own address, and
// the log warns once that its fields were ignored.
func TestStrangersAreNotBelieved(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, "domain: api\nlimits:\n  - {name: all, key: [client_ip], rate: 2/minute}\n")
	for i, want := range []int{200, 200, 429, 429} {
		w := d.ask(t.Context(), stranger, "GET", "/v1/auth", trusted("198.51.100."+string(rune('1'+i)))...)
		if w.Code != want || want == 200 && !strings.Contains(w.Body.String(), "trusted_proxies") {
			t.Errorf("request %d: %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
	if n := strings.Count(d.log.String(), "trusted_proxies"); n != 1 {
		t.Errorf("said %d times, want once: %s", n, d.log)
	}
	// Nor does it use up another client's budget.
	if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", trusted("198.51.100.1")...); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("the client he named: %d %s", w.Code, w.Body)
	}
}

// A client behind the proxy has the identity that the proxy sends, whatever it sends
// itself.
func TestClientsAreWhoTheProxySays(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, loginRules)
	for i, want := range []int{200, 200, 429} {
		forged := "10.9.8." + string(rune('1'+i))
		lines := append(trusted(forged+", 198.51.100.7"), "Forwarded: for="+forged, "X-Real-Ip: "+forged, "X-Original-Method: GET")
		if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", lines...); w.Code != want {
			t.Errorf("request %d: %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
}

// A request that cannot be decided is never allowed, nor answered with 401 or 403, which
// nginx would treat as a plain refusal.
func TestMisuse(t *testing.T) {
	t.Parallel()
	const method, uri = "X-Forwarded-Method: GET", "X-Forwarded-Uri: /x"
	rows := []struct {
		name, target string
		lines        []string
		detail       string
	}{
		{"nothing told", "/v1/auth", nil, "the original request is missing"},
		{"empty", "/v1/auth", []string{method, "X-Forwarded-Uri: "}, "the original request is missing"},
		{"no method", "/v1/auth", []string{uri}, "X-Forwarded-Method is missing"},
		{"no method of nginx", "/v1/auth", []string{"X-Original-URI: /x", method}, "X-Original-Method is missing"},
		{"two families", "/v1/auth", []string{method, uri, "X-Original-URI: /x"}, "both X-Forwarded-Uri and X-Original-Uri"},
		{"two families of nginx", "/v1/auth", []string{"X-Original-Method: GET", "X-Original-URL: http://a/x", "X-Original-URI: /x"}, "both"},
		{"twice", "/v1/auth", []string{method, uri, uri}, "more than once"},
		{"method twice", "/v1/auth", []string{method, method, uri}, "more than once"},
		{"host twice", "/v1/auth", []string{method, uri, "X-Forwarded-Host: a", "X-Forwarded-Host: b"}, "more than once"},
		{"hosts", "/v1/auth", []string{method, uri, "X-Forwarded-Host: a, b"}, "host"},
		{"an escape in the host", "/v1/auth", []string{method, uri, "X-Forwarded-Host: %61dmin.example"}, "host"},
		{"host with a path", "/v1/auth", []string{method, uri, "X-Forwarded-Host: a/b"}, "host"},
		{"method with a space", "/v1/auth", []string{"X-Forwarded-Method: GET /", uri}, "is not an HTTP method"},
		{"long method", "/v1/auth", []string{"X-Forwarded-Method: " + strings.Repeat("A", 65), uri}, "is not an HTTP method"},
		{"absolute URI", "/v1/auth", []string{method, "X-Forwarded-Uri: http://evil.example/x"}, "start with /"},
		{"a Host that hides the path", "/v1/auth", []string{"X-Original-Method: POST", "X-Original-URL: http://shop.example:?/login"}, "? before its path"},
		{"a Host that is a query", "/v1/auth", []string{"X-Original-Method: POST", "X-Original-URL: https://?/login"}, "? before its path"},
		{"URL without scheme", "/v1/auth", []string{"X-Original-Method: GET", "X-Original-URL: //a/x"}, "http://"},
		{"more parameters than net/http reads", "/v1/auth", []string{method, "X-Forwarded-Uri: /x?user=u" + strings.Repeat("&a", 10_000)}, "more than 10000 parameters"},
		{"asterisk", "/v1/auth", []string{method, "X-Forwarded-Uri: *"}, "start with /"},
		{"space", "/v1/auth", []string{method, "X-Forwarded-Uri: /a b"}, "characters"},
		{"fragment", "/v1/auth", []string{method, "X-Forwarded-Uri: /login#x"}, "characters"},
		{"control character", "/v1/auth", []string{method, "X-Forwarded-Uri: /a\x01"}, "characters"},
		{"percent", "/v1/auth", []string{method, "X-Forwarded-Uri: /%zz"}, "percent"},
		{"a megabyte", "/v1/auth", []string{method, "X-Forwarded-Uri: /" + strings.Repeat("a", 1<<20)}, "longer than"},
		{"a megabyte of host", "/v1/auth", []string{method, uri, "X-Forwarded-Host: " + strings.Repeat("a", 1<<20)}, "host"},
		{"the client's query", "/v1/auth?cost=0", []string{method, "X-Forwarded-Uri: /x?cost=0"}, "/v1/auth?"},
		{"unknown setting", "/v1/auth?dney=403", []string{method, uri}, `"dney"`},
		{"setting twice", "/v1/auth?cost=1&cost=0", []string{method, uri}, "more than once"},
		{"deny", "/v1/auth?deny=200", []string{method, uri}, "403"},
		{"cost", "/v1/auth?cost=-1", []string{method, uri}, "cost"},
		{"huge cost", "/v1/auth?cost=9007199254740993", []string{method, uri}, "cost"},
		{"no domain", "/v1/auth?domain=", []string{method, uri}, "domain"},
		{"broken query", "/v1/auth?a=%zz", []string{method, uri}, "cannot be parsed"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, memory.New(), nil, loginRules)
			w := d.ask(t.Context(), proxyPeer, "GET", row.target, row.lines...)
			if w.Code != 400 || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), row.detail) {
				t.Errorf("%d %s, want 400 and %q", w.Code, w.Body, row.detail)
			}
			if !strings.Contains(d.log.String(), "could not be checked") {
				t.Errorf("log: %s", d.log)
			}
		})
	}
}

func TestDomains(t *testing.T) {
	t.Parallel()
	about := []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /x"}
	const a, b = "domain: a\nlimits: [{name: x, rate: 0/s}]\n", "domain: b\nlimits: [{name: x, rate: 5/s}]\n"
	refuse := []engine.Option{engine.WithUnknownDomain(engine.UnknownDomainRefuse)}
	for _, row := range []struct {
		name, target string
		rules        []string
		options      []engine.Option
		status       int
		body, logged string
	}{
		{"the only one", "/v1/auth", []string{a}, nil, 429, "", ""},
		{"one of two", "/v1/auth?domain=b", []string{a, b}, nil, 200, "", ""},
		{"none of two", "/v1/auth", []string{a, b}, nil, 400, "2 domains", "2 domains"},
		{"no rules", "/v1/auth", nil, nil, 503, "no rules are loaded", "no rules are loaded"},
		{"unknown", "/v1/auth?domain=c", []string{a}, nil, 200, "has no rules", "without rules"},
		{"unknown, refused", "/v1/auth?domain=c", []string{a}, refuse, 503, "has no rules", "without rules"},
		{"unknown, refused for nginx", "/v1/auth?domain=c&deny=403", []string{a}, refuse, 403, "has no rules", "without rules"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, memory.New(), row.options, row.rules...)
			for range 2 {
				w := d.ask(t.Context(), proxyPeer, "GET", row.target, about...)
				if w.Code != row.status || !strings.Contains(w.Body.String(), row.body) {
					t.Errorf("%d %s, want %d and %q", w.Code, w.Body, row.status, row.body)
				}
			}
			if !strings.Contains(d.log.String(), row.logged) || strings.Count(d.log.String(), "\n") != min(len(row.logged), 1) {
				t.Errorf("log: %s, want one line with %q", d.log, row.logged)
			}
		})
	}
}

// The dialect of the domain takes precedence.
func TestDialectOfTheDomain(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, "domain: api\nheaders: github\nlimits: [{name: core, rate: 5000/hour}]\n")
	w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /x")
	if w.Header().Get("X-RateLimit-Used") != "1" || w.Header().Get("RateLimit") != "" {
		t.Errorf("%v", w.Header())
	}
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(memory.WithClock(time.Now)), nil, "domain: api\nlimits:\n  - {name: queue, rate: 1/second, burst: 3, algorithm: leaky_bucket}\n")
		about := []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /x"}
		begin := time.Now()
		for i, want := range []time.Duration{0, time.Second} {
			if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", about...); w.Code != 200 || time.Since(begin) != want {
				t.Errorf("request %d: %d after %s, want 200 after %s", i, w.Code, time.Since(begin), want)
			}
		}
		// A proxy that gives up frees its place in line.
		gone, leave := context.WithCancel(t.Context())
		done := make(chan int)
		go func() { done <- d.ask(gone, proxyPeer, "GET", "/v1/auth", about...).Code }()
		synctest.Wait()
		leave()
		if code := <-done; code != 503 {
			t.Errorf("given up: %d", code)
		}
		if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth", about...); w.Code != 200 || time.Since(begin) != 2*time.Second {
			t.Errorf("next: %d after %s, want 200 after 2s", w.Code, time.Since(begin))
		}
	})
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	d := open(t, memory.New(), nil, loginRules)
	r := httptest.NewRequest(http.MethodPost, "/v1/auth", untouched{t})
	r.RemoteAddr = proxyPeer
	r.Header.Set("X-Forwarded-Method", "POST")
	r.Header.Set("X-Forwarded-Uri", "/login")
	w := httptest.NewRecorder()
	if d.ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

// FuzzTold checks that whatever a proxy passes on from its client, there is a clear
// answer, which with a limit of 0 is never permission.
func FuzzTold(f *testing.F) {
	f.Add("X-Forwarded-Uri", "/login", "POST", "shop.example", "198.51.100.7", "")
	f.Add("X-Original-Uri", "//%2e%2e/login?a=%zz", "GET", "a, b", "::1", "deny=403")
	f.Add("X-Original-Url", "https://h?x#y", "\xff", "\x00", "unknown", "domain=api&cost=0")
	f.Add("X-Forwarded-Uri", "http://evil//x/\xff\xfe%ff", "OPTIONS", "[::1]:80", ",,,", "cost=1")
	// Refused requests change nothing, so one door is enough.
	d := open(f, memory.New(), nil, "domain: api\nlimits: [{name: none, key: [client_ip, path, method, host, \"query:a\"], rate: 0/s}]\n")
	f.Fuzz(func(t *testing.T, field, uri, method, host, forwardedFor, query string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/auth", nil)
		r.RemoteAddr, r.URL.RawQuery = proxyPeer, query
		r.Header = http.Header{
			http.CanonicalHeaderKey(field): {uri}, "X-Forwarded-For": {forwardedFor}, "X-Forwarded-Host": {host},
			"X-Forwarded-Method": {method}, "X-Original-Method": {method},
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		switch w.Code {
		case 429, 400:
		case 403:
			if w.Header().Get("X-Headgate-Status") == "" {
				t.Errorf("403 without a status")
			}
		case 200:
			// A dry run of cost 0, or a domain without rules: the proxy's own settings,
			// and the second warns.
			if !strings.Contains(query, "domain") && !strings.Contains(query, "cost") {
				t.Errorf("passed: %q", []string{field, uri, method, host, forwardedFor, query})
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func BenchmarkAuth(b *testing.B) {
	d := open(b, memory.New(), nil, "domain: api\nlimits: [{name: x, key: [client_ip], rate: 1000000000000/s}]\n")
	r := httptest.NewRequest(http.MethodGet, "/v1/auth?domain=api", nil)
	r.RemoteAddr = proxyPeer
	r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/login?a=b"}, "X-Forwarded-For": {"198.51.100.7"}}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, r); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
