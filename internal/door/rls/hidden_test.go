package rls_test

import (
	"strings"
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/headgate/headgate/internal/door/rls"
)

// Envoy turns statuses into header fields, so they do not reveal a shadow_ban rule,
// whether it allows or refuses.
func TestHiddenRule(t *testing.T) {
	f := start1(t, setup{rules: `
domain: api
limits:
  - {name: secret, key: [user], rate: 2/hour, algorithm: fixed_window, on_limit: shadow_ban}
  - {name: shown, match: {attributes: {plan: {present: true}}}, key: [user], rate: 9/minute, algorithm: fixed_window}
`, rls: rls.Options{Legacy: &rls.LegacyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}}})
	both := descriptor("user", "ann", "plan", "free")
	for i, row := range []struct {
		code  envoy.RateLimitResponse_Code
		limit uint32
	}{{ok, 9}, {ok, 9}, {over, 9}} {
		r := f.ask(request(both))
		s := r.GetStatuses()[0]
		if s.GetCode() != row.code || s.GetCurrentLimit().GetRequestsPerUnit() != row.limit {
			t.Errorf("request %d: %v", i, s)
		}
		if text := prototext.Format(r); strings.Contains(text, "secret") || strings.Contains(text, "HOUR") || strings.Contains(strings.ToLower(text), "retry-after") {
			t.Errorf("request %d tells of the hidden rule: %s", i, text)
		}
	}
	alone := f.ask(request(descriptor("user", "ann")))
	if s := alone.GetStatuses()[0]; s.GetCode() != over || s.GetCurrentLimit() != nil || s.GetDurationUntilReset() != nil || len(alone.GetResponseHeadersToAdd()) > 0 {
		t.Errorf("without another limit: %v", alone)
	}
}
