package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// A banned client gets what the rule says, body and latency included, and none of our
// header fields. The backend does not receive the request.
func TestShadowBanAnswersAsTheRuleSays(t *testing.T) {
	const banned = `
domain: api
limits:
  - name: scrapers
    rate: 1/minute
    on_limit:
      action: shadow_ban
      body: '{"items":[]}'
      content_type: application/json
      headers: {X-Backend: eu-1}
      latency: 120ms±30ms
  - {name: everybody, rate: 1000/minute}
`
	synctest.Test(t, func(t *testing.T) {
		reached := 0
		p := newProxy(t, banned, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			reached++
			return ok(r)
		})
		serve := func(method string, body io.Reader) (*httptest.ResponseRecorder, time.Duration) {
			begin, w := time.Now(), httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", body))
			return w, time.Since(begin)
		}
		real, _ := serve("GET", nil)
		if got := real.Header().Get("RateLimit"); strings.Contains(got, "scrapers") || !strings.Contains(got, "everybody") {
			t.Errorf("a real answer tells of the secret limit: %s", got)
		}
		for _, row := range []struct{ method, body string }{
			{"GET", `{"items":[]}`}, {"POST", `{"items":[]}`}, {"HEAD", ""}, {"OPTIONS", `{"items":[]}`},
		} {
			sent := strings.NewReader(strings.Repeat("x", 100_000))
			w, took := serve(row.method, sent)
			if w.Code != 200 || w.Body.String() != row.body || w.Header().Get("X-Backend") != "eu-1" {
				t.Errorf("%s: %d %q %v", row.method, w.Code, w.Body, w.Header())
			}
			if kind, length := w.Header().Get("Content-Type"), w.Header().Get("Content-Length"); kind != "application/json" || length != "12" {
				t.Errorf("%s: type %q, length %s", row.method, kind, length)
			}
			for _, name := range []string{"Retry-After", "X-Ratelimit-Retry-After", "Cache-Control", "X-Content-Type-Options"} {
				if got, has := w.Header()[name]; has {
					t.Errorf("%s: %s: %s betrays the ban", row.method, name, got)
				}
			}
			if strings.Contains(strings.Join(w.Header()["Ratelimit"], ""), "scrapers") {
				t.Errorf("%s: %v", row.method, w.Header())
			}
			if took < 90*time.Millisecond || took > 150*time.Millisecond {
				t.Errorf("%s took %s, want 90ms to 150ms", row.method, took)
			}
			if sent.Len() > 0 {
				t.Errorf("%s: %d bytes were not read", row.method, sent.Len())
			}
		}
		if reached != 1 {
			t.Errorf("%d requests reached the upstream, want 1", reached)
		}
	})
}

// endless is a body that never ends.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) { e.read += len(b); return len(b), nil }

func TestBannedBodiesAreReadUpToABound(t *testing.T) {
	p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 0/minute, on_limit: shadow_ban}\n", memory.New(), ok)
	body := &endless{}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", body))
	if w.Code != 200 || body.read > 65<<20 {
		t.Errorf("%d after %d bytes", w.Code, body.read)
	}
}

func TestBanOfAStoreThatCannotAnswer(t *testing.T) {
	s := memory.New()
	_ = s.Close()
	p := newProxy(t, "domain: api\nlimits:\n  - {name: secret, rate: 9/minute, on_limit: shadow_ban, on_store_error: deny}\n", s, ok)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, request(t.Context(), "GET", "/"))
	if w.Code != 503 || strings.Contains(w.Body.String(), "secret") || w.Header().Get("RateLimit-Policy") != "" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

// Two stages: some requests pass at once, the next wait, and the rest are refused.
func TestTwoStages(t *testing.T) {
	for name, limit := range map[string]string{
		"leaky bucket": "algorithm: leaky_bucket, burst: 12, delay_after: 8, on_limit: delay",
		"token bucket": "burst: 8, on_limit: {action: delay, max_wait: 800ms}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 5/second, "+limit+"}\n", memory.New(memory.WithClock(time.Now)), ok)
				begin := time.Now()
				times := make(chan time.Duration, 15)
				refused := make(chan string, 15)
				for range 15 {
					go func() {
						w := httptest.NewRecorder()
						p.ServeHTTP(w, request(t.Context(), "GET", "/"))
						if w.Code == 200 {
							times <- time.Since(begin)
						} else {
							refused <- w.Header().Get("Retry-After")
						}
					}()
				}
				synctest.Wait()
				if p.Waiting() != 4 || len(times) != 8 || len(refused) != 3 {
					t.Fatalf("%d passed, %d wait, %d were refused; want 8, 4, 3", len(times), p.Waiting(), len(refused))
				}
				for range 8 {
					<-times
				}
				for i := range 4 {
					if at, want := <-times, time.Duration(i+1)*200*time.Millisecond; at != want {
						t.Errorf("turn %d came at %s, want %s", i, at, want)
					}
				}
			})
		})
	}
}

