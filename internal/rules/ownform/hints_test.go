package ownform_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// A mistake that people often make is answered by what they meant.
func TestHints(t *testing.T) {
	const head = "domain: api\nlimits:\n  - name: a\n"
	limit := func(lines string) string { return head + "    rate: 5/minute\n    " + lines + "\n" }
	for _, row := range []struct{ text, want string }{
		{"domain: api\nrules: []\n", `2:1: unknown key "rules" in a rule file, did you mean "limits"?`},
		{head + "    limit: 5/minute\n", `unknown key "limit" in limit "a", did you mean "rate"?`},
		{limit("enabled: false"), `unknown key "enabled" in limit "a", did you mean "disabled"?`},
		{limit("shadow: true"), `unknown key "shadow" in limit "a", did you mean "mode"?`},
		{limit("match: {ip: 192.0.2.1}"), `unknown key "ip" in match, did you mean "client_ip"?`},
		{limit("match: {url: /x}"), `unknown key "url" in match, did you mean "path"?`},
		{limit("on_limit: block"), `unknown action "block", did you mean "reject"?`},
		{limit("on_store_error: fail_open"), `unknown on_store_error "fail_open", did you mean "allow"?`},
		{limit("on_store_error: open"), `unknown on_store_error "open", did you mean "allow"?`},
		{limit("on_store_error: ignore"), `unknown on_store_error "ignore", did you mean "allow"?`},
		{limit("on_store_error: closed"), `unknown on_store_error "closed", did you mean "deny"?`},
		{limit("on_store_error: memory"), `unknown on_store_error "memory", did you mean "local"?`},
		{limit("mode: dry_run"), `unknown mode "dry_run", did you mean "shadow"?`},
		{limit("mode: monitor"), `unknown mode "monitor", did you mean "shadow"?`},
		{limit("mode: on"), `unknown mode "on", did you mean "enforce"?`},
		{limit("mode: off"), `unknown mode "off"; to switch the rule off, write disabled: true`},
		{limit("mode: Disabled"), `unknown mode "Disabled"; to switch the rule off, write disabled: true`},
		{limit("on_store_error: fail_closed"), `unknown on_store_error "fail_closed", did you mean "deny"?`},
		{limit("on_limit: {action: delay, max_wait: 700}"), `"max_wait" must be a duration such as 5s, not a number; for seconds, write 700s`},
		{limit("on_limit: {action: shadow_ban, latency: 100}"), `"latency" must be a duration such as 5s, not a number; for seconds, write 100s`},
		{limit("on_limit: {action: reject, retry_after_jitter: 3}"), `"retry_after_jitter" must be a duration such as 5s, not a number`},
		{limit("on_limit: {action: queue, ttl: 60}"), `"ttl" must be a duration such as 5s, not a number`},
		{limit("on_limit: {action: queue, key_share: 0%}"), `"key_share" must be from 1% to 100%; for example 10%`},
		{limit("on_limit: {action: queue, key_share: 101%}"), `"key_share" must be from 1% to 100%`},
		{limit("on_limit: {action: queue, backoff: 60}"), `"backoff" must be a duration such as 5s, not a number`},
		{limit(`on_limit: {action: delay, max_wait: "700"}`), `invalid duration "700": want a number and a unit, such as 250ms or 2m`},
		{head + "    concurrency: 5\n    lease: 60\n", `"lease" must be a duration such as 5s, not a number; for seconds, write 60s`},
		{head + "\trate: 5/minute\n", `indent with spaces, not tabs`},
		{head + "    rate: 5/minute\n  \t  key: client_ip\n", `indent with spaces, not tabs`},
		{head + "    rate:5/minute\n", `write key: value, with a space after the colon`},
	} {
		_, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(row.text)})
		found := false
		for _, d := range diagnostics {
			found = found || d.Severity == diagnostic.SeverityError && strings.Contains(d.String(), row.want)
		}
		if !found {
			t.Errorf("%q: %v, want %s", row.text, diagnostics, row.want)
		}
	}
}

// Without a key, a share of the queue has no effect.
func TestKeyShareWithoutAKey(t *testing.T) {
	for key, warns := range map[string]bool{"": true, ", key: [client_ip]": false} {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(
			"domain: api\nlimits:\n  - {name: a, rate: 5/minute, on_limit: {action: queue, key_share: 20%}" + key + "}\n")})
		if set == nil || set.Rules()[0].OnLimit.Queueing.KeyShare != 20 {
			t.Fatal(diagnostics)
		}
		if got := strings.Contains(diagnostic.Problems(diagnostics).Error(), `"key_share" has no effect without a key`); got != warns {
			t.Errorf("%q: %v", key, diagnostics)
		}
	}
}

// What every client writes as it likes is no key; client_ip is.
func TestForwardedFieldsAsKeys(t *testing.T) {
	for _, row := range []struct {
		key  string
		warn bool
	}{
		{"header:X-Forwarded-For", true},
		{"header:x-real-ip", true},
		{"hash:header:Forwarded", true},
		{"header:True-Client-IP", true},
		{"header:CF-Connecting-IP", true},
		{"header:Fastly-Client-IP", true},
		{"header:client-ip", true},
		{"header:X-Api-Key", false},
		{"client_ip", false},
	} {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(
			"domain: api\nlimits:\n  - {name: a, key: [\"" + row.key + "\"], rate: 5/minute}\n")})
		if set == nil {
			t.Fatal(diagnostics)
		}
		if got := strings.Contains(diagnostic.Problems(diagnostics).Error(), "each new value gets its own budget; count by client_ip, and list the proxies"); got != row.warn {
			t.Errorf("%s: %v", row.key, diagnostics)
		}
	}
}

// A rule with an invalid match is not compared with others, since the requests that it
// counts are unknown.
func TestWrongRulesAreNotCompared(t *testing.T) {
	for _, wrong := range []string{"match: {path: /users/{id}}", "match: {method: PO ST}", "key: [\"header:\"]"} {
		_, diagnostics := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(
			"domain: api\nlimits:\n  - {name: all, rate: 5/minute}\n  - {name: some, rate: 9/minute, " + wrong + "}\n  - {name: more, rate: 7/minute, " + wrong + "}\n")})
		for _, d := range diagnostics {
			if d.Severity != diagnostic.SeverityError {
				t.Errorf("%s: %s", wrong, d)
			}
		}
		if len(diagnostics) == 0 {
			t.Errorf("%s is taken", wrong)
		}
	}
}
