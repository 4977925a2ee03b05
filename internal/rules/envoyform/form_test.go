package envoyform_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// read reads descriptors, one to a line as YAML flow, and returns what is said of them,
// a line each, and the rules if there are no errors.
func read(compat rules.Compat, lines ...string) (said string, set *rules.Ruleset) {
	src := "domain: d\ndescriptors:\n"
	for _, line := range lines {
		src += "  - " + line + "\n"
	}
	set, list := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "e.yaml", Data: []byte(src)})
	if set != nil {
		list = set.Warnings()
	}
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprintf("%d:%d: %s: %s; %s", d.Line, d.Column, d.Severity, d.Message, d.Hint))
	}
	return strings.Join(out, "\n"), set
}

const limit = "rate_limit: {unit: minute, requests_per_unit: 5}"

// What a rate_limit says becomes a limit; under compat: envoy days and longer are
// counted from the epoch, and without it by the calendar.
func TestLimits(t *testing.T) {
	t.Parallel()
	calendar := func(n int64, unit headgate.CalendarUnit) headgate.Limit { return headgate.PerCalendar(n, unit, nil) }
	window := func(l headgate.Limit) headgate.Limit { return l.WithAlgorithm(headgate.FixedWindow) }
	for text, want := range map[string][2]headgate.Limit{
		"unit: second, requests_per_unit: 5":                          {window(headgate.PerSecond(5)), window(headgate.PerSecond(5))},
		"unit: MINUTE, requests_per_unit: 0":                          {window(headgate.PerMinute(0)), window(headgate.PerMinute(0))},
		"unit: Hour, requests_per_unit: 1":                            {window(headgate.PerHour(1)), window(headgate.PerHour(1))},
		"unit: day, requests_per_unit: 7":                             {calendar(7, headgate.Day), window(headgate.PerDay(7))},
		"unit: week, requests_per_unit: 7":                            {calendar(7, headgate.Week), window(headgate.Per(7, 7*24*time.Hour))},
		"period: 90s, requests_per_unit: 7":                           {window(headgate.Per(7, 90*time.Second)), window(headgate.Per(7, 90*time.Second))},
		"rate: 5/minute":                                              {window(headgate.PerMinute(5)), window(headgate.PerMinute(5))},
		"rate: 5/minute, algorithm: token_bucket, burst: 9":           {headgate.PerMinute(5).WithBurst(9), headgate.PerMinute(5).WithBurst(9)},
		"unit: minute, requests_per_unit: 5, algorithm: sliding_log":  {headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog), headgate.PerMinute(5).WithAlgorithm(headgate.SlidingLog)},
		"unlimited: true":                                             {headgate.Unlimited(), headgate.Unlimited()},
		"unlimited: yes":                                              {headgate.Unlimited(), headgate.Unlimited()},
		"rate: unlimited":                                             {headgate.Unlimited(), headgate.Unlimited()},
		"unlimited: off, unit: second, requests_per_unit: 3":          {window(headgate.PerSecond(3)), window(headgate.PerSecond(3))},
		"unit: second, requests_per_unit: 3, anchor: first_request":   {window(headgate.PerSecond(3)).WithAnchor(headgate.AnchorFirstRequest), window(headgate.PerSecond(3)).WithAnchor(headgate.AnchorFirstRequest)},
		"unit: minute, requests_per_unit: 3, timezone: Europe/Berlin": {},
	} {
		for i, compat := range []rules.Compat{rules.CompatNone, rules.CompatEnvoy} {
			said, set := read(compat, "{key: k, rate_limit: {"+text+"}}")
			switch {
			case set == nil:
				t.Errorf("%s: %s", text, said)
			case !want[i].Rule().Valid(): // only that it is read
			case !set.Rules()[0].Limit.Equal(want[i]):
				t.Errorf("%s, compat %s: %+v", text, compat, set.Rules()[0].Limit.Rule())
			}
		}
	}
}

// Envoy's service reads numbers as YAML 1.1 has them.
func TestCountsInOtherNotations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"010": 8, "0x10": 16, "0o10": 8, "0b11": 3, "1_000": 1000, "12": 12} {
		_, set := read(rules.CompatEnvoy, "{key: k, rate_limit: {unit: minute, requests_per_unit: "+text+"}}")
		if set == nil || set.Rules()[0].Limit.N() != want {
			t.Errorf("%s is not %d", text, want)
		}
		if _, set := read(rules.CompatNone, "{key: k, rate_limit: {unit: minute, requests_per_unit: "+text+"}}"); (set == nil) == (text == "12" || text == "1_000") {
			t.Errorf("without compat: %s is read: %v", text, set != nil)
		}
	}
}

