package e2e

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/proxy"
)

const anyRules = "domain: api\nlimits:\n  - {name: any, key: [client_ip], rate: 5/hour}\n"

// wire sends text to the proxy unchanged, and returns the statuses of all answers until
// the connection closes or, after n of them if it is not to close, nothing arrives for a
// moment.
func (f *fixture) wire(t *testing.T, text string, n int, closes bool) (statuses []int, closed bool) {
	t.Helper()
	var d net.Dialer
	nc, err := d.DialContext(t.Context(), "tcp", f.Addr(doorProxy))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(nc)
	for {
		patience := 20 * time.Second
		if len(statuses) >= n && !closes { // nothing more is expected
			patience = 300 * time.Millisecond
		}
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses, !strings.Contains(err.Error(), "timeout")
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
}

// Invalid and ambiguous HTTP/1.1 requests are not forwarded.
func TestOddRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       []int
		closed     bool
		reached    int64
	}{
		{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil, true, 0},
		{"star", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", []int{400}, false, 0},
		{"options of all", strings.Repeat("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 6), []int{200, 200, 200, 200, 200, 429}, false, 0},
		{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n0\r\n\r\n", []int{200}, true, 1},
		{"a length and chunks", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{200}, true, 1},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", []int{400}, true, 0},
		{"an odd coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", []int{501}, true, 0},
		{"a space before the colon", "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n", []int{400}, true, 0},
		{"a folded field", "GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", []int{200}, false, 1},
		{"a bare CR", "GET / HTTP/1.1\r\nHost: x\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", []int{400}, true, 0},
		{"a zero in a field", "GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", []int{400}, true, 0},
		{"no host", "GET / HTTP/1.1\r\n\r\n", []int{400}, true, 0},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", []int{400}, true, 0},
		{"a chunk with a minus", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", []int{400}, true, -1},
		{"a refused request with a body", strings.Repeat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n", 6), []int{200, 200, 200, 200, 200, 429}, false, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			var reached atomic.Int64
			f := run(t, anyRules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if reached.Add(1); r.URL.Path != "/" {
					t.Errorf("%s %s reached the upstream", r.Method, r.URL)
				}
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			got, closed := f.wire(t, row.text, len(row.want), row.closed)
			if !slices.Equal(got, row.want) || closed != row.closed || row.reached >= 0 && reached.Load() != row.reached {
				t.Errorf("%v, closed %t, %d reached the upstream; want %v, %t, %d", got, closed, reached.Load(), row.want, row.closed, row.reached)
			}
		})
	}
}

// If the upstream sends no type, the proxy does not guess one.
func TestNoTypeIsInvented(t *testing.T) {
	const page = "<html><script>alert(1)</script></html>"
	f := run(t, "domain: api\nlimits:\n  - {name: any, rate: 1000/second}\n", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		switch r.URL.Path {
		case "/typed":
			w.Header().Set("Content-Type", "text/css")
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat(page, 10_000))
		case "/hinted":
			w.WriteHeader(http.StatusEarlyHints)
		case "/closing":
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = rw.WriteString("HTTP/1.0 200 OK\r\n\r\n" + page)
			_ = rw.Flush()
			_ = nc.Close()
			return
		case "/flushed":
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, page)
	}))
	for _, path := range []string{"/small", "/large", "/closing", "/flushed", "/hinted", "/typed"} {
		res, body := f.get(t, f.proxyURL(path))
		var want []string
		if path == "/typed" {
			want = []string{"text/css"}
		}
		if got := res.Header["Content-Type"]; !slices.Equal(got, want) || !strings.HasSuffix(body, page) {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// An upstream that leads back to the proxy gets one request, and the client an answer.
func TestLoopsAreFound(t *testing.T) {
	for _, row := range []struct {
		name  string
		via   string // Via of the request
		loops bool
		want  int
	}{
		{"straight on", "", false, 200},
		{"behind others", "1.1 caddy, 1.1 headgate-abc", false, 200},
		{"in a circle", "", true, 508},
		{"in a wide circle", strings.Repeat("1.1 headgate-abc, ", 15) + "1.1 headgate-xyz", false, 508},
	} {
		t.Run(row.name, func(t *testing.T) {
			var reached atomic.Int64
			var back atomic.Pointer[url.URL]
			loop := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(back.Load()) }}
			f := run(t, "domain: api\nlimits:\n  - {name: any, rate: 1000/second}\n", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if reached.Add(1); row.loops {
					loop.ServeHTTP(w, r)
				}
			}))
			back.Store(parseURL(t, f.proxyURL("")))
			res, _ := f.get(t, f.proxyURL("/"), "Via", row.via)
			if res.StatusCode != row.want || reached.Load() > 1 {
				t.Errorf("%d after %d rounds, want %d", res.StatusCode, reached.Load(), row.want)
			}
		})
	}
}

