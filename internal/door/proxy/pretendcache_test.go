package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// What the upstream says about caches is for its own answers. A cache that stored the
// answer to a banned client would give it to everybody.
func TestCachesDoNotStoreShadowBans(t *testing.T) {
	const secretly = "domain: api\nlimits:\n  - {name: secret, rate: 4/hour, algorithm: fixed_window, on_limit: shadow_ban}\n"
	for _, row := range []struct {
		name      string
		real      []string // of the four answers that the rule allows
		get, post string   // to a banned client
	}{
		{"always public", []string{"public, max-age=60", "public, max-age=60", "public, max-age=60", "public, max-age=60"}, "private, max-age=60", "private, max-age=60"},
		{"by path", []string{"public", "no-store", "public", "no-store"}, "private", ""},
		{"never said", []string{"", "", "", ""}, "", ""},
	} {
		n := 0
		p := newProxy(t, secretly, memory.New(), func(r *http.Request) (*http.Response, error) {
			res, err := ok(r)
			res.Header = http.Header{}
			if row.real[n] != "" {
				res.Header.Set("Cache-Control", row.real[n])
			}
			n++
			return res, err
		})
		ask := func(method string) string {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, request(t.Context(), method, "/x"))
			return w.Header().Get("Cache-Control")
		}
		for range row.real {
			ask("GET")
		}
		for method, want := range map[string]string{"GET": row.get, "HEAD": row.get, "POST": row.post} {
			if got := ask(method); got != want {
				t.Errorf("%s: %s: %q, want %q", row.name, method, got, want)
			}
		}
	}
}
