package e2e

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/observe/metrics"
)

// TestAKeyThatNobodySends: the log names the rule and the missing part once, whichever
// doors the requests used.
func TestAKeyThatNobodySends(t *testing.T) {
	f := newFixture(t, "domain: d\nlimits:\n  - {name: per-tenant, key: [client_ip, tenant], rate: 1000/minute}\n", hello)
	f.start(t)
	for i := range 2 * metrics.LackingAfter {
		if i%2 == 0 {
			f.get(t, f.proxyURL("/"))
		} else {
			f.get(t, f.apiURL("/v1/auth"), "X-Forwarded-Uri", "/")
		}
	}
	text := f.journal.text.String()
	if n := strings.Count(text, "no request has the rule's key"); n != 1 || !strings.Contains(text, "rule=per-tenant") || !strings.Contains(text, "lacking=tenant") {
		t.Errorf("logged %d times:\n%s", n, text)
	}
}
