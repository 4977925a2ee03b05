package forwardauth_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store/memory"
)

const secretly = `
domain: site
limits:
  - name: secret
    key: [client_ip]
    rate: 2/minute
    algorithm: fixed_window
    on_store_error: deny
    on_limit: {action: shadow_ban, body: '{"items":[]}', content_type: application/json, latency: 120ms}
  - {name: shown, key: [client_ip], rate: 9/minute, algorithm: fixed_window}
`

// No answer reveals a shadow ban rule, whether its request is allowed or not. A proxy
// that asks for another status receives the client's in X-Headgate-Status; others do
// not, since they would pass it on.
func TestHiddenRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(memory.WithClock(time.Now)), nil, secretly)
		rows := []struct {
			target    string
			status    int
			told      string // X-Headgate-Status
			body      string
			remaining string
			took      time.Duration
		}{
			{"/v1/auth", 200, "", "", "8", 0},
			{"/v1/auth", 200, "", "", "7", 0},
			{"/v1/auth", 429, "", `{"items":[]}`, "6", 120 * time.Millisecond},
			{"/v1/auth?deny=403", 403, "200", `{"items":[]}`, "5", 120 * time.Millisecond},
		}
		for i, row := range rows {
			begin := time.Now()
			w := d.ask(t.Context(), proxyPeer, "GET", row.target, "X-Forwarded-Uri: /", "X-Forwarded-Method: GET", "X-Forwarded-For: 198.51.100.7")
			h := w.Header()
			if w.Code != row.status || h.Get("X-Headgate-Status") != row.told || w.Body.String() != row.body || time.Since(begin) != row.took {
				t.Errorf("row %d: %d %q %q after %s", i, w.Code, h.Get("X-Headgate-Status"), w.Body, time.Since(begin))
			}
			if h.Get("X-RateLimit-Remaining") != row.remaining {
				t.Errorf("row %d: %s left, want %s", i, h.Get("X-RateLimit-Remaining"), row.remaining)
			}
			hides(t, h, w.Body.String())
		}
	})
}

// A hidden rule that refuses because the store cannot answer is not named either.
func TestHiddenRuleWithoutItsStore(t *testing.T) {
	store := memory.New()
	_ = store.Close()
	d := open(t, store, nil, secretly)
	w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth?deny=403", "X-Forwarded-Uri: /", "X-Forwarded-Method: GET", "X-Forwarded-For: 198.51.100.7")
	if w.Code != 403 || w.Header().Get("X-Headgate-Status") != "503" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	hides(t, w.Header(), w.Body.String())
}

func hides(t *testing.T, h http.Header, body string) {
	t.Helper()
	all := body
	for name, values := range h {
		all += name + strings.Join(values, "")
	}
	if strings.Contains(all, "secret") || h.Get("Retry-After") != "" || h.Get("X-RateLimit-Limit") == "2" {
		t.Errorf("the answer tells of the hidden rule: %v %s", h, body)
	}
}