// A request that waits for its turn holds no concurrency slot. If none is free when its
// turn comes, it is refused and has taken nothing.
func TestWhoWaitsHoldsNoPlace(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: all, concurrency: 1, lease: 1m}
  - {name: smooth, key: ["header:X-Client"], rate: 1/second, burst: 9, algorithm: leaky_bucket, on_limit: delay}
  - {name: daily, key: ["header:X-Client"], rate: 100/day}
`
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				time.Sleep(10 * time.Second)
			}
			return ok(r)
		})
		begin := time.Now()
		ask := func(path, client string) chan string {
			answered := make(chan string, 1)
			go func() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", path, "X-Client", client))
				answered <- strconv.Itoa(w.Code) + " at " + time.Since(begin).String() + " " + regexp.MustCompile(`"daily";r=\d+`).FindString(w.Header().Get("RateLimit"))
			}()
			synctest.Wait()
			return answered
		}
		want := func(answered chan string, want string) {
			t.Helper()
			if got := <-answered; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		want(ask("/", "a"), `200 at 0s "daily";r=99`)
		waits := ask("/", "a")
		want(ask("/", "b"), `200 at 0s "daily";r=99`) // the slot is free
		want(waits, `200 at 1s "daily";r=98`)
		waits = ask("/", "a")
		slow := ask("/slow", "c")
		want(waits, "429 at 2s ")
		want(slow, `200 at 11s "daily";r=99`)
		want(ask("/", "a"), `200 at 11s "daily";r=97`)
	})
}

// farAway is a store with a network round trip.
type farAway struct{ store.Store }

func (f farAway) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		defer time.Sleep(10 * time.Millisecond)
		return store.ExecuteAll(ctx, f.Store, ops, out, mode)
	})
}

// refusals counts the refusals that an engine reports.
type refusals struct{ atomic.Int64 }

func (n *refusals) Observe(_ context.Context, d *engine.Decided) {
	if !d.Verdict.Allowed {
		n.Add(1)
	}
}

// Requests that arrive together and wait for their turns take no slots from each other
// or from others, however slow the store is. One that finds no free slot when its turn
// comes is refused, and reported as refused.
func TestWhoArrivesTogetherWaits(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: all, concurrency: 3}
  - {name: smooth, key: ["header:X-Client"], rate: 2/second, burst: 20, algorithm: leaky_bucket, on_limit: delay}
`
	synctest.Test(t, func(t *testing.T) {
		rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
		if rs == nil {
			t.Fatal(diagnostics)
		}
		store, seen := farAway{memory.New(memory.WithClock(time.Now))}, new(refusals)
		p := newProxy(t, text, store, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				time.Sleep(time.Minute)
			}
			return ok(r)
		}, func(o *proxy.Options) { o.Engine = engine.New(store, rs, engine.WithObserver(seen)) })
		answers := make(chan int, 100)
		ask := func(path, client string) {
			go func() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", path, "X-Client", client))
				answers <- w.Code
			}()
		}
		for range 12 {
			ask("/", "a")
		}
		ask("/", "b")
		ask("/", "c")
		for range 14 {
			if code := <-answers; code != http.StatusOK {
				t.Errorf("answered %d", code)
			}
		}
		if n := seen.Load(); n != 0 {
			t.Errorf("%d refusals were told of", n)
		}
		for _, client := range []string{"d", "e", "f", "a", "a"} {
			ask("/slow", client) // those of a find no free slot when their turn comes
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			if code := <-answers; code != http.StatusTooManyRequests {
				t.Errorf("status %d next to three slow requests", code)
			}
		}
		if n := seen.Load(); n != 2 {
			t.Errorf("%d refusals were told of, want 2", n)
		}
		for range 3 {
			<-answers
		}
	})
}

// The waiting room is limited: a request that finds it full is told to retry, and takes
// nothing.
func TestWaitingRoomIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 1/second, burst: 9, algorithm: leaky_bucket}\n", memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) { o.MaxWaiting = 1 })
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(t.Context(), "GET", "/"))
			return w
		}
		ask()
		first := make(chan int)
		go func() { first <- ask().Code }()
		synctest.Wait()
		for range 3 {
			if w := ask(); w.Code != 503 || w.Header().Get("Retry-After") != "2" {
				t.Errorf("full: %d, Retry-After %s", w.Code, w.Header().Get("Retry-After"))
			}
		}
		if got := <-first; got != 200 {
			t.Errorf("the one that waited: %d", got)
		}
		if begin := time.Now(); ask().Code != 200 || time.Since(begin) != time.Second {
			t.Errorf("the next waited %s; the refused ones took places", time.Since(begin))
		}
	})
}

