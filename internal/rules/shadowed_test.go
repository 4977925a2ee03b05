package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

// A rule is shadowed by one that asks for less, counts by the same and is as
// strict; not if any of this is different.
func TestShadowedRules(t *testing.T) {
	const wide = "{name: wide, key: client_ip, rate: 5/minute, match: {path: [/a, /b], headers: {X: {present: true}}}}"
	for narrow, want := range map[string]bool{
		"key: client_ip, rate: 5/minute, match: {method: GET, path: /a, headers: {X: 1}}":                     true,
		"key: client_ip, rate: 9/minute, burst: 20, match: {path: /b, headers: {X: {present: true, not: 2}}}": true,
		"key: client_ip, rate: 4/minute, match: {path: /a, headers: {X: 1}}":                                  false,
		"key: client_ip, rate: 5/minute, match: {path: [/a, /c], headers: {X: 1}}":                            false,
		"key: client_ip, rate: 5/minute, match: {path: /a}":                                                   false,
		"key: client_ip, rate: 5/minute, match: {path: /a, headers: {X: {not: 1}}}":                           false,
		"key: [client_ip, path], rate: 5/minute, match: {path: /a, headers: {X: 1}}":                          false,
		"key: client_ip, rate: 5/minute, cost: 2, match: {path: /a, headers: {X: 1}}":                         false,
		"key: client_ip, rate: 5/hour, match: {path: /a, headers: {X: 1}}":                                    false,
		"key: client_ip, rate: 5/minute, algorithm: sliding_log, match: {path: /a, headers: {X: 1}}":          false,
		"key: client_ip, rate: unlimited, match: {path: /a, headers: {X: 1}}":                                 false,
	} {
		set := parse(t, "domain: d\nlimits:\n  - "+wide+"\n  - {name: narrow, "+narrow+"}\n")
		got := false
		for _, w := range set.Warnings() {
			got = got || strings.Contains(w.Message, `"narrow" can never refuse a request: "wide" (test.yaml:3:5) counts the same requests and more`)
		}
		if got != want {
			t.Errorf("%s: warned %t, want %t: %v", narrow, got, want, set.Warnings())
		}
	}
}

// The tiers of a limit may refuse where its own rate cannot.
func TestShadowedButForItsTiers(t *testing.T) {
	const text = "domain: d\nlimits:\n  - {name: cap, key: client_ip, rate: 100/hour}\n" +
		"  - {name: plan, key: client_ip, rate: 100/hour, match: {path: /a}, tiers: {by: \"header:X-Plan\", free: {rate: 10/hour}}}\n"
	var said []string
	for _, w := range parse(t, text).Warnings() {
		said = append(said, w.Message)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], `the rule "plan" can never refuse a request without a tier: "cap"`) {
		t.Errorf("%q", said)
	}
}

// Of what is called shadowed the other rule applies to every request, whatever
// the conditions.
func TestShadowingRulesApply(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	warned := 0
	for range 300 {
		var src strings.Builder
		src.WriteString("domain: d\nlimits:\n")
		for i := range 20 {
			fmt.Fprintf(&src, "  - {name: r%d, rate: 1/s, match: %s}\n", i, randomMatch(r))
		}
		set := parse(t, src.String())
		for _, w := range set.Warnings() {
			var narrow, wide string
			if n, _ := fmt.Sscanf(w.Message, "the rule %q can never refuse a request: %q ", &narrow, &wide); n != 2 || !strings.Contains(w.Message, "and more") {
				continue
			}
			warned++
			for range 200 {
				req := randomRequest(r)
				if rules.AppliesAnyway(set.Rule("d", narrow), req) && !rules.AppliesAnyway(set.Rule("d", wide), req) {
					t.Fatalf("%v: %s, but not of %v", req, w, src.String())
				}
			}
		}
	}
	if warned < 300 {
		t.Errorf("only %d warnings", warned)
	}
}
