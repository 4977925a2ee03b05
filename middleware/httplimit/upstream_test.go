package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestFieldsHaveOneValue: a handler that reports limits of its own, such as a reverse
// proxy, does not make a second value of a field. Lists of limits are joined.
func TestFieldsHaveOneValue(t *testing.T) {
	t.Parallel()
	own := func(h http.Header, set func(name, value string)) {
		set("X-RateLimit-Limit", "999")
		set("X-RateLimit-Remaining", "998")
		set("RateLimit", `"up";r=0;t=90`)
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { own(w.Header(), w.Header().Set) }))
	defer up.Close()
	to, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	joined := http.Header{"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {"2"}, "Ratelimit": {`"up";r=0;t=90, "all";r=2;t=2400`}}
	plain := http.Header{"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {"2"}, "Ratelimit": {`"all";r=2;t=2400`}}
	for name, row := range map[string]struct {
		handler http.Handler
		want    http.Header
	}{
		"proxy": {httputil.NewSingleHostReverseProxy(to), joined},
		"added": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { own(w.Header(), w.Header().Add) }), joined},
		"set": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			own(w.Header(), w.Header().Set)
			_, _ = io.WriteString(w, "x")
		}), joined},
		"none": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), plain},
		"flushed": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			own(w.Header(), w.Header().Add)
			_ = http.NewResponseController(w).Flush()
		}), joined},
		"nested": {httplimit.New(headgate.New(memory.New()), headgate.PerDay(9), httplimit.Name("inner"), httplimit.Cost(func(*http.Request) int64 { return 0 }))(http.NotFoundHandler()), http.Header{
			"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {"2"}, "Ratelimit": {`"inner";r=9;t=86400, "all";r=2;t=2400`},
		}},
		"removed": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			delete(w.Header(), "Ratelimit")
			w.Header().Add("X-RateLimit-Limit", "9")
		}), http.Header{
			"X-Ratelimit-Limit": {"3"}, "X-Ratelimit-Remaining": {"2"}, "Ratelimit": nil,
		}},
	} {
		for option, more := range map[string][]httplimit.Option{
			"": nil, ", RefundIf": {httplimit.RefundIf(418)}, ", ChargeOn": {httplimit.ChargeOn(func(int, http.Header) bool { return true })},
		} {
			s := httptest.NewServer(httplimit.New(headgate.New(memory.New()), headgate.PerHour(3), append(more, httplimit.Name("all"))...)(row.handler))
			res, err := http.Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			got := http.Header{}
			for field := range row.want {
				got[field] = res.Header[field]
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s%s: -want +got\n%s", name, option, diff)
			}
			s.Close()
		}
	}
}
