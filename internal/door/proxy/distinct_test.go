package proxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store/memory"
)

// TestRepeatedHeadersShowSeveralValues: two lines of a header are three values, as some
// servers join them; all or none of them are counted.
func TestRepeatedHeadersShowSeveralValues(t *testing.T) {
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
			{[]string{"cleo", "dan"}, 429, `"signups";r=0;t=3600, "all";r=99;t=3564`}, // after its first value
			{[]string{"ann, bob"}, 200, `"all";r=98;t=3528`},
			{[]string{"dan"}, 200, `"all";r=97;t=3492`},
			{[]string{"cleo"}, 429, `"signups";r=0;t=3600, "all";r=97;t=3492`},
			{[]string{"bob"}, 200, `"all";r=96;t=3456`},
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
