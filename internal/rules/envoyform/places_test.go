package envoyform_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// place is a text with a mark, §, before what is wrong in it, and what is said there:
// without compat, and under compat: envoy. Of nothing, that is empty.
type place struct{ text, none, envoy string }

// unmarked returns a text without its mark, and where that was: line:column.
func unmarked(t *testing.T, text string) (src, at string) {
	t.Helper()
	before, after, found := strings.Cut(text, "§")
	if !found || strings.Contains(after, "§") {
		t.Fatalf("%q has not one mark", text)
	}
	line := strings.LastIndexByte(before, '\n') + 1
	return before + after, fmt.Sprintf("%d:%d", 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[line:]))
}

// run reads the text both ways.
func (p place) run(t *testing.T) {
	t.Helper()
	p.as(t, rules.CompatNone, p.none)
	p.as(t, rules.CompatEnvoy, p.envoy)
}

// as reads the text and reports what is not said at its mark, what is said there where
// nothing should be, and an error that is not to be.
func (p place) as(t *testing.T, compat rules.Compat, want string) {
	t.Helper()
	src, at := unmarked(t, p.text)
	set, list := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "e.yaml", Data: []byte(src)})
	if set != nil {
		list = set.Warnings()
	}
	found := false
	var all []string
	for _, d := range list {
		said := fmt.Sprintf("%d:%d: %s: %s; %s", d.Line, d.Column, d.Severity, d.Message, d.Hint)
		all = append(all, said)
		found = found || strings.HasPrefix(said, at+": "+want)
	}
	if found != (want != "") || (set == nil) != strings.HasPrefix(want, "error:") {
		t.Errorf("compat %s:\n%s\nwant %s: %s\n%s", compat, src, at, want, strings.Join(all, "\n"))
	}
}

// both is the same for both ways.
func both(text, said string) place { return place{text, said, said} }

// under writes lines of one descriptor below a key, with a limit unless they have one.
func under(lines string) string {
	text := "domain: d\ndescriptors:\n  - key: k\n"
	if !strings.Contains(lines, "rate_limit") {
		text += "    rate_limit: {unit: minute, requests_per_unit: 5}\n"
	}
	return text + "    " + strings.ReplaceAll(lines, "\n", "\n    ") + "\n"
}

// What is wrong around descriptors is pointed at.
func TestPlacesInDocuments(t *testing.T) {
	t.Parallel()
	const top = "domain: d\ndescriptors:\n"
	const lim = "rate_limit: {unit: minute, requests_per_unit: 5}"
	for _, p := range []place{
		both("domain: d\ndescriptors: §{key: k}\n", `error: "descriptors" must be a list, not a mapping`),
		both(top+"  - §k\n", "error: descriptor 1 must be a mapping (key: value), not text"),
		both(top+"  - {key: k, "+lim+"}\n  - §value: v\n    "+lim+"\n", `error: descriptor 2 has no "key"`),
		both(top+"  - key: k\n    §values: [v]\n    "+lim+"\n", `error: unknown key "values" in descriptor "k", did you mean "value"?`),
		both(top+"  - key: k\n    value: v\n    §rate_limits: {}\n", `error: unknown key "rate_limits" in descriptor "k=v", did you mean "rate_limit"?`),
		both(top+"  - key: k\n    descriptors:\n      - key: l\n        §valeu: v\n        "+lim+"\n", `error: unknown key "valeu" in descriptor "l", did you mean "value"?`),
		both("domain: d\ncompat: §istio\ndescriptors: []\n", `error: unknown compat "istio"`),
		both("domain: d\ncompat: §none\nlimits: []\n", `warning: "compat" has no effect without descriptors`),
		both("domain: d\nmerge_domains: §perhaps\ndescriptors: []\n", `error: "merge_domains" must be true or false, not "perhaps"`),
		both(top+"  - {key: k, "+lim+"}\n  - §key: k\n    "+lim+"\n", "error: "),
		{top + "  - {key: k, value: \"a*\", " + lim + "}\n  - §key: k\n    value: ab*\n    " + lim + "\n", "", `warning: the descriptor "k_ab*" can never match`},
		both(top+"  - §key: k\n", `warning: the descriptor "k" has no effect: it has no rate_limit`),
		{"domain: d\n§unit: minute\ndescriptors: []\n", `error: "unit" belongs under rate_limit, not in a rule file`, `warning: "unit" belongs under rate_limit, not in a rule file, where it has no effect`},
		{top + "  - key: k\n    §requests_per_unit: 5\n    " + lim + "\n", `error: "requests_per_unit" belongs under rate_limit, not in descriptor "k"`, `warning: "requests_per_unit" belongs under rate_limit`},
		both(top+"  - key: k\n    §burst: 5\n    "+lim+"\n", `error: "burst" belongs under rate_limit, not in descriptor "k"`),
	} {
		p.run(t)
	}
	const same = "domain: d\ndescriptors: [{key: a, " + lim + "}]\n---\n"
	place{text: same + "domain: §d\ncompat: none\ndescriptors: [{key: b, " + lim + "}]\n"}.as(t, rules.CompatNone,
		`error: duplicate domain "d": its descriptors are already in e.yaml:2:1; set merge_domains: true to combine them`)
	place{text: same + "domain: d\nmerge_domains: true\ncompat: envoy\n§descriptors: [{key: b, " + lim + "}]\n"}.as(t, rules.CompatNone,
		`error: all descriptors of a domain need the same compat: those of "d" in e.yaml:2:1 have none, these have envoy`)
	place{text: same + "domain: d\n§descriptors: [{key: b, " + lim + "}]\n"}.as(t, rules.CompatEnvoy, "")
	place{text: same + "§domain: d\ndescriptors: [{key: b, " + lim + "}]\n"}.as(t, rules.CompatEnvoy,
		"warning: compat: envoy reads only the first document of a file, as envoyproxy/ratelimit does; move it to a separate file")
}

