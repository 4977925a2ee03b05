package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// clock is a manual clock.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// frozen returns a Limiter with a new store, and its clock.
func frozen(options ...headgate.Option) (*headgate.Limiter, *clock) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	return headgate.New(memory.New(), append(options, headgate.WithClock(c.now))...), c
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

// ask sends a request to h, after the edits.
func ask(h http.Handler, edits ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "198.51.100.7:1234"
	for _, edit := range edits {
		edit(r)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func to(url string) func(*http.Request) {
	return func(r *http.Request) { r.URL, _ = r.URL.Parse(url) }
}

func TestMiddlewareTrace(t *testing.T) {
	t.Parallel()
	limiter, c := frozen()
	h := httplimit.New(limiter, headgate.PerMinute(4))(http.HandlerFunc(ok))
	for _, step := range []struct {
		at                                 time.Duration
		status                             int
		remaining, reset, retry, rateLimit string
	}{
		{0, 200, "3", "15", "", `"default";r=3;t=45`},
		{0, 200, "2", "30", "", `"default";r=2;t=30`},
		{0, 200, "1", "45", "", `"default";r=1;t=15`},
		{0, 200, "0", "60", "", `"default";r=0;t=15`},
		{0, 429, "0", "60", "15", `"default";r=0;t=15`},
		{14*time.Second + 999*time.Millisecond, 429, "0", "46", "1", `"default";r=0;t=1`},
		{15 * time.Second, 200, "0", "60", "", `"default";r=0;t=15`},
	} {
		c.at = time.Unix(1_700_000_000, 0).Add(step.at)
		rec := ask(h)
		got := rec.Header().Get
		if rec.Code != step.status || got("X-RateLimit-Limit") != "4" || got("X-RateLimit-Remaining") != step.remaining ||
			got("X-RateLimit-Reset") != step.reset || got("Retry-After") != step.retry ||
			got("X-RateLimit-Retry-After") != step.retry || got("RateLimit") != step.rateLimit ||
			got("RateLimit-Policy") != `"default";q=4;w=60` {
			t.Errorf("at %v: %d %v, want %+v", step.at, rec.Code, rec.Header(), step)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	proxy := netip.MustParsePrefix("10.0.0.0/8")
	key, other := with("X-Api-Key", "a"), with("X-Api-Key", "b")
	type edits = []func(*http.Request)
	tests := []struct {
		name          string
		by            httplimit.By
		first, second edits
		same          bool // whether both count together
	}{
		{"one address", httplimit.ByIP(), edits{from("192.0.2.1:1")}, edits{from("192.0.2.1:2")}, true},
		{"two addresses", httplimit.ByIP(), edits{from("192.0.2.1:1")}, edits{from("192.0.2.2:1")}, false},
		{"one /64", httplimit.ByIP(), edits{from("[2001:db8::1]:1")}, edits{from("[2001:db8::2]:1")}, true},
		{"two /64", httplimit.ByIP(), edits{from("[2001:db8::1]:1")}, edits{from("[2001:db8:0:1::1]:1")}, false},
		{"trap T32: no address shares a count", httplimit.ByIP(), edits{from("@")}, edits{from("")}, true},
		{"nobody's X-Forwarded-For", httplimit.ByIP(), edits{with("X-Forwarded-For", "1.1.1.1")}, edits{with("X-Forwarded-For", "2.2.2.2")}, true},
		{"a trusted proxy's", httplimit.ByIP(proxy), edits{from("10.0.0.1:1"), with("X-Forwarded-For", "1.1.1.1")}, edits{from("10.0.0.1:1"), with("X-Forwarded-For", "2.2.2.2")}, false},
		{"header", httplimit.ByHeader("x-api-key"), edits{key}, edits{key, from("192.0.2.1:1")}, true},
		{"two headers", httplimit.ByHeader("x-api-key"), edits{key}, edits{other}, false},
		{"trap T32: missing headers share a count", httplimit.ByHeader("x-api-key"), edits{}, edits{from("192.0.2.1:1")}, true},
		{"an empty header is missing", httplimit.ByHeader("x-api-key"), edits{with("X-Api-Key", "")}, edits{}, true},
		{"host", httplimit.ByHeader("host"), edits{}, edits{func(r *http.Request) { r.Host = "b" }}, false},
		{"query", httplimit.ByQuery("k"), edits{to("/?k=a&x=1")}, edits{to("/?x=2&k=%61")}, true},
		{"two queries", httplimit.ByQuery("k"), edits{to("/?k=a")}, edits{to("/?k=b")}, false},
		{"cookie", httplimit.ByCookie("k"), edits{with("Cookie", "a=1; k=a")}, edits{with("Cookie", "k=a")}, true},
		{"two cookies", httplimit.ByCookie("k"), edits{with("Cookie", "k=a")}, edits{with("Cookie", "k=b")}, false},
		{
			"trap T32: joined parts do not run together", httplimit.Join(httplimit.ByQuery("a"), httplimit.ByQuery("b")),
			edits{to("/?a=x_y&b=z")},
			edits{to("/?a=x&b=y_z")},
			false,
		},
		{
			"a missing part is empty", httplimit.Join(httplimit.ByQuery("a"), httplimit.ByQuery("b")),
			edits{to("/?a=x")},
			edits{to("/?b=x")},
			false,
		},
		{
			"all parts missing share a count", httplimit.Join(httplimit.ByQuery("a"), httplimit.ByQuery("b")),
			edits{},
			edits{to("/?c=1")},
			true,
		},
		{
			"a key that looks like an address", httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP()),
			edits{from("192.0.2.1:1")},
			edits{with("X-Api-Key", "192.0.2.1")},
			false,
		},
		{
			"the first choice counts", httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP()),
			edits{key},
			edits{key, from("192.0.2.1:1")},
			true,
		},
		{"no choice", httplimit.FirstOf(httplimit.ByHeader("X-Api-Key")), edits{}, edits{from("192.0.2.1:1")}, true},
		{
			"a key that is not one", func(r *http.Request) (string, bool) { return r.Method, false },
			edits{},
			edits{func(r *http.Request) { r.Method = http.MethodPost }},
			true,
		},
		{
			"one's own", func(r *http.Request) (string, bool) { return r.Method, true },
			edits{},
			edits{func(r *http.Request) { r.Method = http.MethodPost }},
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limiter, _ := frozen()
			h := httplimit.New(limiter, headgate.PerMinute(1), tt.by)(http.HandlerFunc(ok))
			if got := ask(h, tt.first...).Code; got != 200 {
				t.Fatalf("the first request: %d", got)
			}
			if got := ask(h, tt.first...).Code; got != 429 {
				t.Fatalf("the first request again: %d", got)
			}
			want := map[bool]int{true: 429, false: 200}[tt.same]
			if got := ask(h, tt.second...).Code; got != want {
				t.Errorf("the second request: %d, want %d", got, want)
			}
		})
	}
}

func TestSeveralLimitsAllOrNothing(t *testing.T) {
	t.Parallel()
	limiter, c := frozen()
	perHour := headgate.PerHour(3)
	h := httplimit.New(limiter, headgate.PerSecond(1), httplimit.ByHeader("X-Api-Key"), httplimit.Name("second"),
		httplimit.Also(perHour, httplimit.Name("hour")),
		httplimit.Also(headgate.PerDay(100), httplimit.ByIP()))(http.HandlerFunc(ok))
	key := with("X-Api-Key", "k")

	rec := ask(h, key)
	if want := `"second";r=0;t=1, "hour";r=2;t=2400, "second-3";r=99;t=85536`; rec.Header().Get("RateLimit") != want {
		t.Errorf("RateLimit: %s, want %s", rec.Header().Get("RateLimit"), want)
	}
	// The first limit refuses ten requests; the others are not charged.
	for range 10 {
		if rec = ask(h, key); rec.Code != 429 || rec.Header().Get("Retry-After") != "1" {
			t.Fatalf("%d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
		}
	}
	d, err := limiter.Caller().Do(context.Background(), store.Op{Key: "k", Scope: "hour", Rule: perHour.Rule(), Kind: store.KindPeek, Cost: 1})
	if err != nil || d.Remaining != 2 {
		t.Errorf("hour has %d left, %v, want 2", d.Remaining, err)
	}
	for i, want := range []int{200, 200, 429} {
		c.at = c.at.Add(time.Second)
		if rec = ask(h, key); rec.Code != want {
			t.Errorf("request %d: %d, want %d", i, rec.Code, want)
		}
	}
	var problem struct {
		Type     string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &problem); err != nil {
		t.Fatal(err)
	}
	if problem.Status != 429 || !strings.HasSuffix(problem.Type, "#quota-exceeded") || len(problem.Violated) != 1 || problem.Violated[0] != "hour" {
		t.Errorf("problem %+v", problem)
	}
	// The daily limit counts by address, so it includes requests with another key.
	if got := ask(h, with("X-Api-Key", "other")).Header().Get("RateLimit"); !strings.Contains(got, `"second-3";r=96`) {
		t.Errorf("RateLimit: %s, want 96 of the day left", got)
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	var failed error
	h := httplimit.New(limiter, headgate.PerMinute(10), httplimit.Cost(func(r *http.Request) int64 { return r.ContentLength }),
		httplimit.OnError(func(_ *http.Request, err error) { failed = err }))(http.HandlerFunc(ok))
	cost := func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
	for _, step := range []struct {
		cost             int64
		status           int
		remaining, retry string
	}{
		{7, 200, "3", ""},
		{4, 429, "3", "6"},
		{11, 429, "3", ""}, // never
		{0, 200, "3", ""},
		{3, 200, "0", ""},
		{-1, 503, "", "1"},
	} {
		rec := ask(h, cost(step.cost))
		got := rec.Header().Get
		if rec.Code != step.status || got("X-RateLimit-Remaining") != step.remaining || got("Retry-After") != step.retry {
			t.Errorf("cost %d: %d %v, want %+v", step.cost, rec.Code, rec.Header(), step)
		}
	}
	if !errors.Is(failed, headgate.ErrInvalidCost) {
		t.Errorf("OnError got %v, want ErrInvalidCost", failed)
	}
}

func TestRefundIf(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("password") {
		case "right":
			_, _ = io.Copy(w, strings.NewReader("welcome"))
		case "none": // writes nothing: 200
		case "crash":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			w.WriteHeader(http.StatusOK) // superfluous
		}
	})
	h := httplimit.New(limiter, headgate.PerMinute(2), httplimit.RefundIf(200))(login)
	crash := func() (code int) {
		defer func() {
			if recover() == nil {
				t.Error("the handler's panic did not come through")
			}
		}()
		return ask(h, to("/?password=crash")).Code
	}
	for range 5 {
		if rec := ask(h, to("/?password=right")); rec.Body.String() != "welcome" || rec.Header().Get("X-RateLimit-Remaining") != "1" {
			t.Fatalf("%d %s %v", rec.Code, rec.Body, rec.Header())
		}
		if rec := ask(h, to("/?password=none")); rec.Code != 200 {
			t.Fatal(rec.Code)
		}
	}
	if rec := ask(h, to("/?password=wrong")); rec.Code != 401 {
		t.Fatal(rec.Code)
	}
	crash()
	if rec := ask(h, to("/?password=right")); rec.Code != 429 {
		t.Errorf("after a wrong password and a crash: %d, want 429", rec.Code)
	}
}

func TestOnLimit(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	sorry := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := httplimit.Refused(r.Context())
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%v %v %v", ok, d.Reason, d.RetryAfter)
	})
	h := httplimit.New(limiter, headgate.PerMinute(1), httplimit.OnLimit(sorry), httplimit.IETF)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, ok := httplimit.Refused(r.Context())
			fmt.Fprint(w, ok)
		}))
	if rec := ask(h); rec.Code != 200 || rec.Body.String() != "false" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec := ask(h)
	if rec.Code != 418 || rec.Body.String() != "true limited 1m0s" || rec.Header().Get("Retry-After") != "60" ||
		rec.Header().Get("X-RateLimit-Limit") != "" || rec.Header().Get("RateLimit") != `"default";r=0;t=60` {
		t.Errorf("%d %s %v", rec.Code, rec.Body, rec.Header())
	}
}

