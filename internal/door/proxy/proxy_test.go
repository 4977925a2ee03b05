package proxy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// upstream is a transport that answers without sockets, so that a test can run on a
// fake clock.
type upstream func(*http.Request) (*http.Response, error)

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) { return u(r) }

// ok answers 200 with an empty body.
func ok(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

func newProxy(t testing.TB, rulesText string, store store.Store, to upstream, change ...func(*proxy.Options)) *proxy.Proxy {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(rulesText)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	options := proxy.Options{
		Asker:  admission.Asker{Engine: engine.New(store, rs), Clients: clients, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)},
		Domain: func() string { return "api" }, Upstream: &url.URL{Scheme: "http", Host: "upstream.example"}, Transport: to,
	}
	for _, f := range change {
		f(&options)
	}
	return proxy.New(options)
}

func request(ctx context.Context, method, target string, header ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

const queueRules = `
domain: api
limits:
  - {name: queue, rate: 1/second, burst: 3, algorithm: leaky_bucket}
`

func TestQueueServesOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var served []time.Duration
		p := newProxy(t, queueRules, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Since(begin))
			return ok(r)
		})
		codes := make(chan int, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", "/"))
				codes <- w.Code
			}()
		}
		count := map[int]int{}
		for range 5 {
			count[<-codes]++
		}
		if count[200] != 3 || count[429] != 2 {
			t.Errorf("answers %v, want three of 200 and two of 429", count)
		}
		for i, at := range served {
			if want := time.Duration(i) * time.Second; at != want {
				t.Errorf("request %d reached the upstream at %s, want %s", i, at, want)
			}
		}
	})
}

// The client that waits last frees its place. (One in the middle does not: the turns behind
// it were promised.)
func TestClientThatLeavesTheQueueFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := 0
		p := newProxy(t, queueRules, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			reached++
			return ok(r)
		})
		ask := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(ctx, "GET", "/"))
			return w.Code
		}
		if got := ask(t.Context()); got != 200 {
			t.Fatalf("first: %d", got)
		}
		codes := make(chan int, 2)
		var leave [2]context.CancelFunc
		for i := range leave {
			gone, cancel := context.WithCancel(t.Context())
			leave[i] = cancel
			go func() { codes <- ask(gone) }()
			synctest.Wait() // it waits for its turn
		}
		if got := ask(t.Context()); got != 429 {
			t.Fatalf("full queue: %d", got)
		}
		for _, cancel := range []context.CancelFunc{leave[1], leave[0]} {
			cancel()
			if got := <-codes; got == 200 {
				t.Error("a client that left was answered as if it had been served")
			}
		}
		if reached != 1 {
			t.Errorf("%d requests reached the upstream, want 1", reached)
		}
		begin := time.Now()
		if got := ask(t.Context()); got != 200 || time.Since(begin) != time.Second {
			t.Errorf("next: %d after %s, want 200 after 1s, the first free place", got, time.Since(begin))
		}
	})
}

func TestRulesSeeTheRequest(t *testing.T) {
	const matchAll = `
domain: api
limits:
  - name: all
    match:
      method: POST
      path: /a/*
      host: shop.example
      headers: {X-Tenant: red}
      query: {q: "1 2"}
      cookies: {session: s1}
      client_ip: 192.0.2.0/24
    key: [client_ip, host, "header:Host", "header:X-Tenant", "query:q", "cookie:session"]
    rate: 0/minute
`
	p := newProxy(t, matchAll, memory.New(), ok)
	same := []string{"X-Tenant", "red", "X-Tenant", "blue", "Cookie", "a=b; session=s1"}
	rows := []struct {
		name, method, target string
		header               []string
		status               int
	}{
		{"all of it", "POST", "http://SHOP.example:8080/a/b?q=1+2&x=y", same, 429},
		{"method", "GET", "http://shop.example/a/b?q=1+2", same, 200},
		{"path", "POST", "http://shop.example/b?q=1+2", same, 200},
		{"host", "POST", "http://shop2.example/a/b?q=1+2", same, 200},
		{"query", "POST", "http://shop.example/a/b?q=12", same, 200},
		{"header", "POST", "http://shop.example/a/b?q=1+2", []string{"Cookie", "session=s1"}, 200},
		{"cookie", "POST", "http://shop.example/a/b?q=1+2", []string{"X-Tenant", "red"}, 200},
	}
	for _, row := range rows {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), row.method, row.target, row.header...))
		if w.Code != row.status {
			t.Errorf("%s: %d, want %d", row.name, w.Code, row.status)
		}
	}
}