// What is wrong in a descriptor is pointed at.
func TestPlacesInDescriptors(t *testing.T) {
	t.Parallel()
	const lim = ", rate_limit: {unit: minute, requests_per_unit: 5}"
	in := func(text string) string { return "domain: d\ndescriptors:\n  - {" + text + lim + "}\n" }
	for _, p := range []place{
		both(in("key: §[a]"), `error: "key" must be text, not a list`),
		both(in("key: §\"\""), `error: "key" is empty`),
		both(in("key: §\"a\\tb\""), `error: "key" must be at most 4096 bytes long, without control characters`),
		both(in("key: §"+strings.Repeat("k", 4097)), `error: "key" must be at most 4096 bytes`),
		{in("key: §\"a*\""), `warning: the * in the key "a*" is matched literally; wildcards work only in the value`, ""},
		both(in("key: k, value: §{}"), `error: "value" must be text, not a mapping`),
		both(in("key: k, value: §\"\""), `warning: an empty value matches any value of "k"; leave the value out`),
		{in("key: k, share_threshold: §true"), `error: "share_threshold" needs a value with a *`, `error: with compat: envoy "share_threshold" needs a value with a *`},
		both(in("key: k, value: a*, share_threshold: §maybe"), `error: "share_threshold" must be true or false, not "maybe"`),
		both(in("key: k, value_to_metric: §maybe"), `error: "value_to_metric" must be true or false`),
		both(in("key: k, shadow_mode: §[]"), `error: "shadow_mode" must be true or false, not a list`),
		both(in("key: k, metadata: §text"), `error: "metadata" must be a mapping (name: value), not text`),
		both("domain: d\ndescriptors:\n  - {key: k, §shadow_mode: true}\n", `warning: "shadow_mode" has no effect without a rate_limit`),
		both("domain: d\ndescriptors:\n  - {key: k, §quota_mode: yes}\n", `warning: "quota_mode" has no effect without a rate_limit`),
		both("domain: d\ndescriptors:\n  - {key: k, §detailed_metric: on}\n", `warning: "detailed_metric" has no effect without a rate_limit`),
		both("domain: d\ndescriptors:\n  - {key: k, §metadata: {a: b}}\n", `warning: "metadata" has no effect without a rate_limit`),
		both("domain: d\ndescriptors:\n  - {key: k, §rate_limit: }\n", `warning: "rate_limit" has no value; matching requests are not limited`),
		both(under("§shadow_mode: true\nrate_limit: {unit: hour, requests_per_unit: 5, percent: 50}"), `warning: "percent" has no effect with shadow_mode`),
	} {
		p.run(t)
	}
}

