package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// A tunnel that speaks HTTP would pass any number of uncounted requests, so the
// upstream never receives a request for one.
func TestNoTunnelSpeaksHTTP(t *testing.T) {
	for _, row := range []struct{ sent, want string }{
		{"websocket", "websocket"},
		{"h2c", ""},
		{"H2C", ""},
		{"h2c, websocket", "websocket"},
		{"websocket , HTTP/2.0,TLS/1.0", "websocket"},
		{"SPDY/3.1", "SPDY/3.1"},
		{"tcp", "tcp"},
		{" ,", ""},
	} {
		var seen *http.Request
		p := newProxy(t, queueRules, memory.New(), func(r *http.Request) (*http.Response, error) {
			seen = r
			return ok(r)
		})
		r := request(t.Context(), "GET", "/x", "Connection", "Upgrade, HTTP2-Settings", "Http2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA")
		r.Header.Set("Upgrade", row.sent)
		p.ServeHTTP(httptest.NewRecorder(), r)
		connection := ""
		if row.want != "" {
			connection = "Upgrade"
		}
		if h := seen.Header; h.Get("Upgrade") != row.want || h.Get("Connection") != connection || h["Http2-Settings"] != nil {
			t.Errorf("Upgrade: %s goes on as %v", row.sent, h)
		}
	}
}

// net/http would convert a non-ASCII host to ASCII, a form that no rule has seen.
// Upstreams differ in how they read other invalid hosts and spaces after a query.
func TestHostsAndQueries(t *testing.T) {
	for _, row := range []struct {
		host, query string
		want        int
	}{
		{"", "", 200},
		{"a-b_c.example:80", "a=b%20c", 200},
		{"[fe80::1%25eth0]:80", "", 200},
		{"%61dmin.example", "", 400},
		{":a", "", 400},
		{"a:b", "", 400},
		{"a:80a", "", 400},
		{"a..b", "", 400},
		{"a.:80", "", 200},
		{"admin%2eexample", "", 400},
		{"h", strings.Repeat("a&", 9_999), 200},
		{"h", strings.Repeat("a&", 10_000), 400},
		{"[2001:db8::1]:80", "q=\xc3\xa9", 200},
		{"b\u00fccher.example", "", 400},
		{"admin.example,x", "", 400},
		{"x,admin.example", "", 400},
		{"admin.example/x", "", 400},
		{"admin.example x", "", 400},
		{"h", "user=7 ", 400},
		{"h", "user=7 HTTP/1.1", 400},
		{"h", "user=7\t", 400},
		{"h", "user=7#1", 400},
		{"h", "user=7%231", 200},
	} {
		p := newProxy(t, queueRules, memory.New(), ok)
		r := request(t.Context(), "GET", "/x")
		r.Host, r.URL.RawQuery = row.host, row.query
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != row.want {
			t.Errorf("host %q, query %q: %d, want %d", row.host, row.query, w.Code, row.want)
		}
	}
}

// In a target such as x:http://h/login rules would see no path, but the upstream would
// see the one after the colon.
func TestTargetsAreOfHTTP(t *testing.T) {
	for target, want := range map[string]int{
		"/x": 200, "http://h/x": 200, "HTTPS://h/x": 200,
		"x:http://h/login": 400, "http:http://h/login": 400, "x:login": 400, "mailto:a@b": 400, "ftp://h/x": 400, "x://h/login": 400,
	} {
		server := httptest.NewServer(newProxy(t, queueRules, memory.New(), ok))
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 "+strconv.Itoa(want)) {
			t.Errorf("%s: %.80s, want %d", target, answer, want)
		}
		_ = conn.Close()
		server.Close()
	}
}