// Untrusted clients cannot send fields that only a proxy in front can know, in any
// spelling, as a header or trailer.
func TestWhatStrangersMayNotSay(t *testing.T) {
	sent := []string{
		"X-Original-Url", "/admin", "X-Rewrite-Url", "/admin", "True-Client-Ip", "6.6.6.6", "X-Client-Ip", "6.6.6.6", "Client-Ip", "6.6.6.6", "X_forwarded_for", "6.6.6.6",
		"X.original.url", "/admin",
		"X-Tenant", "red",
		"X-Forwarded-Uri", "/admin", "X-Forwarded-Method", "GET", "X-Headgate-Report", "r", "X-Headgate-Token", "t",
	}
	trusted := func(c *config.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
	for _, row := range []struct {
		name   string
		change []set
		status int
		want   []string
	}{
		{"a stranger", nil, 200, []string{"X-Tenant"}},
		{"a trusted proxy", []set{trusted}, 200, []string{"Client-Ip", "True-Client-Ip", "X-Client-Ip", "X-Forwarded-Method", "X-Forwarded-Uri", "X-Headgate-Report", "X-Headgate-Token", "X-Original-Url", "X-Rewrite-Url", "X-Tenant"}},
		{"fields of one's own", []set{func(c *config.Config) { proxyOf(c).TrustedOnly = []string{"X-Tenant"} }}, 200, []string{"Client-Ip", "True-Client-Ip", "X-Client-Ip", "X-Forwarded-Method", "X-Forwarded-Uri", "X-Headgate-Report", "X-Headgate-Token", "X-Original-Url", "X-Rewrite-Url"}},
		{"underscores allowed", []set{func(c *config.Config) { proxyOf(c).Underscores = "allow" }}, 200, []string{"X-Tenant", "X.original.url", "X_forwarded_for"}},
		{"underscores refused", []set{func(c *config.Config) { proxyOf(c).Underscores = "refuse" }}, 400, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			f := run(t, anyRules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for i := 0; i < len(sent); i += 2 {
					if r.Header.Get(sent[i]) != "" || r.Header[sent[i]] != nil {
						got = append(got, sent[i])
					}
				}
				slices.Sort(got)
			}), row.change...)
			res, _ := f.get(t, f.proxyURL("/"), sent...)
			if res.StatusCode != row.status || !slices.Equal(got, row.want) {
				t.Errorf("%d, the upstream sees %q; want %d, %q", res.StatusCode, got, row.status, row.want)
			}
		})
	}
}

// Trailers of requests are dropped: no rule sees them, and PHP's built-in server takes
// them for header fields.
func TestTrailersOfRequestsEndHere(t *testing.T) {
	trailers := make(chan http.Header, 1)
	f := run(t, anyRules, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Header.Set("Body", string(body))
		for name, values := range r.Trailer {
			r.Header["Trailing-"+name] = values
		}
		trailers <- r.Header
	}))
	f.wire(t, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Api-Key\r\n\r\n"+
		"3\r\nabc\r\n0\r\nX-Sum: 42\r\nX-Api-Key: k\r\nX-Unannounced: 1\r\n\r\n", 1, false)
	got := <-trailers
	for name := range got {
		if name == "Trailer" || strings.HasPrefix(name, "X-Sum") || strings.HasPrefix(name, "X-Api") || strings.HasPrefix(name, "Trailing-") {
			t.Errorf("the upstream sees %s: %q", name, got[name])
		}
	}
	if got.Get("Body") != "abc" {
		t.Errorf("the upstream sees the body %q", got.Get("Body"))
	}
}

