package proxy_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The upstream is full. Who is over a limit that lets requests wait does wait, and does not need a
// place now.
func TestOverItsLimitAtAFullUpstream(t *testing.T) {
	for name, row := range map[string]struct {
		rules string
		want  [3]int
	}{
		"queue":  {"domain: api\nlimits:\n  - {name: all, rate: 1/second, burst: 1, on_limit: queue}\n", [3]int{200, 202, 202}},
		"within": {"domain: api\nlimits:\n  - {name: all, rate: 30/second, on_limit: queue}\n  - {name: other, rate: 100/hour, key: client_ip}\n", [3]int{200, 202, 202}},
		"delay":  {"domain: api\nlimits:\n  - {name: all, algorithm: leaky_bucket, rate: 1/second, burst: 3, on_limit: delay}\n", [3]int{200, 200, 200}},
		"refuse": {"domain: api\nlimits:\n  - {name: all, rate: 1/second, burst: 1}\n", [3]int{200, 503, 503}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, on := limiting()
				p := newLaterOf(t, row.rules, func(r *http.Request) (*http.Response, error) {
					time.Sleep(500 * time.Millisecond)
					return ok(r)
				}, on)
				defer func() { _ = p.queue.Close(t.Context()) }()
				var all sync.WaitGroup
				var got [3]int
				for i := range got {
					all.Go(func() { got[i] = p.ask("POST", "/", "").Code })
					synctest.Wait()
				}
				all.Wait()
				time.Sleep(10 * time.Second)
				if s := l.State(); got != row.want || s.InFlight != 0 {
					t.Errorf("answered %v, %+v; want %v", got, s, row.want)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if sent := len(p.arrived); name != "refuse" && sent != 3 {
					t.Errorf("%d reached the upstream, want 3", sent)
				}
			})
		})
	}
}