// The upstream does not receive the fields that Connection names, so rules do not see
// them either. Neither gets more fields than all upstreams read.
func TestRulesSeeWhatTheUpstreamGets(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: key, match: {path: /key}, key: [\"header:X-Api-Key\"], rate: 1/day}\n" +
		"  - {name: host, match: {host: upstream.example}, rate: 2/day}\n"
	var seen *http.Request
	p := newProxy(t, text, memory.New(), func(r *http.Request) (*http.Response, error) {
		seen = r
		return ok(r)
	})
	ask := func(r *http.Request) int {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w.Code
	}
	for i, named := range []string{"X-Api-Key", "close, x-api-key", "keep-alive,\tX-API-KEY ,x"} {
		want := map[bool]int{true: 200, false: 429}[i == 0] // counted as a request without a key
		if code := ask(request(t.Context(), "GET", "/key", "X-Api-Key", strconv.Itoa(i), "Connection", named)); code != want {
			t.Errorf("Connection: %s: %d, want %d", named, code, want)
		}
	}
	if seen.Header.Get("X-Api-Key") != "" {
		t.Error("the upstream has the key")
	}
	for i, want := range []int{200, 200, 429} { // the Host is the upstream's own
		r := request(t.Context(), "GET", "/")
		if r.Host = ""; i == 1 {
			r.Host = "upstream.example"
		}
		if code := ask(r); code != want {
			t.Errorf("request %d without a host: %d, want %d", i, code, want)
		}
	}
	many := request(t.Context(), "GET", "/")
	many.Header["A"] = make([]string, 501)
	if code := ask(many); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("501 fields: %d", code)
	}
}

