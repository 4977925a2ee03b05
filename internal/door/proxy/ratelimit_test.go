package proxy_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/store/memory"
)

// TestLimitsOfTheUpstreamStay: what the upstream says about its own limits may be
// stricter, so its lists stay. Each field of one limit has one value.
func TestLimitsOfTheUpstreamStay(t *testing.T) {
	p := newProxy(t, `
domain: api
limits:
  - {name: all, key: client_ip, rate: 100/hour}
`, memory.New(), func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.Header = http.Header{
			"X-Ratelimit-Limit": {"9"}, "X-Ratelimit-Remaining": {"8"}, "X-Ratelimit-Reset": {"7"},
			"Ratelimit": {`"up";r=0;t=90`}, "Ratelimit-Policy": {`"up";q=1;w=90`}, "Retry-After": {"6"},
		}
		return res, err
	})
	w, _ := ask(t, p, "GET", "/")
	got := http.Header{}
	for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "Ratelimit", "Ratelimit-Policy", "Retry-After"} {
		got[name] = w.Header()[name]
	}
	if diff := cmp.Diff(http.Header{
		"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"99"}, "Retry-After": {"6"},
		"Ratelimit": {`"up";r=0;t=90, "all";r=99;t=3564`}, "Ratelimit-Policy": {`"up";q=1;w=90, "all";q=100;w=3600`},
	}, got); diff != "" {
		t.Error(diff)
	}
}
