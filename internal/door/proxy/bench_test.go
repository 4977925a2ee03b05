package proxy_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/door/proxy"
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

// A request to an upstream whose limit does not adapt pays two comparisons. One that does pays at
// most two locks and, if it is passed on, the timer of its place.
func BenchmarkAdaptive(b *testing.B) {
	const classes = "priorities: {classes: [critical, default], rules: [{match: {path: /pay/**}, class: critical}]}\n"
	for _, row := range []struct {
		name, limits string
		status       int
	}{{"refused", refusedRules, http.StatusTooManyRequests}, {"passed", noLimits, http.StatusOK}} {
		for _, mode := range []string{"off", "on", "classes"} {
			b.Run(row.name+"/"+mode, func(b *testing.B) {
				limits, change := row.limits, []func(*proxy.Options){}
				l, on := limiting(func(o *adaptive.Options) { o.Max = 20 })
				if mode != "off" {
					change = append(change, on)
				}
				if mode == "classes" {
					limits += classes
				}
				p := newProxy(b, limits, memory.New(), ok, change...)
				r := request(b.Context(), http.MethodGet, "/", "X-Api-Key", "key")
				w := &sink{header: http.Header{}}
				p.ServeHTTP(w, r) // if there is a limit, the only one that is allowed
				b.ReportAllocs()
				for b.Loop() {
					clear(w.header)
					p.ServeHTTP(w, r)
				}
				if s := l.State(); w.status != row.status || s.Refused != 0 || s.InFlight != 0 {
					b.Fatalf("status %d and %+v, want %d of all, and a limiter that is not full", w.status, s, row.status)
				}
			})
		}
	}
}