// A banned client cannot lift its ban by sending a second field that names another
// client: then the client is ambiguous, and a ban of either applies. Nor can it get
// others banned or use their budget.
func TestNobodyLiftsItsBan(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: address, key: [client_ip, path], rate: 2/day}\n"
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	clients, err := client.New(client.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	e, rule := engine.New(memory.New(), rs), rs.Rule("api", "address")
	key, err := rule.ComposeKey([]rules.KeyPart{{Value: "198.51.100.7"}, {Value: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	e.SetExceptions(engine.NewExceptions([]engine.Exception{{Scope: rule.Scope, Key: key, BannedUntil: now.Add(time.Hour).UnixMicro()}}, now.UnixMicro()))
	p := newProxy(t, text, memory.New(), ok, func(o *proxy.Options) { o.Clients, o.Engine = clients, e })
	for _, row := range []struct {
		path, plain, forwarded string
		want                   int
	}{
		{"/", "198.51.100.7", "", 429},
		{"/", "198.51.100.7", "for=x", 429},
		{"/", "198.51.100.7", "for=203.0.113.9", 429},
		{"/", "203.0.113.9", "for=198.51.100.7", 429},
		{"/", "198.51.100.7", "for=198.51.100.7", 429},
		{"/other", "198.51.100.7", "for=x", 200}, // another key, counted as unknown
		{"/", "203.0.113.9", "for=x", 200},
		{"/", "203.0.113.9", "for=x", 200},
		{"/", "203.0.113.10", "for=x", 429}, // unknown has had two
		{"/", "203.0.113.9", "", 200},
	} {
		r := request(t.Context(), "GET", row.path, "X-Forwarded-For", row.plain)
		if row.forwarded != "" {
			r.Header.Set("Forwarded", row.forwarded)
		}
		r.RemoteAddr = "10.0.0.1:1234"
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != row.want {
			t.Errorf("%s from %s, Forwarded %q: %d, want %d", row.path, row.plain, row.forwarded, w.Code, row.want)
		}
	}
}

// HAProxy passes its client's Connection on: with it a client must not be able to remove
// the fields of a trusted proxy.
func TestConnectionTakesNothingFromATrustedProxy(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: address, match: {path: /address, client_ip: [0.0.0.0/0, \"!10.0.0.0/8\"]}, key: [client_ip], rate: 1/day}\n" +
		"  - {name: free, match: {path: /plan}, key: [\"header:X-Plan\"], rate: 1/day}\n"
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	clients, err := client.New(client.Config{TrustedProxies: trusted})
	if err != nil {
		t.Fatal(err)
	}
	var seen http.Header
	p := newProxy(t, text, memory.New(), func(r *http.Request) (*http.Response, error) {
		seen = r.Header
		return ok(r)
	}, func(o *proxy.Options) { o.Clients, o.TrustedProxies = clients, trusted })
	ask := func(from, path string, header ...string) int {
		r := request(t.Context(), "GET", path, header...)
		r.RemoteAddr = from + ":1234"
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w.Code
	}
	for i, named := range []string{"", "X-Forwarded-For", "close, x-forwarded-for", "X-Plan,X-FORWARDED-FOR,Forwarded,keep-alive"} {
		want := map[bool]int{true: 200, false: 429}[i == 0]
		if code := ask("10.0.0.1", "/address", "X-Forwarded-For", "198.51.100.7", "Connection", named); code != want {
			t.Errorf("address, Connection: %s: %d, want %d", named, code, want)
		}
		if code := ask("10.0.0.1", "/plan", "X-Forwarded-For", "198.51.100.7", "X-Plan", "free", "Connection", named); code != want {
			t.Errorf("plan, Connection: %s: %d, want %d", named, code, want)
		}
	}
	ask("10.0.0.1", "/", "X-Forwarded-For", "198.51.100.7", "X-Plan", "free", "Connection", "X-Plan, X-Forwarded-For")
	if got := seen.Get("X-Forwarded-For"); got != "198.51.100.7, 10.0.0.1" || seen.Get("X-Plan") != "free" {
		t.Errorf("the upstream sees X-Forwarded-For %q, X-Plan %q", got, seen.Get("X-Plan"))
	}
	ask("192.0.2.1", "/", "X-Plan", "free", "Connection", "X-Plan")
	if _, ok := seen["X-Plan"]; ok {
		t.Error("what a stranger names goes on to the upstream")
	}
}

// Servers read the first thousand parameters, so parameters keep their order even if
// the query has some that Go cannot parse.
func TestParametersStayInOrder(t *testing.T) {
	for query, want := range map[string]string{
		"z=1&a=2": "z=1&a=2", "z=1&b;c&a=2": "z=1&a=2", "z=%zz&y=1&a=%41&;": "y=1&a=%41", ";": "", "z&&=1&%": "z&&=1",
	} {
		var seen string
		p := newProxy(t, "domain: api\nlimits: []\n", memory.New(), func(r *http.Request) (*http.Response, error) {
			seen = r.URL.RawQuery
			return ok(r)
		})
		p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/?"+query))
		if seen != want {
			t.Errorf("%q went on as %q, want %q", query, seen, want)
		}
	}
}

// HTTP/2 keeps spaces around the values of fields, which HTTP/1 removes. Those beyond
// ASCII are unclear, which is one budget more.
func TestSpacesAroundFieldsAreOneBudgetMore(t *testing.T) {
	p := newProxy(t, spellingRules, memory.New(), ok)
	for i, value := range []string{"real", "\xa0real", " real", "real\t", "real\x85", "\xe2\x80\x83real"} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), "GET", "/header", "X-Api-Key", value))
		if want := map[bool]int{true: 200, false: 429}[i < 2]; w.Code != want {
			t.Errorf("%q: %d, want %d", value, w.Code, want)
		}
	}
}

// An upstream that times out may still be working, so the slot is only free when its
// lease expires.
func TestTimeoutsFreeNoPlace(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: two, match: {path: /two}, concurrency: 2, lease: 10s}\n"
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(*http.Request) (*http.Response, error) {
			sent++
			return nil, os.ErrDeadlineExceeded
		})
		for i, want := range []int{504, 504, 429, 429, 504} {
			if i == 4 {
				time.Sleep(11 * time.Second)
			}
			w := httptest.NewRecorder()
			if p.ServeHTTP(w, request(t.Context(), "GET", "/two")); w.Code != want {
				t.Errorf("request %d: %d, want %d", i, w.Code, want)
			}
		}
		if sent != 3 {
			t.Errorf("%d were sent", sent)
		}
	})
}

// A client that disconnects in the middle of the body frees no slot: the upstream has
// started and may continue.
func TestBreakingOffTheBodyFreesNoPlace(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: two, match: {path: /two}, concurrency: 2, lease: 10s}\n"
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.AfterFunc(8*time.Second, func() { now.Add(-1) }) // it ignores the end of the request
			if r.Body != nil {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return nil, err
				}
			}
			return ok(r)
		})
		l := serveInMemory(t, p, 0)
		for range 30 {
			nc := l.dial()
			go func() {
				_, _ = io.WriteString(nc, "POST /two HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nhello")
				time.Sleep(20 * time.Millisecond)
				_ = nc.Close()
			}()
			_, _ = io.Copy(io.Discard, nc)
			time.Sleep(10 * time.Millisecond)
		}
		if most.Load() != 2 {
			t.Errorf("%d at once, want 2", most.Load())
		}
		time.Sleep(11 * time.Second)
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), "GET", "/two")); w.Code != http.StatusOK {
			t.Errorf("%d after the lease", w.Code)
		}
	})
}
