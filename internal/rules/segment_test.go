package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
)

const segmentRules = `
domain: d
limits:
  - {name: tenant, rate: 1/s, key: path:2, match: {path: /v1/**}}
  - {name: one, rate: 1/s, key: path:2, match: {path: /v1/*}}
  - {name: exact, rate: 1/s, key: path:2, match: {path: /v1/**, path_case: sensitive}}
  - {name: skips, rate: 1/s, key: [path:3, "hash:path:2"], key_missing: skip, match: {path: /v1/**}}
  - {name: both, rate: 1/s, key: [path, path:2], match: {path: /both/**}}
  - {name: values, rate: 5/hour, count: distinct, of: path, key: path:2, match: {path: /both/**}}
`

// keysOf returns what the rules count a path by.
func keysOf(t *testing.T, set *rules.Ruleset, path string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	var m rules.Matches
	set.Match("d", request(t, "path="+path), &m)
	for _, c := range m.Checks {
		parts, ok := rules.SplitKey(c.Key)
		if !ok {
			t.Errorf("%s: %q", path, c.Key)
		}
		var texts []string
		for _, p := range parts {
			if p.Missing {
				p.Value = "-"
			}
			texts = append(texts, p.Value)
		}
		out[c.Rule.Name] = append(out[c.Rule.Name], strings.Join(texts, ","))
	}
	return out
}

// A path counts by the segment of each of its readings that a rule matches.
func TestSegmentsOfPaths(t *testing.T) {
	set := parse(t, segmentRules)
	for _, c := range []struct {
		path, rule string
		want       []string
	}{
		{"/v1/acme/orders/7", "tenant", []string{"acme"}},
		{"/v1/ACME/orders/", "tenant", []string{"acme"}},
		{"/v1/ACME", "exact", []string{"ACME"}},
		{"/v1/caf%c3%89", "tenant", []string{"cafÉ"}},
		{"/v1/a%40b/x", "tenant", []string{"a@b"}},
		{"/v1/%2561cme/x", "tenant", []string{"acme"}},
		{"/v1/acme;s=1/x", "tenant", []string{"acme"}},
		{"/v1/acme/files/a%2fb", "tenant", []string{"acme"}},
		{"/v1/acme/../other/x", "tenant", []string{"acme", "other"}},
		{"/v1/acme%2f..%2fother", "tenant", []string{"acme/../other", "acme", "other"}},
		{"/v1/acme%2fx", "one", []string{"acme/x"}},
		{"/v1", "tenant", []string{"-"}},
		{"/v1//acme", "tenant", []string{"-", "acme"}},
		{"/v1/acme", "skips", nil},
		{"/both/a/../b", "both", []string{"/both/b,a", "/both/b,b", "/both/a/b,a"}},
		{"/both/a", "values", []string{"a"}},
	} {
		if got := keysOf(t, set, c.path)[c.rule]; !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.path, c.rule, got, c.want)
		}
	}
}

// A path with too many readings counts under one key, as it does for path.
func TestSegmentOfAPathThatNobodyCanRead(t *testing.T) {
	got := keysOf(t, parse(t, segmentRules), "/v1/a/..%5c..;/%2e%2e//login%23/%253b/b")
	if want := []string{"//"}; !slices.Equal(got["tenant"], want) {
		t.Errorf("%q, want %q", got["tenant"], want)
	}
}

// An operator names a segment as clients write it.
func TestSegmentsAreComposed(t *testing.T) {
	set := parse(t, segmentRules)
	var m rules.Matches
	set.Match("d", request(t, "path=/v1/acme"), &m)
	for _, text := range []string{"acme", "ACME", "%61cme", "acme;x"} {
		if key, err := m.Checks[0].Rule.ComposeKey([]rules.KeyPart{{Value: text}}); err != nil || key != m.Checks[0].Key {
			t.Errorf("%s: %q, %v, want %q", text, key, err, m.Checks[0].Key)
		}
	}
}

func TestSegmentThatIsMissingIsExplained(t *testing.T) {
	got := explained(parse(t, segmentRules), request(t, "path=/v1/acme"))
	if want := "skips: key: wants a value of path:3 (key_missing: skip), is absent\n"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSegmentsAllocateNothing(t *testing.T) {
	set := parse(t, segmentRules)
	req := request(t, "path=/v1/Acme/x")
	var m rules.Matches
	set.Match("d", req, &m)
	if n := testing.AllocsPerRun(100, func() { set.Match("d", req, &m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
