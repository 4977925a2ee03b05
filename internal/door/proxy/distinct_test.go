package proxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store/memory"
)

// TestRepeatedHeadersShowOneValue: whatever is in several lines of a header is one value
// of a client.
func TestRepeatedHeadersShowOneValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, `
domain: api
limits:
  - {name: signups, key: client_ip, count: distinct, of: "header:X-User", rate: 4/hour}
  - {name: all, key: client_ip, rate: 100/hour}
`, memory.New(memory.WithClock(time.Now)), ok)
		for i, row := range []struct {
			users     []string
			code      int
			remaining string // also of requests
		}{
			{[]string{"ann", "bob"}, 200, `"all";r=99;t=3564`},
			{[]string{"cleo", "dan"}, 200, `"all";r=98;t=3528`}, // as unclear as the first
			{[]string{"ann"}, 200, `"all";r=97;t=3492`},
			{[]string{"dan"}, 200, `"all";r=96;t=3456`},
			{[]string{"cleo"}, 200, `"all";r=95;t=3420`},
			{[]string{"bob"}, 429, `"signups";r=0;t=3600, "all";r=95;t=3420`},
		} {
			var header []string
			for _, user := range row.users {
				header = append(header, "X-User", user)
			}
			w, _ := ask(t, p, "POST", "/signup", header...)
			if got := w.Header().Get("RateLimit"); w.Code != row.code || got != row.remaining {
				t.Errorf("request %d: %d, %s, want %d, %s", i, w.Code, got, row.code, row.remaining)
			}
		}
	})
}
