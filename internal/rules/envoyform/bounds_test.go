package envoyform_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// Texts of descriptors at their bounds, and switches in every notation.
func TestDescriptorsAreBounded(t *testing.T) {
	t.Parallel()
	long, name := strings.Repeat("k", 4096), strings.Repeat("n", 256)
	const text = "must be at most 4096 bytes long, without control characters"
	for descriptor, want := range map[string]string{
		"{key: " + long + ", " + limit + "}":                                                        "",
		"{key: " + long + "k, " + limit + "}":                                                       `"key" ` + text,
		"{key: k, value: " + long + ", " + limit + "}":                                              "",
		"{key: k, value: " + long + "v, " + limit + "}":                                             `"value" ` + text,
		"{key: k, value: \"a\\tb\", " + limit + "}":                                                 `"value" ` + text,
		"{key: k, rate_limit: {name: " + name + ", unit: day, requests_per_unit: 1}}":               "",
		"{key: k, rate_limit: {name: " + name + "n, unit: day, requests_per_unit: 1}}":              "is longer than 256 bytes",
		"{key: k, value: [], " + limit + "}":                                                        `"value" must be text, not a list`,
		"{key: '', " + limit + "}":                                                                  `"key" is empty`,
		"{key: k, shadow_mode: !!bool yes, " + limit + "}":                                          "",
		"{key: k, shadow_mode: 1, " + limit + "}":                                                   `"shadow_mode" must be true or false, not "1"`,
		"{key: k, shadow_mode: maybe, " + limit + "}":                                               `"shadow_mode" must be true or false, not "maybe"`,
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, percent: 100}, shadow_mode: true}":  "",
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, percent: 99}, shadow_mode: true}":   `"percent" has no effect with shadow_mode`,
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, percent: 99}, shadow_mode: off}":    "",
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{}]}}":                   `an entry of replaces has no "name"`,
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [x]}}":                    "an entry of replaces must be a mapping",
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: }]}}":             `"name" has no value`,
		"{key: k, rate_limit: {name: a, unit: day, requests_per_unit: 1, replaces: [{name: a}]}}":   `the limit "a" cannot replace itself`,
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: a}, {name: a}]}}": `"a" is replaced twice`,
	} {
		for _, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			said, _ := read(compat, descriptor)
			if want == "" && said != "" || !strings.Contains(said, want) {
				t.Errorf("%.60s, compat %s: %q, want %q", descriptor, compat, said, want)
			}
		}
	}
}

// Which values may be counted together, with and without compat: envoy.
func TestSharedValues(t *testing.T) {
	t.Parallel()
	const star, end = `"share_threshold" needs a value with a *`, `with compat: envoy "share_threshold" needs a value with a *`
	for descriptor, want := range map[string][2]string{
		"{key: k, value: 'v*', share_threshold: true, " + limit + "}":  {"", ""},
		"{key: k, value: 'v*', share_threshold: false, " + limit + "}": {"", ""},
		"{key: k, value: v, share_threshold: false, " + limit + "}":    {"", ""},
		"{key: k, value: v, share_threshold: true, " + limit + "}":     {star, end},
		"{key: k, share_threshold: true, " + limit + "}":               {star, end},
		"{key: k, value: 'v*w', share_threshold: true, " + limit + "}": {"", ""},
		"{key: 'k*', share_threshold: true, " + limit + "}":            {star, ""},
		"{key: k, value: 'v*', share_threshold: 7, " + limit + "}":     {`"share_threshold" must be true or false`, `"share_threshold" must be true or false`},
	} {
		for i, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			said, set := read(compat, descriptor)
			if (set == nil) != (want[i] != "") || !strings.Contains(said, want[i]) {
				t.Errorf("%s, compat %s: %q, want %q", descriptor, compat, said, want[i])
			}
		}
	}
}

// Numbers in the notations of YAML 1.1 are under compat: envoy what Envoy's service
// reads, and without it refused.
func TestNotationsOfCounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"8": 8, "010": 8, "0o10": 8, "0x8": 8, "0b1000": 8, "1_000": 1000, "0": 0, "0x_8": 8, "'010'": 8, "'8'": -1, "08": -1, "8.0": -1, "[]": -1, "eight": -1, "-8": -1,
	} {
		for compat, plain := range map[rules.Compat]bool{rules.CompatNone: true, rules.CompatEnvoy: false} {
			said, set := read(compat, "{key: k, rate_limit: {unit: minute, requests_per_unit: "+text+"}}")
			taken := want >= 0 && (!plain || text == "8" || text == "0" || text == "1_000")
			if (set != nil) != taken || taken && set.Rules()[0].Limit.N() != want {
				t.Errorf("%s, compat %s: %q, want %d", text, compat, said, want)
			}
		}
	}
}

// For a reverse proxy alone a key has to be an attribute of HTTP requests, or the
// client's address by the name that Envoy sends.
func TestKeysOfHTTPRequests(t *testing.T) {
	t.Parallel()
	for key, rows := range map[string][2]bool{ // whether it takes precedence for everything doors, and for the proxy alone
		"remote_address": {true, true}, "path": {true, true}, "header:X-Plan": {true, true}, "generic_key": {true, false}, "tenant": {true, false}, "user": {true, false},
		"jwt:sub": {true, true}, "header:": {true, false}, "headers:X": {true, false},
	} {
		for i, only := range []bool{false, true} {
			src := "domain: d\ndescriptors: [{key: \"" + key + "\", " + limit + "}]\n"
			set, said := rulefile.Options{OnlyHTTP: only}.Parse(rulefile.Source{Name: "e.yaml", Data: []byte(src)})
			if (set != nil) != rows[i] {
				t.Errorf("%s, for the proxy alone %v: %v", key, only, said)
			}
		}
	}
	for key, warns := range map[string]bool{"jwt:sub": true, "path": false, "tenant": false} {
		src := "domain: d\ndescriptors: [{key: \"" + key + "\", " + limit + "}]\n"
		set, _ := rulefile.Options{NoTokens: true}.Parse(rulefile.Source{Name: "e.yaml", Data: []byte(src)})
		if list := set.Warnings(); (len(list) == 1) != warns || warns && !strings.Contains(list[0].Message, "token verification is not configured") {
			t.Errorf("%s: %v", key, list)
		}
	}
}
