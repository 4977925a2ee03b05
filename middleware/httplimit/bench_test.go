package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// discard is an http.ResponseWriter that keeps only the header.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func BenchmarkMiddleware(b *testing.B) {
	for name, limit := range map[string]headgate.Limit{
		"admits":  headgate.PerSecond(store.MaxLimit),
		"refuses": headgate.PerHour(0),
	} {
		b.Run(name, func(b *testing.B) {
			passed := 0
			h := httplimit.New(headgate.New(memory.New()), limit)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			w := discard{http.Header{}}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
				n++
			}
			if want := map[string]int{"admits": n}[name]; passed != want {
				b.Fatalf("%d of %d passed, want %d", passed, n, want)
			}
		})
	}
}
