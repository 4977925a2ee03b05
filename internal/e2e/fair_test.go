package e2e

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

const fairRules = `
domain: api
limits:
  - {name: shared, rate: 6000/day, burst: 100, fair: {among: "header:X-User", horizon: 1h}, cost: {estimate: 20, from_response: X-Cost}}
`

// A share pays what the answer says: who cost nothing is given back all, also in time, and who
// cost more than the estimate has less left than another.
func TestSharesAreChargedWhatRequestsCost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"memory", "redis"} {
		t.Run(name, func(t *testing.T) {
			var change []set
			if name == "redis" {
				change = append(change, onRedis(redistest.Standalone(t).Addr), func(c *config.Config) { c.Store.Redis.Timeout = 20 * time.Second })
			}
			f := run(t, fairRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Cost", r.Header.Get("X-Is"))
			}), change...)
			left := func(user string) int64 {
				var c loginCheck
				text := f.postJSON(t, "/v1/check", `{"domain":"api","peek":true,"cost":1,"attributes":{"header:X-User":"`+user+`"}}`)
				if err := json.Unmarshal([]byte(text), &c); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				return c.Remaining
			}
			get := func(user, cost string) int {
				res, _ := f.get(t, f.proxyURL("/"), "X-User", user, "X-Is", cost)
				return res.StatusCode
			}
			for range 150 { // by the estimate six horizons of time
				if got := get("cheap", "0"); got != http.StatusOK {
					t.Fatalf("cheap: %d, %d left", got, left("cheap"))
				}
			}
			if got := left("cheap"); got < 99 {
				t.Errorf("cheap has %d left", got)
			}
			if got := get("dear", "60"); got != http.StatusOK {
				t.Errorf("dear: %d", got)
			}
			if dear, cheap := left("dear"), left("cheap"); dear > 14 || cheap < 16 { // 12 and 18; 17 if just the estimate were paid
				t.Errorf("dear has %d left, cheap %d", dear, cheap)
			}
		})
	}
}

// Queued requests take the share of who sent them: a long line leaves others theirs.
func TestQueuedRequestsTakeTheirShare(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	f := run(t, `
domain: api
limits:
  - {name: jobs, match: {path: /jobs}, key: "header:X-User", rate: 1000/second, burst: 1, on_limit: {action: queue, concurrency: 50}}
  - {name: shared, rate: 6000/day, burst: 100, fair: {among: "header:X-User", weights: {by: "header:X-Plan", low: 1, default: 2}, horizon: 1h}}
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/jobs" {
			arrived.Add(1)
		}
	}), inFile(t))
	for i := range 120 {
		want := http.StatusAccepted // the clock stands still
		if i == 0 {
			want = http.StatusOK
		}
		if res, body := f.get(t, f.proxyURL("/jobs"), "X-User", "greedy", "X-Plan", "low"); res.StatusCode != want {
			t.Fatalf("request %d: %d %s", i, res.StatusCode, body)
		}
	}
	ticks := 0
	f.await(t, func() bool {
		f.clock.advance(10 * time.Millisecond)
		ticks++
		return ticks > 400 && arrived.Load() >= 20
	})
	if n := arrived.Load(); n < 50 || n > 66 { // 60; with the weight of the others 72
		t.Errorf("%d of 120 were sent", n)
	}
	for i := range 15 {
		if res, body := f.get(t, f.proxyURL("/"), "X-User", "other"); res.StatusCode != http.StatusOK {
			t.Fatalf("request %d of another: %d %s", i, res.StatusCode, body)
		}
	}
}
