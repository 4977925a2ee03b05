package rulefiles_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

const logins = `
domain: site
limits:
  - {name: failed, match: {path: /login}, rate: 5/day, algorithm: fixed_window, charge_on: {status: [401, 4xx], headers: {X-Login: failed}}}
  - {name: cancel, match: {path: /cancel}, rate: 5/day, algorithm: fixed_window, charge_on: {status: 401, on_abort: cancel}}
  - {name: grpc, match: {path: /grpc}, rate: 5/day, algorithm: fixed_window, charge_on: {grpc: [UNAUTHENTICATED]}}
  - {name: all, match: {path: "/**"}, rate: 1000/day, algorithm: fixed_window}
`

// Rules with charge_on count the answer of the handler, and its header says what is left
// after it. Other rules count every request.
func TestRequestsCountByTheirAnswer(t *testing.T) {
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	grpc := func(field, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+proto")
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "message")
			if code != "" {
				w.Header().Set(field, code)
			}
		}
	}
	gone := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(leaving{}).(context.CancelFunc)() //nolint:errcheck // the test put it there
			h(w, r)
		}
	}
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, row := range map[string]struct {
		path   string
		answer http.HandlerFunc
		header string // what is left by the header
		left   int64
	}{
		"nothing":  {"/login", func(http.ResponseWriter, *http.Request) {}, "5", 5},
		"right":    {"/login", handler, "5", 5},
		"wrong":    {"/login", status(401), "4", 4},
		"a class":  {"/login", status(418), "4", 4},
		"an error": {"/login", status(500), "5", 5},
		"a field":  {"/login", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Login", "failed") }, "4", 4},
		"after 1xx": {"/login", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		}, "4", 4},
		"a panic":                {"/login", broken, "4", 4},
		"a panic, cancelled":     {"/cancel", broken, "4", 5},
		"gone, right":            {"/login", gone(handler), "4", 4},
		"gone, right, cancelled": {"/cancel", gone(handler), "4", 5},
		"gRPC, right":            {"/grpc", grpc("Grpc-Status", "0"), "4", 5},
		"gRPC, wrong":            {"/grpc", grpc("Grpc-Status", "16"), "4", 4},
		"gRPC, by prefix":        {"/grpc", grpc(http.TrailerPrefix+"Grpc-Status", "0"), "4", 5},
		"gRPC, wrong by prefix":  {"/grpc", grpc(http.TrailerPrefix+"Grpc-Status", "16"), "4", 4},
		"gRPC, no code":          {"/grpc", grpc("", ""), "4", 4},
		"gRPC, no gRPC answer":   {"/grpc", status(503), "5", 5},
		"gRPC, only a header": {"/grpc", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "7")
		}, "5", 5},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, _ := open(t, memory.New(), logins)
			h := r.Middleware(row.answer)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			rec := httptest.NewRecorder()
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, row.path, nil).WithContext(context.WithValue(ctx, leaving{}, leave)))
			}()
			if got := rec.Result().Header.Get("X-Ratelimit-Remaining"); got != row.header {
				t.Errorf("%s left by the header, want %s", got, row.header)
			}
			v, err := r.DecideAttributes(t.Context(), map[string]string{"path": row.path}, 1) // charges one
			if err != nil || v.Decision.Remaining != row.left-1 {
				t.Errorf("%d left, want %d: %v", v.Decision.Remaining+1, row.left, err)
			}
			v, err = r.DecideAttributes(t.Context(), map[string]string{"path": "/other"}, 1)
			if err != nil || v.Rule != "all" || v.Decision.Remaining != 997 {
				t.Errorf("%s has %d left, want 997: %v", v.Rule, v.Decision.Remaining, err)
			}
		})
	}
}

// leaving is the key of the function that ends a request's context.
type leaving struct{}

// Of 100 parallel guesses exactly five reach the handler; right logins cost nothing.
func TestParallelGuesses(t *testing.T) {
	r, _, _, _ := open(t, memory.New(), logins)
	var reached atomic.Int64
	h := r.Middleware(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		reached.Add(1)
		if q.URL.RawQuery != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	ask := func(password string) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/login?"+password, nil))
		return rec.Code
	}
	for i := range 20 {
		if got := ask("right"); got != http.StatusOK {
			t.Errorf("right login %d: %d", i, got)
		}
	}
	reached.Store(0)
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[int]int{}
	for range 100 {
		wg.Go(func() {
			status := ask("wrong")
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	wg.Wait()
	if got := fmt.Sprint(count); got != "map[401:5 429:95]" || reached.Load() != 5 {
		t.Errorf("%s, %d reached the handler", got, reached.Load())
	}
}
