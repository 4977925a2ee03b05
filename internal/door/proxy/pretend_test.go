package proxy_test

import (
	"bufio"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// seen is what a client sees of an answer.
type seen struct {
	status int
	body   string
	header http.Header // without counts and times
}

// asks sends requests of user over one connection, and fails if that does not stay open.
func asks(t *testing.T, address, user, method string, size, times int) (last seen) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	from := bufio.NewReader(conn)
	for i := range times {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/items", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", user)
		r.Header.Set("Origin", "https://app.example")
		if err := r.Write(conn); err != nil {
			t.Fatalf("%s %s, request %d: %v", user, method, i, err)
		}
		res, err := http.ReadResponse(from, r)
		if err != nil {
			t.Fatalf("%s %s, request %d: %v", user, method, i, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.Close {
			t.Fatalf("%s %s, request %d: %v, the connection closes: %v", user, method, i, err, res.Close)
		}
		res.Header.Del("Date")
		last = seen{res.StatusCode, string(body), res.Header}
	}
	return last
}

// The answers to a banned client do not differ from those to another client: for HEAD,
// for OPTIONS, for large bodies, in the upstream's fields, and in what remains of the
// visible limits.
func TestShadowBanCannotBeTold(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h.Set("X-Powered-By", "Express")
		h.Set("Vary", "Origin")
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("X-Account", r.Header.Get("X-User")) // for one client only
		if r.Method == http.MethodOptions {
			h.Set("Allow", "GET,HEAD,POST")
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "GET,HEAD,POST")
			return
		}
		h.Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[]}`)
	}))
	defer upstream.Close()
	const secretly = `
domain: api
limits:
  - name: secret
    key: ["header:X-User"]
    rate: 8/hour
    algorithm: fixed_window
    on_limit: {action: shadow_ban, body: '{"items":[]}', content_type: application/json}
  - {name: user, key: ["header:X-User"], rate: 100/hour, algorithm: fixed_window}
`
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, secretly, memory.New(), nil, func(o *proxy.Options) {
		o.Upstream, o.Transport = to, http.DefaultTransport
	})
	server := httptest.NewServer(p)
	defer server.Close()
	address := server.Listener.Addr().String()
	rows := []struct {
		method string
		size   int
	}{{"GET", 0}, {"HEAD", 0}, {"OPTIONS", 0}, {"POST", 3 << 20}}

	asks(t, address, "mallory", "GET", 0, 8) // all that the rule allows
	for i, row := range rows {
		// Both send as many before, so that the same is left.
		free := "user " + row.method
		real := asks(t, address, free, row.method, row.size, 8)
		fake := asks(t, address, "mallory", row.method, row.size, 8)
		if real.header.Get("X-Account") != free || fake.header.Get("X-Account") != "" {
			t.Errorf("%s: what is one client's own was told to another: %q", row.method, fake.header.Get("X-Account"))
		}
		real.header.Del("X-Account")
		// The window is the same, but the time in it is not.
		for _, h := range []http.Header{real.header, fake.header} {
			for _, name := range []string{"Ratelimit", "X-Ratelimit-Reset"} {
				h.Del(name)
			}
		}
		if left, want := fake.header.Get("X-Ratelimit-Remaining"), 100-8*(i+2); left != strconv.Itoa(want) {
			t.Errorf("%s: %s left to the banned client, want %d", row.method, left, want)
		}
		real.header.Del("X-Ratelimit-Remaining")
		fake.header.Del("X-Ratelimit-Remaining")
		if real.status != fake.status || real.body != fake.body || !equalHeaders(real.header, fake.header) {
			t.Errorf("%s:\nreal %d %q %v\nfake %d %q %v", row.method, real.status, real.body, real.header, fake.status, fake.body, fake.header)
		}
	}
}

// A method that the upstream has not answered yet is answered like others.
func TestShadowBanOfAnotherMethod(t *testing.T) {
	const secretly = "domain: api\nlimits:\n  - {name: secret, rate: 3/hour, algorithm: fixed_window, on_limit: shadow_ban}\n"
	p := newProxy(t, secretly, memory.New(), func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.Header = http.Header{"X-Powered-By": {"Express"}}
		return res, err
	})
	for i, method := range []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS", "GET"} {
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, request(t.Context(), method, "/x")); w.Header().Get("X-Powered-By") != "Express" || w.Code != http.StatusOK {
			t.Errorf("request %d, %s: %d %v", i, method, w.Code, w.Header())
		}
	}
}

func equalHeaders(a, b http.Header) bool {
	return maps.EqualFunc(a, b, func(x, y []string) bool { return slices.Equal(x, y) })
}

// Without its own latency a ban takes as long as the requests that the rule allows, by
// method; a large body does not add to it.
func TestShadowBanTakesItsTime(t *testing.T) {
	const secretly = `
domain: api
limits:
  - {name: secret, key: ["header:X-User"], rate: 30/hour, algorithm: fixed_window, on_limit: shadow_ban}
`
	synctest.Test(t, func(t *testing.T) {
		upstream := func(r *http.Request) (*http.Response, error) {
			took := 40*time.Millisecond + rand.N(20*time.Millisecond)
			if r.Method == http.MethodPost {
				took += 300 * time.Millisecond
			}
			time.Sleep(took)
			return ok(r)
		}
		p := newProxy(t, secretly, memory.New(memory.WithClock(time.Now)), upstream)
		serve := func(method string) time.Duration {
			begin := time.Now()
			p.ServeHTTP(httptest.NewRecorder(), request(t.Context(), method, "/", "X-User", "mallory"))
			return time.Since(begin)
		}
		for range 15 {
			serve("GET")
			serve("POST")
		}
		for range 100 {
			if took := serve("GET"); took < 40*time.Millisecond || took > 60*time.Millisecond {
				t.Errorf("GET took %s, want 40ms to 60ms", took)
			}
			if took := serve("POST"); took < 340*time.Millisecond || took > 360*time.Millisecond {
				t.Errorf("POST took %s, want 340ms to 360ms", took)
			}
			if took := serve("DELETE"); took < 40*time.Millisecond || took > 60*time.Millisecond {
				t.Errorf("DELETE, of which nothing is known, took %s, want 40ms to 60ms as GET", took)
			}
		}
	})
}
