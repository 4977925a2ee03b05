package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestShareThresholdUnderCompat: values that are counted together are replaced by the
// part of the rule's composite key after the entry's key, wherever its own _ is.
func TestShareThresholdUnderCompat(t *testing.T) {
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "t.yaml", Data: []byte(`
domain: d
compat: envoy
descriptors:
  - {key: a_b, value: "*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: "k*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 5}}
`)})
	if set == nil {
		t.Fatal(diagnostics)
	}
	lookups{
		{"a_b=1", "a_b__: d_a_b_*_"},
		{"a=b_c", "a_b__: d_a_b_*_"}, // the same count
		{"k=1", "k_: d_k_k*_"},
		{"kx=2", "k_: d_kx_k*_"},
	}.run(t, set)
}

// TestOverlookedUnderCompat: what envoyproxy/ratelimit takes and can safely be
// taken is, with a warning where it is hardly meant, under compat alone.
func TestOverlookedUnderCompat(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		limits     []string
		warns      string
	}{
		{"notations", "descriptors: [" + strings.Join([]string{
			"{key: a, rate_limit: {unit: day, requests_per_unit: 0x10}}", "{key: b, rate_limit: {unit: day, requests_per_unit: 010}}",
			"{key: c, rate_limit: {unit: day, requests_per_unit: 0b11}}", "{key: d, rate_limit: {unit: day, requests_per_unit: 1_000}}",
		}, ", ") + "]\ndomain: d", []string{"16", "8", "3", "1000"}, ""},
		{"a second rate_limit adds to the first", "domain: d\ndescriptors:\n  - key: b\n    rate_limit: {unit: hour, requests_per_unit: 5}\n    rate_limit: {unit: day}", []string{"5"}, "its keys are merged into those on line 4"},
		{"nothing after a rate_limit", "domain: d\ndescriptors:\n  - key: b\n    rate_limit: {unit: hour, requests_per_unit: 5}\n    rate_limit:", nil, "the one on line 4 is ignored"},
		{"the last of two keys", "domain: x\ndomain: d\ndescriptors:\n  - key: a\n    key: b\n    rate_limit: {unit: day, requests_per_unit: 1, requests_per_unit: 5}", []string{"5"}, "duplicate key"},
		{"a unit that is none", "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: fortnight}}]", []string{"unlimited"}, "no effect with unlimited"},
		{"a number as domain", "domain: 12\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]", []string{"1"}, ""},
	} {
		set, diagnostics := rulefile.Options{Compat: rules.CompatEnvoy}.Parse(rulefile.Source{Name: "t.yaml", Data: []byte(tt.text)})
		if set == nil {
			t.Errorf("%s: %v", tt.name, diagnostic.Problems(diagnostics))
			continue
		}
		var got []string
		for _, r := range set.Rules() {
			got = append(got, strings.TrimSuffix(r.Limit.String(), "/24h"))
		}
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], "/")
		}
		if !slices.Equal(got, tt.limits) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.limits)
		}
		if text := diagnostic.Problems(diagnostics).Error(); !strings.Contains(text, tt.warns) || tt.warns == "" && len(diagnostics) > 0 {
			t.Errorf("%s: %s", tt.name, text)
		}
		if tt.name == "the last of two keys" && set.Rules()[0].Name != "b" {
			t.Errorf("%s: %s", tt.name, set.Rules()[0].Name)
		}
		if set, _ := rulefile.Parse(rulefile.Source{Name: "t.yaml", Data: []byte(tt.text)}); set != nil {
			t.Errorf("%s: taken without compat", tt.name)
		}
	}
}