func TestConnectIsRefused(t *testing.T) {
	p := newProxy(t, queueRules, memory.New(), func(*http.Request) (*http.Response, error) {
		t.Error("it reached the upstream")
		return nil, io.EOF
	})
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request(t.Context(), "CONNECT", "http://elsewhere.example:443"))
	if w.Code != http.StatusNotImplemented {
		t.Errorf("%d", w.Code)
	}
}

// HTTP/2 allows any text as a method. In HTTP/1 it would become the request line.
func TestMethodsThatAreNone(t *testing.T) {
	p := newProxy(t, queueRules, memory.New(), func(*http.Request) (*http.Response, error) {
		t.Error("it reached the upstream")
		return nil, io.EOF
	})
	for _, method := range []string{"GET /admin", "GET\t", "", "G\x00T", "PRI"} {
		r := request(t.Context(), "GET", "/")
		r.Method = method
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", method, w.Code)
		}
	}
}

func TestTheRequestGoesToTheUpstreamAlone(t *testing.T) {
	var seen *http.Request
	p := newProxy(t, queueRules, memory.New(), func(r *http.Request) (*http.Response, error) {
		seen = r
		return ok(r)
	})
	w := httptest.NewRecorder()
	// The absolute form, as sent to a forward proxy, must not choose the destination.
	p.ServeHTTP(w, request(t.Context(), "GET", "http://evil.example/x%2Fy?a=1&b=%20", "Connection", "X-Hop", "X-Hop", "1"))
	if seen.URL.String() != "http://upstream.example/x%2Fy?a=1&b=%20" || seen.Host != "evil.example" {
		t.Errorf("went to %s with Host %s", seen.URL, seen.Host)
	}
	if seen.Header.Get("X-Hop") != "" {
		t.Error("a hop-by-hop header went on")
	}
}

// timeout is a transport's timeout error.
type timeout struct{}

func (timeout) Error() string   { return "timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func TestUpstreamErrors(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	rows := []struct {
		name   string
		ctx    context.Context
		err    error
		status int
	}{
		{"refused", context.Background(), io.EOF, 502},
		{"too slow", context.Background(), timeout{}, 504},
		{"client gone", gone, context.Canceled, 503},
	}
	for _, row := range rows {
		p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 9/minute}\n", memory.New(), func(*http.Request) (*http.Response, error) { return nil, row.err })
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(row.ctx, "GET", "/"))
		if w.Code != row.status || w.Header().Get("X-RateLimit-Limit") != "9" {
			t.Errorf("%s: %d %v, want %d and the limit's headers", row.name, w.Code, w.Header(), row.status)
		}
	}
}

func TestStoreFailure(t *testing.T) {
	rows := []struct {
		policy string
		status int
	}{{"allow", 200}, {"deny", 503}}
	for _, row := range rows {
		s := memory.New()
		_ = s.Close()
		p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 9/minute, on_store_error: "+row.policy+"}\n", s, ok)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, request(t.Context(), "GET", "/"))
		if w.Code != row.status {
			t.Errorf("%s: %d, want %d", row.policy, w.Code, row.status)
		}
	}
}

func TestUnknownClientsShareOneCount(t *testing.T) {
	p := newProxy(t, "domain: api\nlimits:\n  - {name: x, key: [client_ip], rate: 1/minute}\n", memory.New(), ok)
	for i, want := range []int{200, 429} {
		r := request(t.Context(), "GET", "/")
		r.RemoteAddr = strings.Repeat("@", i+1)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
}

func BenchmarkProxy(b *testing.B) {
	rows := []struct {
		name, rate string
		status     int
	}{{"allowed", "1000000000000/second", 200}, {"refused", "0/second", 429}}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) {
			p := newProxy(b, "domain: api\nlimits:\n  - {name: x, key: [client_ip], rate: "+row.rate+"}\n", memory.New(), ok)
			r := request(context.Background(), "GET", "/login")
			b.ReportAllocs()
			status := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, r)
				status = w.Code
			}
			if status != row.status {
				b.Fatalf("status %d, want %d", status, row.status)
			}
		})
	}
}
