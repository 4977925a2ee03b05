package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestLimitsCountApart: different limits of one limiter never share a count.
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
		{"the same limit again", handler(headgate.PerMinute(2)), "0"},
		{"of another name", handler(headgate.PerMinute(2), httplimit.Name("register")), "1"},
		{"of that name, with other numbers", handler(headgate.PerMinute(5), httplimit.Name("register")), "3"},
		{"of that name, given to the limit", handler(headgate.PerMinute(5).Named("register")), "2"},
		{"twice in one, by different things", handler(headgate.PerHour(3), httplimit.By(func(*http.Request) (string, bool) { return "192.0.2.1", true }), httplimit.Also(headgate.PerHour(3), httplimit.ByIP())), "2"},
	} {
		if got := ask(step.h).Header().Get("X-RateLimit-Remaining"); got != step.want {
			t.Errorf("%s: %s left, want %s", step.name, got, step.want)
		}
	}
}

// TestHangingUpIsNotRefunded: what a handler answers because its client has gone
// gives nothing back, else to hang up would be cheaper than to stay.
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
			for range 2 { // one that stays gets it back
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