// Shadow-banned requests that wait for their answers take at most half of the room.
func TestBannedLeaveRoomToWait(t *testing.T) {
	const text = `
domain: api
limits:
  - {name: banned, match: {headers: {X-Client: bad}}, rate: 0/second, on_limit: {action: shadow_ban, latency: 20s}}
  - {name: smooth, match: {headers: {X-Client: good}}, rate: 1/second, burst: 9, algorithm: leaky_bucket, on_limit: delay}
`
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), ok, func(o *proxy.Options) { o.MaxWaiting = 4 })
		ask := func(client string) int {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(t.Context(), "GET", "/", "X-Client", client))
			return w.Code
		}
		for range 10 {
			go ask("bad")
		}
		synctest.Wait()
		ask("good")
		if got := p.Waiting(); got != 2 {
			t.Errorf("%d of the banned wait, want 2", got)
		}
		if got := ask("good"); got != 200 {
			t.Errorf("one that waits a second: %d", got)
		}
		time.Sleep(time.Minute)
		if got := p.Waiting(); got != 0 {
			t.Errorf("%d wait in the end", got)
		}
	})
}

// When a process stops, requests whose turn comes in time keep waiting; the others are
// answered at once.
func TestStopWhileRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, "domain: api\nlimits:\n  - {name: x, rate: 1/second, burst: 9, algorithm: leaky_bucket}\n", memory.New(memory.WithClock(time.Now)), ok)
		begin := time.Now()
		answers := make(chan string, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, request(t.Context(), "GET", "/"))
				answers <- strconv.Itoa(w.Code) + " after " + time.Since(begin).String()
			}()
			synctest.Wait()
		}
		<-answers
		time.Sleep(100 * time.Millisecond)
		p.Drain(time.Now().Add(2 * time.Second))
		p.Drain(time.Now())
		for _, want := range []string{"503 after 100ms", "503 after 100ms", "200 after 1s", "200 after 2s"} {
			if got := <-answers; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

// The body of a refusal is the one that the client prefers.
func TestRefusalByAccept(t *testing.T) {
	const told = `
domain: api
limits:
  - name: told
    rate: 0/minute
    match: {path: /all}
    on_limit:
      status: 503
      body:
        json: '{"error":"slow","id":"{{.RequestID}}","after":{{.RetryAfter}}}'
        html: '<p title="{{.RequestID}}">{{.Rule}}</p>'
  - name: page
    rate: 0/minute
    match: {path: /page}
    on_limit: {body: {html: <p>no</p>}}
  - name: late
    rate: 1/hour
    match: {path: /late}
    on_limit: {retry_after_jitter: 1h, body: "after {{.RetryAfter}} s"}
`
	p := newProxy(t, told, memory.New(), ok)
	ask := func(path, accept string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		header := []string{"X-Request-Id", `a"<b>`}
		if accept != "" {
			header = append(header, "Accept", accept)
		}
		p.ServeHTTP(w, request(context.Background(), "GET", path, header...))
		return w
	}
	for _, row := range []struct{ path, accept, kind, body string }{
		{"/all", "", "application/json", `{"error":"slow","id":"a\"\u003cb\u003e","after":null}`},
		{"/all", "text/html,*/*;q=0.8", "text/html; charset=utf-8", `<p title="a&#34;&lt;b&gt;">told</p>`},
		{"/all", "text/html;q=0.1, application/json", "application/json", `{"error":"slow","id":"a\"\u003cb\u003e","after":null}`},
		{"/all", "image/png", "application/json", `{"error":"slow","id":"a\"\u003cb\u003e","after":null}`},
		{"/page", "text/html", "text/html; charset=utf-8", "<p>no</p>"},
		{"/page", "*/*", "text/html; charset=utf-8", "<p>no</p>"},
		{"/page", "application/json", "application/problem+json", ""},
	} {
		w := ask(row.path, row.accept)
		if got := w.Header().Get("Content-Type"); got != row.kind || row.body != "" && w.Body.String() != row.body {
			t.Errorf("%s, %q: %s %s; want %s %s", row.path, row.accept, got, w.Body, row.kind, row.body)
		}
		if w.Header().Get("Vary") != "Accept" {
			t.Errorf("%s: Vary %q", row.path, w.Header().Get("Vary"))
		}
	}
	ask("/late", "")
	for range 20 {
		w := ask("/late", "")
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if err != nil || after < 3590 || after > 7200 || w.Body.String() != "after "+strconv.Itoa(after)+" s" {
			t.Fatalf("Retry-After %q, body %s", w.Header().Get("Retry-After"), w.Body)
		}
	}
}
