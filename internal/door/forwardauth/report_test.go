package forwardauth_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

const failedRules = `
domain: api
limits:
  - {name: failed, rate: 2/minute, algorithm: fixed_window, charge_on: {status: 401}}
`

// Only a trusted proxy gets the token for the upstream's report, and only with an
// allowed request.
func TestReportField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithClock(time.Now))
		d := open(t, store, nil, failedRules)
		describe := dialects["nginx"]
		first := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth?", describe...)
		token := first.Header().Get("X-Headgate-Report")
		if first.Code != http.StatusOK || token == "" {
			t.Fatalf("%d %v", first.Code, first.Header())
		}
		if w := d.ask(t.Context(), stranger, "GET", "/v1/auth?"); w.Code != http.StatusOK || w.Header().Get("X-Headgate-Report") != "" {
			t.Errorf("a stranger: %d %v", w.Code, w.Header())
		}
		if w := d.ask(t.Context(), proxyPeer, "GET", "/v1/auth?", describe...); w.Code != http.StatusTooManyRequests || w.Header().Get("X-Headgate-Report") != "" {
			t.Errorf("refused: %d %v", w.Code, w.Header())
		}
		rs, _ := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(failedRules)})
		other := engine.New(store, rs)
		if _, err := other.Report(t.Context(), token, rules.Answer{Status: 200}, time.Now().UnixMicro()); err == nil {
			t.Error("a report by an engine with another secret")
		}
	})
}
