package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

func Example() {
	limiter := headgate.New(memory.New())
	perKey := httplimit.New(limiter, headgate.PerMinute(2), httplimit.ByHeader("X-Api-Key"), httplimit.Name("per-key"))
	hello := perKey(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))

	server := httptest.NewServer(hello)
	defer server.Close()
	for range 3 {
		res, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("RateLimit-Policy"), "left:", res.Header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 "per-key";q=2;w=60 left: 1
	// 200 "per-key";q=2;w=60 left: 0
	// 429 "per-key";q=2;w=60 left: 0
}

// A thousand requests a day and ten a second, for each API key or, without one, each
// address. A request that one limit refuses is not charged to the other.
func ExampleAlso() {
	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerSecond(10), httplimit.Name("second"),
		httplimit.FirstOf(httplimit.ByHeader("X-Api-Key"), httplimit.ByIP()),
		httplimit.Also(headgate.PerDay(1000), httplimit.Name("day")),
	)
	rec := httptest.NewRecorder()
	limit(http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(rec.Header().Get("RateLimit"))
	// Output:
	// "second";r=9;t=1, "day";r=999;t=86314
}

// From 80 % of the limit on, the handler answers more cheaply; above it, requests are refused.
func ExampleSoft() {
	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerMinute(5), httplimit.Name("searches"), httplimit.SoftAt(0.8))
	search := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if marks := httplimit.Soft(r.Context()); len(marks) > 0 {
			fmt.Fprintln(w, "ten results, because of", marks)
			return
		}
		fmt.Fprintln(w, "a hundred results")
	}))
	for range 6 {
		rec := httptest.NewRecorder()
		search.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		text, _, _ := strings.Cut(rec.Body.String(), "\n")
		if rec.Code != http.StatusOK {
			text = "refused"
		}
		fmt.Println(rec.Code, text)
	}
	// Output:
	// 200 a hundred results
	// 200 a hundred results
	// 200 a hundred results
	// 200 a hundred results
	// 200 ten results, because of [searches]
	// 429 refused
}

// Of ten requests a minute, two are kept for customers who pay.
func ExampleHeadroom() {
	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerMinute(10), httplimit.Name("fleet"),
		httplimit.By(func(*http.Request) (string, bool) { return "all", true }),
		httplimit.Headroom(func(r *http.Request) float64 {
			if r.Context().Value(plan{}) == "paid" {
				return 0
			}
			return 0.2
		}))
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, of := range []string{"free", "paid"} {
		passed := 0
		for range 9 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), plan{}, of)))
			if rec.Code == http.StatusOK {
				passed++
			}
		}
		fmt.Println(of, passed, "of 9")
	}
	// Output:
	// free 8 of 9
	// paid 2 of 9
}

// plan is the key of a customer's plan, which earlier middleware has put into the context.
type plan struct{}

// Five failed logins an hour for each user. Right ones cost nothing.
func ExampleChargeOn() {
	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerHour(5).WithAlgorithm(headgate.SlidingLog), httplimit.Name("failed-logins"),
		httplimit.ByQuery("user"),
		httplimit.ChargeOn(func(status int, _ http.Header) bool {
			return status == http.StatusUnauthorized || status == http.StatusForbidden
		}))
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"right", "wrong", "right", "wrong"} {
		rec := httptest.NewRecorder()
		login.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/login?user=ann&password="+password, nil))
		fmt.Println(rec.Code, "left:", rec.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 left: 5
	// 401 left: 4
	// 200 left: 4
	// 401 left: 3
}

// Each user has the limit of a plan; without a plan, the limit of New applies.
func ExampleLimitBy() {
	plans := map[string]headgate.Limit{ // made once
		"pro":   headgate.PerMinute(600),
		"staff": headgate.Unlimited(),
	}
	users := map[string]string{"alice": "pro", "bob": "free"} // such as from a database

	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerMinute(60), httplimit.ByHeader("X-User"), httplimit.Name("requests"),
		httplimit.LimitBy(func(r *http.Request) (headgate.Limit, bool) {
			limit, ok := plans[users[r.Header.Get("X-User")]]
			return limit, ok
		}))
	hello := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for _, user := range []string{"alice", "bob"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", user)
		rec := httptest.NewRecorder()
		hello.ServeHTTP(rec, r)
		fmt.Println(user, rec.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// alice "requests";q=600;w=60
	// bob "requests";q=60;w=60
}

// Five wrong passwords a minute: successful logins do not count.
func ExampleRefundIf() {
	limiter := headgate.New(memory.New())
	limit := httplimit.New(limiter, headgate.PerMinute(5).WithAlgorithm(headgate.FixedWindow).WithAnchor(headgate.AnchorFirstRequest),
		httplimit.RefundIf(http.StatusOK))
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	count := map[int]int{}
	for i := range 20 {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		if i < 10 {
			r.Header.Set("Password", "right")
		}
		rec := httptest.NewRecorder()
		login.ServeHTTP(rec, r)
		count[rec.Code]++
	}
	fmt.Println(count)
	// Output:
	// map[200:10 401:5 429:5]
}

func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"hourly";r=0;t=3600`) // that was the last allowed request
	}))
	defer server.Close()

	client := &http.Client{Transport: &httplimit.Transport{MaxWait: time.Second}}
	for range 2 {
		res, err := client.Get(server.URL)
		if limited, ok := errors.AsType[*headgate.LimitedError](err); ok {
			fmt.Println("not sent; try in", limited.Decision.RetryAfter.Round(time.Minute))
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.Status)
	}
	// Output:
	// 200 OK
	// not sent; try in 1h0m0s
}

// In an overload, a service answers what it can in time, and payments first.
func ExampleAdaptive() {
	overload := httplimit.Adaptive{Max: 3, Critical: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/pay") }}
	work := make(chan struct{})
	service := overload.Limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-work }))

	ask := func(path string) int {
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	var asked sync.WaitGroup
	for range 3 {
		asked.Go(func() { ask("/") })
	}
	for overload.State().InFlight < 3 {
		runtime.Gosched()
	}
	fmt.Println("/:", ask("/"))
	asked.Go(func() { fmt.Println("/pay:", ask("/pay")) })
	for overload.State().InFlight < 4 {
		runtime.Gosched()
	}
	close(work)
	asked.Wait()
	// Output:
	// /: 503
	// /pay: 200
}