// HTTP/2 without TLS, as in gRPC without TLS, in both directions, and a socket.
func TestUpstreamsByOtherWays(t *testing.T) {
	const rpc = "application/grpc"
	serve := func(t *testing.T, network, address string) net.Listener {
		t.Helper()
		var lc net.ListenConfig
		l, err := lc.Listen(context.Background(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Content-Type", rpc)
			_, _ = io.WriteString(w, r.Proto+" "+string(body))
			w.Header().Set("Grpc-Status", strconv.Itoa(len(body)))
		})}
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
		return l
	}
	h2 := new(http.Transport)
	h2.Protocols = new(http.Protocols)
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	for _, row := range []struct {
		name, network, scheme string
		client                *http.Transport
		want                  string
	}{
		{"h2c in and out", "tcp", "h2c", h2, "HTTP/2.0 ping"},
		{"h2c in", "tcp", "http", h2, "HTTP/1.1 ping"},
		{"h2c out", "tcp", "h2c", &http.Transport{}, "HTTP/2.0 ping"},
		{"a socket", "unix", "unix", &http.Transport{}, "HTTP/1.1 ping"},
	} {
		t.Run(row.name, func(t *testing.T) {
			address := "127.0.0.1:0"
			if row.network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			l := serve(t, row.network, address)
			f := run(t, anyRules, nil, func(c *config.Config) {
				proxyOf(c).Upstream = &url.URL{Scheme: row.scheme, Host: l.Addr().String()}
				if row.network == "unix" {
					proxyOf(c).Upstream = &url.URL{Scheme: row.scheme, Path: address}
				}
			})
			f.client = &http.Client{Transport: row.client}
			defer row.client.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxyURL("/"), strings.NewReader("ping"))
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if body := read(t, res); body != row.want || res.Trailer.Get("Grpc-Status") != "4" {
				t.Errorf("%q with trailer %v", body, res.Trailer)
			}
			if (row.client == h2) != (res.ProtoMajor == 2) {
				t.Errorf("answered by %s", res.Proto)
			}
		})
	}
}

// Pages of a listed origin can read refusals. The upstream decides what they may read
// of its own answers.
func TestPagesReadRefusals(t *testing.T) {
	const page, other = "https://app.example", "https://evil.example"
	cors := func(c *config.Config) { proxyOf(c).CORS = proxy.CORS{Origins: []string{page}, PassPreflights: true} }
	f := run(t, "domain: api\nlimits:\n  - {name: any, rate: 2/hour}\n", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "X-Mine")
	}), cors)
	ask := func(method, origin string) reply {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, f.proxyURL("/"), nil)
		r.RequestURI = ""
		r.Header.Set("Origin", origin)
		if method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", "POST")
		}
		res, err := f.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		read(t, res)
		return reply{res.StatusCode, res.Header}
	}
	for range 5 {
		if res := ask(http.MethodOptions, page); res.StatusCode != http.StatusOK {
			t.Errorf("a preflight: %d", res.StatusCode)
		}
	}
	for i, row := range []struct {
		method, origin, allowed string
		status                  int
		exposed                 bool
	}{
		{"GET", page, "*", 200, true},
		{"GET", other, "*", 200, false},
		{"GET", page, page, 429, true},
		{"GET", other, "", 429, false},
		{"OPTIONS", other, "", 429, false},
		{"OPTIONS", page, "*", 200, true},
	} {
		res := ask(row.method, row.origin)
		exposed := strings.Contains(strings.Join(res.Header.Values("Access-Control-Expose-Headers"), ","), "Ratelimit-Policy")
		if allowed := strings.Join(res.Header.Values("Access-Control-Allow-Origin"), "|"); res.StatusCode != row.status || allowed != row.allowed || exposed != row.exposed {
			t.Errorf("%d: %d, allowed %q, exposed %t; want %+v", i, res.StatusCode, allowed, exposed, row)
		}
	}
}
