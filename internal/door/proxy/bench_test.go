package proxy_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// sink is a ResponseWriter that does no work, so benchmarks only measure the proxy.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

const refusedRules = "domain: api\nlimits: [{name: all, rate: 1/day}]\n"

func BenchmarkRefused(b *testing.B) {
	p := newProxy(b, refusedRules, memory.New(), ok)
	r := request(b.Context(), http.MethodGet, "/", "X-Api-Key", "key")
	w := &sink{header: http.Header{}}
	p.ServeHTTP(w, r) // the only one that is allowed
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		p.ServeHTTP(w, r)
	}
	if w.status != http.StatusTooManyRequests {
		b.Fatalf("status %d, want all to be refused", w.status)
	}
}
