package e2e

import (
	"encoding/json"
	"net/http"
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