// broken is a store that cannot answer.
type broken struct{}

func (broken) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return fmt.Errorf("%w: broken", headgate.ErrUnavailable)
	})
}

func (broken) Close() error { return nil }

func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for policy, want := range map[headgate.FailurePolicy]int{headgate.FailOpen: 200, headgate.FailClosed: 503} {
		var errs []error
		h := httplimit.New(headgate.New(broken{}, headgate.WithFailurePolicy(policy)), headgate.PerMinute(1), httplimit.RefundIf(200),
			httplimit.OnError(func(_ *http.Request, err error) { errs = append(errs, err) }))(http.HandlerFunc(ok))
		rec := ask(h)
		if rec.Code != want || rec.Header().Get("X-RateLimit-Remaining") != "" {
			t.Errorf("policy %d: %d %v, want %d", policy, rec.Code, rec.Header(), want)
		}
		// One error only: nothing was taken, so there is no refund to fail.
		if len(errs) != 1 || !errors.Is(errs[0], headgate.ErrUnavailable) {
			t.Errorf("policy %d: OnError got %v", policy, errs)
		}
	}
}

func TestZeroAndUnlimited(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	rec := ask(httplimit.New(limiter, headgate.Unlimited())(http.HandlerFunc(ok)))
	if rec.Code != 200 || rec.Header().Get("RateLimit-Policy") != "" {
		t.Errorf("unlimited: %d %v", rec.Code, rec.Header())
	}
	if rec := ask(httplimit.New(limiter, headgate.PerSecond(0), httplimit.Name("zero"))(http.HandlerFunc(ok))); rec.Code != 429 || rec.Header().Get("Retry-After") != "" {
		t.Errorf("a limit of 0: %d %v", rec.Code, rec.Header())
	}
}

func TestLeakyBucketQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.PerSecond(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(3)
		limiter := headgate.New(memory.New(), headgate.WithClock(time.Now))
		start := time.Now()
		h := httplimit.New(limiter, limit)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, time.Since(start))
		}))
		// The last of three in the queue leaves, which frees its place for another.
		answers := make([]*httptest.ResponseRecorder, 3)
		gone, leave := context.WithCancel(t.Context())
		for i := range answers {
			go func() {
				answers[i] = ask(h, func(r *http.Request) {
					if i == 2 {
						*r = *r.WithContext(gone)
					}
				})
			}()
			synctest.Wait()
		}
		if rec := ask(h); rec.Code != 429 {
			t.Errorf("a full queue: %d, want 429", rec.Code)
		}
		leave()
		synctest.Wait()
		if answers[2] == nil || answers[2].Code != 503 {
			t.Fatalf("who went away got %+v", answers[2])
		}
		if rec := ask(h); rec.Code != 200 || rec.Body.String() != "2s" {
			t.Errorf("the place of who went away: %d after %s, want 200 after 2s", rec.Code, rec.Body)
		}
		synctest.Wait()
		if got := answers[0].Body.String(); got != "0s" {
			t.Errorf("the first went ahead after %s", got)
		}
		if got := answers[1].Body.String(); got != "1s" {
			t.Errorf("the second went ahead after %s, want 1s", got)
		}
	})
}

