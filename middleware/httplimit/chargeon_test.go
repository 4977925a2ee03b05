package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// failed counts failed logins.
func failed() httplimit.Option {
	return httplimit.ChargeOn(func(status int, header http.Header) bool {
		return status == http.StatusUnauthorized || header.Get("X-Login") == "failed"
	})
}

// perDay is a window that no test outlasts.
func perDay(n int64) headgate.Limit { return headgate.PerDay(n).WithAlgorithm(headgate.FixedWindow) }

// A request counts by its answer, and the answer's header says what is left after it.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		header string // what is left, by the header
		left   int64
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, "5", 5},
		"right":   {ok, "5", 5},
		"right, from a file": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("file"))
		}, "5", 5},
		"wrong":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "4", 4},
		"error":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) }, "5", 5},
		"by header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Login", "failed") }, "4", 4},
		"by header, flushed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Login", "failed")
			_ = http.NewResponseController(w).Flush()
		}, "4", 4},
		"flushed": {
			func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, "5", 5,
		},
		"after 1xx": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		}, "4", 4},
		"trailer": {func(w http.ResponseWriter, r *http.Request) {
			ok(w, r)
			w.Header().Set(http.TrailerPrefix+"X-Login", "failed")
			w.Header().Set("X-Login", "failed")
		}, "5", 5},
		"panic": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", 4},
		"panic after the header": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			panic(http.ErrAbortHandler)
		}, "", 5},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}, "", 4},
		"upgraded": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "upgrade")
			w.Header().Set("Upgrade", "test")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_ = conn.Close()
		}, "5", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter, _ := frozen()
			limit := perDay(5).WithName("failed")
			ended := make(chan struct{}, 1)
			limited := httplimit.New(limiter, limit, failed(), httplimit.By(func(*http.Request) (string, bool) { return "ann", true }))(row.answer)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { ended <- struct{}{} }()
				limited.ServeHTTP(w, r)
			}))
			defer server.Close()
			header := ""
			if res, err := server.Client().Get(server.URL); err == nil {
				header = res.Header.Get("X-Ratelimit-Remaining")
				_, _ = io.Copy(io.Discard, res.Body) // closed earlier, it would be hanging up
				_ = res.Body.Close()
			}
			<-ended
			d, err := limiter.Peek(t.Context(), "ann", limit)
			if err != nil || d.Remaining != row.left || header != row.header {
				t.Errorf("%d left, %q by the header, want %d and %q: %v", d.Remaining, header, row.left, row.header, err)
			}
		})
	}
}

// What a handler writes after it has returned changes nothing.
func TestWritingAfterTheReturn(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	var kept http.ResponseWriter
	h := httplimit.New(limiter, perDay(5), failed())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { kept = w }))
	ask(h)
	kept.WriteHeader(http.StatusUnauthorized)
	if left := ask(h).Header().Get("X-Ratelimit-Remaining"); left != "5" {
		t.Errorf("%s left", left)
	}
}

// Hanging up before the answer counts, whatever the answer would be. Otherwise guessing
// would be free for a client that does not wait.
func TestHangingUpCounts(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 401, 500} {
		limiter, _ := frozen()
		ctx, hangUp := context.WithCancel(t.Context())
		h := httplimit.New(limiter, perDay(5), failed())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context() == ctx {
				hangUp()
				w.WriteHeader(status)
			}
		}))
		ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
		if left := ask(h).Header().Get("X-Ratelimit-Remaining"); left != "4" {
			t.Errorf("%d: %s left", status, left)
		}
	}
}

// stalled is a store whose refunds do not end by themselves.
type stalled struct{ store.Store }

func (s stalled) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if ops[0].Kind == store.KindRefund {
			<-ctx.Done()
			return errors.Join(headgate.ErrUnavailable, ctx.Err())
		}
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// A store that does not answer delays the answer by a second at most, and the request
// counts.
func TestRefundsDoNotWaitForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		began := time.Now()
		h := httplimit.New(headgate.New(stalled{memory.New()}), perDay(5), failed(),
			httplimit.OnError(func(_ *http.Request, err error) { errs = append(errs, err) }))(http.HandlerFunc(ok))
		rec := ask(h)
		if took := time.Since(began); took != time.Second || rec.Code != 200 || len(errs) != 1 || !errors.Is(errs[0], headgate.ErrUnavailable) {
			t.Errorf("answered %d after %s, errors %v", rec.Code, took, errs)
		}
		if left := rec.Header().Get("X-Ratelimit-Remaining"); left != "4" {
			t.Errorf("%s left", left)
		}
	})
}

