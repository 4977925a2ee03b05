package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/advice"
)

// Operators ask how a rule treats clients that stay below it.
func TestAdviceOnARule(t *testing.T) {
	t.Parallel()
	f := run(t, `
domain: api
limits:
  - {name: login, key: [client_ip], rate: 60/minute, burst: 10}
  - {name: at-once, key: [client_ip], concurrency: 5}
`, http.NotFoundHandler(), func(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" })
	a := answerOf[advice.Rule](t, f, "/v1/advice?domain=api&rule=login")
	if a.Advice == nil || a.Better == nil || a.Better.Burst != 50 || a.Steady.Refused <= 0 || a.Bursty.Refused <= a.Steady.Refused ||
		!strings.HasPrefix(a.Text, "Refuses 0.4% of the requests of steady clients") {
		t.Errorf("%+v", a)
	}
	if a := answerOf[advice.Rule](t, f, "/v1/advice?domain=api&rule=at-once"); a.Advice != nil || a.Text != "No advice: the rule has no rate of requests." {
		t.Errorf("%+v", a)
	}
	for query, want := range map[string]string{
		"domain=api&rule=logni": `did you mean \"login\"?`, "domain=ap&rule=login": "unknown domain", "domain=api": "domain and rule are required",
		"role=login": "unknown parameter",
	} {
		if res, body := f.get(t, f.adminURL("/v1/advice?"+query)); res.StatusCode < 400 || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", query, res.StatusCode, body)
		}
	}
}
