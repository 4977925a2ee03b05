package rules_test

import (
	"strings"
	"testing"
)

// Ordinary files in which a rule refuses what another one, stricter at first
// sight, does not.
func TestRulesThatDoMoreThanStricterOnes(t *testing.T) {
	for name, file := range map[string]string{
		"requests and tokens": `
limits:
  - {name: requests, key: client_ip, rate: 60/minute}
  - {name: tokens, key: client_ip, rate: 100000/minute, cost: {from_response: X-Tokens}}`,
		"the other way round": `
limits:
  - {name: tokens, key: client_ip, rate: 60/minute, cost: {from_response: X-Tokens}}
  - {name: requests, key: client_ip, rate: 60/minute}`,
		"a hard stop behind a shadow ban": `
limits:
  - {name: soft, key: client_ip, rate: 5/minute, on_limit: shadow_ban}
  - {name: hard, key: client_ip, rate: 20/minute}`,
		"a stop before a queue": `
limits:
  - {name: later, key: client_ip, rate: 3/minute, on_limit: queue}
  - {name: now, key: client_ip, match: {path: /now}, rate: 3/minute}`,
		"a backstop for outages": `
limits:
  - {name: fast, key: client_ip, rate: 5/minute}
  - {name: backstop, key: client_ip, rate: 50/minute, on_store_error: deny}`,
		"another share": `
limits:
  - {name: fast, key: client_ip, rate: 5/minute, on_store_error: {policy: local, share: 0.5}}
  - {name: slow, key: client_ip, rate: 6/minute, on_store_error: {policy: local, share: 0.1}}`,
		"a share of other keys": `
limits:
  - {name: some, key: client_ip, rate: 5/minute, percent: 50}
  - {name: others, key: client_ip, rate: 5/minute, percent: 50}`,
		"another answer, which is given first": `
limits:
  - {name: posts, key: client_ip, match: {method: POST}, rate: 5/minute, on_limit: {status: 503}}
  - {name: all, key: client_ip, rate: 5/minute}`,
		"a rule that another replaces": `
limits:
  - {name: strict, key: client_ip, rate: 5/minute}
  - {name: loose, key: client_ip, rate: 50/minute}
descriptors:
  - {key: plan, value: pro, rate_limit: {name: pro, rate: 20/minute, replaces: [{name: strict}]}}`,
	} {
		for _, w := range parse(t, "domain: d"+file).Warnings() {
			t.Errorf("%s: %s", name, w)
		}
	}
}

// Of two limits of the same numbers the one that rejects first is named, and the
// other answer is never seen.
func TestRulesOfOneLimitWithOtherAnswers(t *testing.T) {
	const file = `
domain: d
limits:
  - {name: fake, key: client_ip, rate: 5/minute, on_limit: shadow_ban}
  - {name: hard, key: client_ip, rate: 5/minute}
  - {name: plain, key: "header:X", rate: 5/minute}
  - {name: polite, key: "header:X", rate: 5/minute, on_limit: {body: please wait}}
`
	warnings := parse(t, file).Warnings()
	for i, want := range []string{`"fake" can never refuse a request: "hard"`, `"polite" can never refuse a request: "plain"`} {
		if len(warnings) != 2 || !strings.Contains(warnings[i].String(), want) || !strings.Contains(warnings[i].String(), "is as strict") {
			t.Errorf("want %s: %v", want, warnings)
		}
	}
}