// Each mistake is reported with its position; what Envoy's service ignores is a warning
// with compat: envoy.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text        string
		none, envoy string // part of what is said; "" for nothing
	}{
		{"{value: v, " + limit + "}", `descriptor 1 has no "key"`, `descriptor 1 has no "key"`},
		{`{key: "", ` + limit + "}", `3:11: error: "key" is empty`, `"key" is empty`},
		{"{key: [a], " + limit + "}", `"key" must be text, not a list`, `"key" must be text, not a list`},
		{`{key: "a\tb", ` + limit + "}", "without control characters", "without control characters"},
		{"{key: k, value: {}, " + limit + "}", `"value" must be text, not a mapping`, `"value" must be text, not a mapping`},
		{`{key: k, value: "", ` + limit + "}", "warning: an empty value matches any value", "an empty value matches any value"},
		{`{key: "a*", ` + limit + "}", "the * in the key", ""},
		{`{key: k, value: "a*b", ` + limit + "}", "", ""},
		{`{key: k, value: "a*b*", ` + limit + "}", "", ""},
		{"{key: k, value: 12, " + limit + "}", "", ""},
		{"{key: k, value: yes, " + limit + "}", "", ""},
		{"{key: k, unit: minute, " + limit + "}", `error: "unit" belongs under rate_limit, not in descriptor "k"`, `warning: "unit" belongs under rate_limit`},
		{"{key: k, cost: 2, " + limit + "}", `error: "cost" belongs under rate_limit`, `error: "cost" belongs under rate_limit`},
		{"{key: k, domain: x, " + limit + "}", `error: "domain" belongs at the top of the file`, `warning: "domain" belongs at the top of the file`},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 1, value: x}}", `error: "value" belongs in a descriptor, not in the rate_limit of descriptor "k"`, `warning: "value" belongs in a descriptor`},
		{"{key: k, valu: x, " + limit + "}", `did you mean "value"?`, `did you mean "value"?`},
		{"{key: k, rate_limit: }", `warning: "rate_limit" has no value; matching requests are not limited`, `"rate_limit" has no value`},
		{"{key: k, rate_limit: []}", "must be a mapping (key: value), not a list", "must be a mapping (key: value), not a list"},
		{"{key: k, rate_limit: {unit: minute}}", `error: "requests_per_unit" is missing`, `warning: "requests_per_unit" is missing: every request is refused`},
		{"{key: k, rate_limit: {requests_per_unit: 1}}", `"unit" is missing; for example unit: minute`, `"unit" is missing`},
		{"{key: k, rate_limit: {unit: minite, requests_per_unit: 1}}", `unknown unit "minite", did you mean "minute"?`, `did you mean "minute"?`},
		{"{key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}", "use one of second, minute, hour, day, week, month, year; for other lengths use period", "use one of second"},
		{"{key: k, rate_limit: {unit: 5, requests_per_unit: 1}}", `"unit" must be one of second`, `"unit" must be one of second`},
		{"{key: k, rate_limit: {unit: minute, period: 5s, requests_per_unit: 1}}", `either "unit" or "period"`, `either "unit" or "period"`},
		{"{key: k, rate_limit: {period: soon, requests_per_unit: 1}}", "error", "error"},
		{"{key: k, rate_limit: {period: [], requests_per_unit: 1}}", `"period" must be a duration such as 30s, not a list`, `"period" must be a duration`},
		{"{key: k, rate_limit: {rate: 5/minute, unit: minute}}", `"unit" cannot be combined with rate`, `"unit" cannot be combined with rate`},
		{"{key: k, rate_limit: {rate: unlimited, burst: 5}}", `"burst" cannot be combined with rate: unlimited`, `"burst" cannot be combined with rate: unlimited`},
		{"{key: k, rate_limit: {unlimited: true, unit: minute}}", `"unit" cannot be combined with unlimited: true`, `"unit" cannot be combined with unlimited: true`},
		{"{key: k, rate_limit: {unlimited: true, unit: never}}", `"unit" cannot be combined with unlimited: true`, `warning: unknown unit "never"`},
		{"{key: k, rate_limit: {unlimited: true, requests_per_unit: 5}}", `warning: "requests_per_unit" has no effect`, `"requests_per_unit" has no effect`},
		{"{key: k, rate_limit: {unlimited: perhaps}}", `"unlimited" must be true or false, not "perhaps"`, `"unlimited" must be true or false`},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 0}}", "warning: a limit of 0 refuses every request", "a limit of 0 refuses every request"},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 5, cost: 6}}", "the cost 6 is more than the limit of 5", "the cost 6 is more than the limit"},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 5, cost: 0}}", "a cost of 0 counts nothing", "a cost of 0 counts nothing"},
		{"{key: k, rate_limit: {unit: minute, requests_per_unit: 5, burst: 6}}", `"burst" does not apply to fixed_window`, `"burst" does not apply to fixed_window`},
		{`{key: k, rate_limit: {name: "", unit: minute, requests_per_unit: 5}}`, `warning: "name" is empty`, `"name" is empty`},
		{"{key: k, rate_limit: {name: " + strings.Repeat("n", 257) + ", unit: minute, requests_per_unit: 5}}", "is longer than 256 bytes", "is longer than 256 bytes"},
		{"{key: k, shadow_mode: true}", `warning: "shadow_mode" has no effect without a rate_limit`, `"shadow_mode" has no effect`},
		{"{key: k, quota_mode: sometimes, " + limit + "}", `"quota_mode" must be true or false, not "sometimes"`, `"quota_mode" must be true or false`},
		{"{key: k, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5, percent: 50}}", `"percent" has no effect with`, `"percent" has no effect with`},
		{"{key: k, metadata: x, " + limit + "}", `"metadata" must be a mapping (name: value), not text`, `"metadata" must be a mapping`},
		{"{key: k, metadata: {a: 1}}", `"metadata" has no effect without a rate_limit`, `"metadata" has no effect`},
		{"{key: k, share_threshold: true, " + limit + "}", `"share_threshold" needs a value with a *`, `"share_threshold" needs a value with a *`},
		{`{key: k, value: "a*b", share_threshold: true, ` + limit + "}", "", ""},
		{`{key: k, value: "a*", share_threshold: on, ` + limit + "}", "", ""},
		{"{key: k}", `the descriptor "k" has no effect`, `the descriptor "k" has no effect`},
		{"{key: k, descriptors: {key: x}}", `"descriptors" must be a list, not a mapping`, `"descriptors" must be a list`},
		{"{key: k, " + limit + ", descriptors: }", `warning: "descriptors" has no value`, `"descriptors" has no value`},
		{"text", "descriptor 1 must be a mapping (key: value), not text", "descriptor 1 must be a mapping"},
	} {
		for compat, want := range map[rules.Compat]string{rules.CompatNone: row.none, rules.CompatEnvoy: row.envoy} {
			said, set := read(compat, row.text)
			if want == "" && said != "" || !strings.Contains(said, want) || (set == nil) != strings.Contains(said, "error:") {
				t.Errorf("%s, compat %s: %q, want %q", row.text, compat, said, want)
			}
		}
	}
}