// All limits of the middleware count by the answer. A slot of a Concurrent is held until
// the end.
func TestSeveralLimitsByTheAnswer(t *testing.T) {
	t.Parallel()
	limiter, clock := frozen()
	h := httplimit.New(limiter, perDay(5), failed(), httplimit.Cost(func(*http.Request) int64 { return 2 }),
		httplimit.Also(headgate.PerSecond(10).WithBurst(10).WithAlgorithm(headgate.TokenBucket)), httplimit.Also(headgate.Concurrent(3)))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clock.at = clock.at.Add(100 * time.Millisecond)
			w.WriteHeader(map[string]int{"/right": 200, "/wrong": 401}[r.URL.Path])
		}))
	at := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	for i, want := range []struct{ path, day, second string }{
		{"/right", `"default";r=5;`, `"default-2";r=10;`},
		{"/wrong", `"default";r=3;`, `"default-2";r=8;`},
		{"/right", `"default";r=3;`, `"default-2";r=10;`}, // the two of before are back
	} {
		rec := ask(h, at(want.path))
		if got := rec.Header().Get("RateLimit"); !strings.Contains(got, want.day) || !strings.Contains(got, want.second) || !strings.Contains(got, `"default-3";r=1`) {
			t.Errorf("request %d: %s, want %s and %s", i, got, want.day, want.second)
		}
	}
}

// guesses sends n requests at once to the handlers in turn and counts the answers.
func guesses(handlers []http.Handler, password string, n int) map[int]int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[int]int{}
	for i := range n {
		wg.Go(func() {
			rec := ask(handlers[i%len(handlers)], func(r *http.Request) { r.URL.RawQuery = password })
			mu.Lock()
			defer mu.Unlock()
			count[rec.Code]++
		})
	}
	wg.Wait()
	return count
}

// Of 100 parallel guesses exactly five pass, and right logins are all given back: with
// memory, with Redis, and with two processes on one Redis.
func TestParallelGuesses(t *testing.T) {
	for name, processes := range map[string]int{"memory": 1, "redis": 1, "two processes on one redis": 2} {
		t.Run(name, func(t *testing.T) {
			var wrong, right atomic.Int64
			work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "right" {
					right.Add(1)
					return
				}
				wrong.Add(1)
				w.WriteHeader(http.StatusUnauthorized)
			})
			open := func() store.Store { return memory.New() }
			if name != "memory" {
				server := redistest.Standalone(t)
				open = func() store.Store {
					store, err := redis.New(t.Context(), redis.Options{Addresses: []string{server.Addr}, Timeout: 20 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = store.Close() })
					return store
				}
			}
			var handlers []http.Handler
			for range processes {
				limiter := headgate.New(open())
				for range 200 { // uses one of a few connections, at random: refunds are skipped if one is opened since the take
					if _, err := limiter.Peek(t.Context(), "warm", headgate.PerHour(1)); err != nil {
						t.Fatal(err)
					}
				}
				handlers = append(handlers, httplimit.New(limiter, headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), failed())(work))
			}
			if got := guesses(handlers, "right", 100); got[200] < 5 || got[200]+got[429] != 100 || int64(got[200]) != right.Load() {
				t.Errorf("100 right logins: %v", got)
			}
			for i := range 20 { // all of them were given back
				if got := guesses(handlers[i%processes:], "right", 1); got[200] != 1 {
					t.Errorf("then, right login %d: %v", i, got)
				}
			}
			if got := guesses(handlers, "wrong", 100); got[401] != 5 || got[429] != 95 || wrong.Load() != 5 {
				t.Errorf("100 guesses: %v, %d of them reached the handler", got, wrong.Load())
			}
		})
	}
}

// The features of the writer stay.
func TestChargeOnKeepsTheWriter(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	h := httplimit.New(limiter, perDay(5), failed())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, reads := w.(io.ReaderFrom)
		if !flushes || !hijacks || !reads {
			t.Errorf("flush %t, hijack %t, read from %t", flushes, hijacks, reads)
		}
		var conn net.Conn
		var rw *bufio.ReadWriter
		conn, rw, err := http.NewResponseController(w).Hijack()
		if conn != nil || rw != nil || !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("a recorder is hijacked: %v", err)
		}
		w.WriteHeader(http.StatusUnauthorized) // a failed Hijack is no answer
	}))
	if left := ask(h).Header().Get("X-Ratelimit-Remaining"); left != "4" {
		t.Errorf("%s left", left)
	}
}
