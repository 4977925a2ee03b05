package rulefiles_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

const costs = `
domain: site
limits:
  - {name: tokens, rate: 100/day, algorithm: fixed_window, cost: {estimate: 10, from_response: X-Cost, on_error: cancel}}
`

// An answer is charged what it says that it cost, in its header or its trailer, as at the
// server's proxy.
func TestCostAfter(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "3") },
		"more":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "40") },
		"trailer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("x"))
			w.Header().Set(http.TrailerPrefix+"X-Cost", "4")
		},
		"nothing said": handler,
		"an error":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"a panic":      func(http.ResponseWriter, *http.Request) { panic("the handler fails") },
	}
	for name, left := range map[string]int64{"header": 97, "more": 60, "trailer": 96, "nothing said": 90, "an error": 100, "a panic": 90} {
		t.Run(name, func(t *testing.T) {
			r, _, _, _ := open(t, memory.New(), costs)
			func() {
				defer func() { _ = recover() }()
				r.Middleware(answers[name]).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			}()
			v, err := r.DecideAttributes(context.Background(), nil, 0)
			if err != nil || v.Decision.Remaining != left {
				t.Errorf("%d left, want %d: %v", v.Decision.Remaining, left, err)
			}
		})
	}
}