// What is wrong in a rate_limit is pointed at.
func TestPlacesInLimits(t *testing.T) {
	t.Parallel()
	in := func(text string) string { return under("rate_limit:\n  " + strings.ReplaceAll(text, "\n", "\n  ")) }
	for _, p := range []place{
		both(under("rate_limit: §5"), `error: the rate_limit of descriptor "k" must be a mapping (key: value), not a number`),
		both(in("§requests_per_unit: 5"), `error: "unit" is missing; for example unit: minute, or period: 30s`),
		{in("§unit: minute"), `error: "requests_per_unit" is missing; to refuse every request, set it to 0`, `warning: "requests_per_unit" is missing: every request is refused`},
		both(in("requests_per_unit: 5\nunit: §minutes"), `error: unknown unit "minutes", did you mean "minute"?`),
		both(in("requests_per_unit: 5\nunit: §fortnight"), `error: unknown unit "fortnight"; use one of second, minute, hour, day, week, month, year; for other lengths use period`),
		both(in("requests_per_unit: 5\nunit: §60"), `error: "unit" must be one of second, minute`),
		both(in("requests_per_unit: 5\nunit: minute\n§period: 5s"), `error: give either "unit" or "period", not both`),
		both(in("requests_per_unit: 5\nperiod: §[]"), `error: "period" must be a duration such as 30s, not a list`),
		both(in("requests_per_unit: 5\nperiod: §soon"), `error: unknown unit "soon"`),
		both(in("requests_per_unit: §five\nunit: minute"), `error: "requests_per_unit" must be a whole number, not text`),
		both(in("requests_per_unit: §-5\nunit: minute"), `error: "requests_per_unit" must be from 0 to`),
		{in("requests_per_unit: §0x10\nunit: minute"), `error: "requests_per_unit" must be a whole number in decimal digits, not "0x10"`, ""},
		both(in("requests_per_unit: §0\nunit: minute"), "warning: a limit of 0 refuses every request"),
		both(in("requests_per_unit: 5\nunit: minute\ncost: §6"), "warning: the cost 6 is more than the limit of 5: every request is refused"),
		both(in("requests_per_unit: 5\nunit: minute\ncost: §0"), "warning: a cost of 0 counts nothing: no request is ever refused"),
		both(in("rate: 5/minute\n§unit: minute"), `error: "unit" cannot be combined with rate`),
		both(in("rate: 5/minute\n§requests_per_unit: 5"), `error: "requests_per_unit" cannot be combined with rate`),
		both(in("rate: §5"), `error: invalid rate "5": want N/unit`),
		both(in("rate: unlimited\n§burst: 5"), `error: "burst" cannot be combined with rate: unlimited`),
		both(in("unlimited: true\n§requests_per_unit: 5"), `warning: "requests_per_unit" has no effect with unlimited: true`),
		both(in("unlimited: true\n§unit: minute"), `error: "unit" cannot be combined with unlimited: true`),
		{in("unlimited: true\n§unit: junk"), `error: "unit" cannot be combined with unlimited: true`, ""},
		both(in("unlimited: true\n§algorithm: token_bucket"), `error: "algorithm" cannot be combined with unlimited: true`),
		both(in("unlimited: §maybe"), `error: "unlimited" must be true or false, not "maybe"`),
		both(in("requests_per_unit: 5\nunit: minute\n§burst: 9"), `error: "burst" does not apply to fixed_window; only token_bucket and leaky_bucket have a burst`),
		both(in("requests_per_unit: 5\nunit: minute\nname: §[]"), `error: "name" must be text, not a list`),
		both(in("requests_per_unit: 5\nunit: minute\nname: §\"\""), `warning: "name" is empty`),
		both(in("requests_per_unit: 5\nunit: minute\nname: §"+strings.Repeat("n", 257)), "error: the name"),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: §other"), `error: "replaces" must be a list, not text; for example replaces: [{name: other}]`),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: [{name: a}, §b]"), "error: an entry of replaces must be a mapping (key: value), not text"),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: [§{}]"), `error: an entry of replaces has no "name"`),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: [{name: §\"\"}]"), `error: "name" is empty in an entry of replaces`),
		both(in("requests_per_unit: 5\nunit: minute\nname: me\nreplaces: [{name: §me}]"), `error: the limit "me" cannot replace itself`),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: [{name: a}, {name: §a}]"), `warning: "a" is replaced twice`),
		both(in("requests_per_unit: 5\nunit: minute\nreplaces: [{name: §nobody}]"), `warning: unknown limit "nobody" in domain "d"`),
		both(in("requests_per_unit: 5\nunit: minute\npercent: §50%"), `error: "percent" must be a whole number, not text`),
		both(in("requests_per_unit: 5\nunit: minute\non_limit: {status: §99}"), `error: "status" must be from 300 to 599, not 99`),
		both(in("requests_per_unit: 5\nunit: minute\non_store_error: §perhaps"), `error: unknown on_store_error "perhaps"`),
		{in("requests_per_unit: 5\nunit: minute\n§value: v"), `error: "value" belongs in a descriptor, not in the rate_limit of descriptor "k"`, `warning: "value" belongs in a descriptor`},
	} {
		p.run(t)
	}
	place{text: in("unlimited: true\nunit: §junk")}.as(t, rules.CompatEnvoy, `warning: unknown unit "junk", which has no effect with unlimited: true`)
}