// What replaces names has to be there, and is not the limit itself.
func TestReplaces(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"[{name: other}]":                "",
		"[{name: other}, {name: other}]": `warning: "other" is replaced twice`,
		"[{name: othr}]":                 `unknown limit "othr" in domain "d", did you mean "other"?`,
		"[{name: own}]":                  `error: the limit "own" cannot replace itself`,
		"[{name: ''}]":                   `error: "name" is empty in an entry of replaces`,
		"[{}]":                           `error: an entry of replaces has no "name"`,
		"[other]":                        "an entry of replaces must be a mapping",
		"other":                          `"replaces" must be a list, not text; for example replaces: [{name: other}]`,
	} {
		said, set := read(rules.CompatNone,
			"{key: a, rate_limit: {name: other, unit: minute, requests_per_unit: 1}}",
			"{key: b, rate_limit: {name: own, unit: minute, requests_per_unit: 1, replaces: "+list+"}}")
		if want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", list, said, want)
		}
		if want == "" && fmt.Sprint(set.Rules()[1].Replaces) != "[other]" {
			t.Errorf("it replaces %v", set.Rules()[1].Replaces)
		}
	}
}

// Of two descriptors that match the same, one is reported: as a duplicate, or as one
// that nothing is left for.
func TestDescriptorsThatNeverMatch(t *testing.T) {
	t.Parallel()
	d := func(key, value string) string {
		return fmt.Sprintf("{key: %q, value: %q, %s}", key, value, limit)
	}
	for _, row := range []struct {
		first, second string
		none, envoy   string
	}{
		{d("k", "a"), d("k", "a"), `duplicate descriptor composite key "k_a": first in e.yaml:3:5`, "duplicate descriptor composite key"},
		{d("k", ""), d("k", ""), "duplicate descriptor composite key", "duplicate descriptor composite key"},
		{d("k", "a"), d("k", "b"), "", ""},
		{d("k_a", "b"), d("k", "a_b"), "", "duplicate descriptor composite key"},
		{d("k", "a*"), d("k", "ab*"), "", `the descriptor "k_ab*" can never match: "k_a*" (e.yaml:3:5) takes precedence for everything`},
		{d("k", "ab*"), d("k", "a*"), "", ""},
		{d("k", "*a*"), d("k", "**a*"), `can never match`, `can never match`},
		{d("k", "*"), d("k", ""), `the descriptor "k" can never match: "k_*"`, `the descriptor "k" can never match: "k_*"`},
	} {
		for compat, want := range map[rules.Compat]string{rules.CompatNone: row.none, rules.CompatEnvoy: row.envoy} {
			var said []string
			text, _ := read(compat, row.first, row.second)
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "an empty value") {
					said = append(said, line)
				}
			}
			if got := strings.Join(said, ""); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s and %s, compat %s: %q, want %q", row.first, row.second, compat, got, want)
			}
		}
	}
}

