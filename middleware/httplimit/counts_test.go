package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// Different limits of one limiter never share a count.
func TestLimitsCountApart(t *testing.T) {
	t.Parallel()
	limiter, _ := frozen()
	handler := func(limit headgate.Limit, options ...httplimit.Option) http.Handler {
		return httplimit.New(limiter, limit, options...)(http.HandlerFunc(ok))
	}
	login, api := handler(headgate.PerMinute(2)), handler(headgate.PerMinute(100))
	for _, step := range []struct {
		name string
		h    http.Handler
		want string // remaining
	}{
		{"api", api, "99"},
		{"api", api, "98"},
		{"api", api, "97"},
		{"login, after three of the api", login, "1"},
		{"the same limit of another Limiter", httplimit.New(twin(limiter), headgate.PerMinute(2))(http.HandlerFunc(ok)), "0"},
		{"of another name", handler(headgate.PerMinute(2), httplimit.Name("register")), "1"},
		{"of that name, with other numbers", handler(headgate.PerMinute(5), httplimit.Name("register")), "3"},
		{"of that name, given to the limit", handler(headgate.PerMinute(5).WithName("register")), "2"},
		{"twice in one, by different things", handler(headgate.PerHour(3), httplimit.By(func(*http.Request) (string, bool) { return "192.0.2.1", true }), httplimit.Also(headgate.PerHour(3), httplimit.ByIP())), "2"},
	} {
		if got := ask(step.h).Header().Get("X-RateLimit-Remaining"); got != step.want {
			t.Errorf("%s: %s left, want %s", step.name, got, step.want)
		}
	}
}

// passes sends n requests with a key and a plan from an address, and returns how many
// are allowed.
func passes(h http.Handler, address, key, plan string, n int) (passed int) {
	for range n {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = address + ":1"
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Plan", plan)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code == http.StatusOK {
			passed++
		}
	}
	return passed
}

// Two limits of one middleware never share a count, whatever LimitBy returns and however
// they are written.
func TestEachLimitOfARequestHasItsCount(t *testing.T) {
	t.Parallel()
	byKey, byPlan := httplimit.ByHeader("X-Api-Key"), httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
		return headgate.PerMinute(6), r.Header.Get("Plan") == "six"
	})
	for name, build := range map[string]func(*headgate.Limiter) http.Handler{
		"a plan of the first": func(l *headgate.Limiter) http.Handler {
			return httplimit.New(l, headgate.PerMinute(100), byKey, byPlan, httplimit.Also(headgate.PerMinute(6), httplimit.ByIP()))(http.HandlerFunc(ok))
		},
		"the same limit": func(l *headgate.Limiter) http.Handler {
			return httplimit.New(l, headgate.PerMinute(6), byKey, httplimit.Also(headgate.PerMinute(6), httplimit.ByIP()))(http.HandlerFunc(ok))
		},
		"the same limit in other words": func(l *headgate.Limiter) http.Handler {
			return httplimit.New(l, headgate.PerMinute(6), byKey, httplimit.Also(headgate.PerMinute(6).WithBurst(6), httplimit.ByIP()))(http.HandlerFunc(ok))
		},
	} {
		limiter, _ := frozen()
		h := build(limiter)
		if got := passes(h, "203.0.113.9", "192.0.2.7", "six", 10); got != 6 {
			t.Errorf("%s: %d of a key pass, want 6", name, got)
		}
		if got := passes(h, "192.0.2.7", "own", "", 10); got != 6 {
			t.Errorf("%s: %d of an address pass after another has sent it as its key, want 6", name, got)
		}
		limiter, _ = frozen()
		h = build(limiter)
		without, with := passes(h, "192.0.2.1", "free", "", 10), passes(h, "192.0.2.1", "pro", "six", 10)
		if without != 6 || with != 0 {
			t.Errorf("%s: %d of an address pass without a plan and then %d with one, want 6 in all", name, without, with)
		}
	}
}

// A client that hangs up before the answer gets no refund. Otherwise hanging up would
// cost less than waiting.
func TestHangingUpIsNotRefunded(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]http.HandlerFunc{
		"with nothing":    func(http.ResponseWriter, *http.Request) {},
		"with a 503":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"with a 200":      ok,
		"with a long 200": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came, left := make(chan struct{}), make(chan struct{}, 1)
			limiter := headgate.New(memory.New())
			work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					came <- struct{}{}
					<-r.Context().Done()
					answers(w, r)
				}
			})
			limited := httplimit.New(limiter, headgate.PerHour(2), httplimit.RefundIf(http.StatusOK, http.StatusServiceUnavailable))(work)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(w, r)
				if r.URL.Path == "/long" {
					left <- struct{}{}
				}
			}))
			defer server.Close()
			ctx, hangUp := context.WithCancel(t.Context())
			go func() { <-came; hangUp() }()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/long", nil)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := server.Client().Do(r); err == nil {
				_ = res.Body.Close()
				t.Fatal("answered a client that hung up")
			}
			<-left
			for range 2 { // a client that stays gets a refund
				res, err := server.Client().Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if left := res.Header.Get("X-RateLimit-Remaining"); left != "0" {
					t.Errorf("%s left while one is at work, want 0", left)
				}
			}
		})
	}
}

// cut is a store that can become unavailable.
type cut struct {
	store.Store
	down bool
}

func (c *cut) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if c.down {
			return headgate.ErrUnavailable
		}
		return store.ExecuteAll(ctx, c.Store, ops, out, mode)
	})
}

// A cost that the fallback store charged during an outage is not refunded to the store
// after it, where it would give back the cost of another request.
func TestRefundsGoWhereTheyCameFrom(t *testing.T) {
	store, status := &cut{Store: memory.New()}, http.StatusUnauthorized
	limiter := headgate.New(store, headgate.WithFallback(memory.New(), 1))
	h := httplimit.New(limiter, headgate.PerDay(2).WithAlgorithm(headgate.FixedWindow), httplimit.RefundIf(http.StatusOK))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			store.down = false // the outage ends during the request
			w.WriteHeader(status)
		}))
	ask := func() int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		return rec.Code
	}
	wrong := []int{ask(), ask(), ask()}
	store.down, status = true, http.StatusOK
	right := ask()
	status = http.StatusUnauthorized
	if after := ask(); !slices.Equal(wrong, []int{401, 401, 429}) || right != 200 || after != 429 {
		t.Errorf("answered %v, in the outage %d, then %d, want 429", wrong, right, after)
	}
}