// The writer of a real server can flush, hijack and read from files, and still can
// behind the middleware.
func TestWriterKeepsAbilities(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok {
			t.Error("no http.Flusher")
			return
		}
		flusher.Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/read", func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("no io.ReaderFrom")
		}
		w.WriteHeader(http.StatusEarlyHints) // not the answer yet
		_, _ = io.Copy(w, strings.NewReader("copied"))
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		hijacker, ok := w.(http.Hijacker)
		if !ok {
			t.Error("no http.Hijacker")
			return
		}
		conn, _, err := hijacker.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		_ = conn.Close()
	})
	server := httptest.NewServer(httplimit.New(limiter, headgate.PerMinute(100), httplimit.RefundIf(200),
		httplimit.By(func(r *http.Request) (string, bool) { return r.URL.Path, true }))(mux))
	defer server.Close()
	for path, want := range map[string]string{"/flush": "", "/read": "copied", "/hijack": "hi"} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s: %q, %v, want %q", path, body, err, want)
		}
	}
	server.Close() // waits for the handlers, and so for their refunds
	for key, want := range map[string]int64{"/flush": 100, "/read": 100, "/hijack": 99} {
		d, err := limiter.Caller().Do(context.Background(), store.Op{Key: key, Rule: headgate.PerMinute(100).Rule(), Kind: store.KindPeek, Cost: 1})
		if err != nil || d.Remaining != want {
			t.Errorf("%s: %d left, %v, want %d", key, d.Remaining, err, want)
		}
	}
}

// Waiting for a turn uses the limiter's clock, not real time.
func TestTurnGoesByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var passed atomic.Int64
		limiter := headgate.New(memory.New(), headgate.WithClock(func() time.Time { return time.Unix(1_700_000_000, passed.Load()) }))
		h := httplimit.New(limiter, headgate.PerHour(1).WithAlgorithm(headgate.LeakyBucket).WithBurst(3))(http.HandlerFunc(ok))
		if rec := ask(h); rec.Code != 200 {
			t.Fatalf("the first: %d", rec.Code)
		}
		answered := make(chan int)
		go func() { answered <- ask(h).Code }()
		synctest.Wait()
		begin := time.Now()
		passed.Store(int64(time.Hour))
		if code := <-answered; code != 200 || time.Since(begin) > time.Second {
			t.Errorf("%d after %s", code, time.Since(begin))
		}
	})
}