// The keys next to a rate_limit end up in the rule.
func TestModes(t *testing.T) {
	t.Parallel()
	_, set := read(rules.CompatNone,
		"{key: a, value_to_metric: true, shadow_mode: true, quota_mode: yes, detailed_metric: true, metadata: {n: 1, l: [x, {y: null}]}, "+
			"rate_limit: {name: own, unit: minute, requests_per_unit: 5, cost: 2, percent: 100, on_store_error: deny, description: why}, "+
			"descriptors: [{key: b, value: \"v*\", share_threshold: true, value_to_metric: true, "+limit+"}, {key: c, value_to_metric: true, "+limit+"}]}")
	if set == nil {
		t.Fatal("it is not read")
	}
	var got []string
	for _, r := range set.Rules() {
		got = append(got, fmt.Sprint(r.Name, " ", r.LimitName, " ", r.Mode, " ", r.QuotaMode, " ", r.DetailedMetric, " ", r.MetricValues, " ", r.Cost, " ", r.OnStoreError, " ", r.Description, " ", r.Metadata))
	}
	want := "a own shadow true true [0] 2 deny why map[l:[x map[y:<nil>]] n:1]\n" +
		"a.b_v_  enforce false false [0] 1 allow  map[]\n" +
		"a.c  enforce false false [0 1] 1 allow  map[]"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// Several documents may add to the descriptors of a domain if one of them says so, and
// only if they agree on compat.
func TestSeveralDocuments(t *testing.T) {
	t.Parallel()
	doc := func(more, key string) string {
		return "domain: d\n" + more + "descriptors:\n  - {key: " + key + ", " + limit + "}\n"
	}
	for _, row := range []struct{ src, want string }{
		{doc("", "a") + "---\n" + doc("", "b"), `duplicate domain "d": its descriptors are already in f.yaml:2:1; set merge_domains: true to combine them`},
		{doc("merge_domains: true\n", "a") + "---\n" + doc("", "b"), ""},
		{doc("", "a") + "---\n" + doc("merge_domains: yes\n", "b"), ""},
		{doc("merge_domains: true\n", "a") + "---\n" + doc("merge_domains: true\n", "a"), "duplicate descriptor composite key"},
		{doc("merge_domains: true\ncompat: none\n", "a") + "---\n" + doc("compat: envoy\n", "b"), "have none, these have envoy"},
		{doc("merge_domains: perhaps\n", "a"), `"merge_domains" must be true or false`},
		{doc("compat: enovy\n", "a"), `did you mean "envoy"?`},
		{"domain: d\ncompat: envoy\nlimits: [{name: a, rate: 1/s}]\n", `"compat" has no effect without descriptors`},
	} {
		set, list := rulefile.Parse(rulefile.Source{Name: "f.yaml", Data: []byte(row.src)})
		if set != nil {
			list = set.Warnings()
		}
		said := ""
		for _, d := range list {
			said += d.String() + "\n"
		}
		if row.want == "" && said != "" || !strings.Contains(said, row.want) {
			t.Errorf("%s: %q, want %q", row.src, said, row.want)
		}
	}
}
