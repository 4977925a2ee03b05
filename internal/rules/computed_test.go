package rules_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// language is an attribute as CONTRIBUTING says that one is made: the first language
// that a client asks for.
func language() rules.Computed {
	return rules.Computed{Name: "language", Of: func(r rules.Request) (string, bool) {
		text, ok := r.Attribute(rules.Attribute{Kind: rules.Header, Name: "Accept-Language"})
		first, _, _ := strings.Cut(text, ",")
		word, _, _ := strings.Cut(strings.TrimSpace(first), "-")
		return word, ok && word != ""
	}}
}

const languageRules = `
domain: d
limits:
  - {name: each, rate: 5/minute, key: [language]}
  - {name: german, rate: 5/minute, match: {attributes: {language: de}}}
  - {name: none, rate: 5/minute, match: {attributes: {language: {present: false}}}}
  - {name: tiers, tiers: {by: language, fr: {rate: 1/minute}}, rate: 2/minute}
  - {name: costs, rate: 9/minute, cost: {from: language, default: 3}}
`

func parseComputed(t *testing.T, src string, onlyHTTP bool, computed ...rules.Computed) (*rules.Ruleset, error) {
	t.Helper()
	b := rules.NewBuilder("", computed...)
	p, report := ownform.NewParser(b), &yamltext.Report{File: "toy.yaml"}
	p.Report, p.OnlyHTTP = report, onlyHTTP
	for _, doc := range yamltext.Read([]byte(src), report) {
		f := report.Fields(doc, "the file", []string{"domain", "limits"})
		p.ParseLimits(f, f.Get("domain").Text)
	}
	if p.Finish(); report.Errors > 0 {
		return nil, diagnostic.Problems(report.Sorted())
	}
	return b.Ruleset(1, nil), nil
}

// A new attribute takes a function and its name in a list: conditions, keys, tiers and
// costs have it then, at every door.
func TestToyAttribute(t *testing.T) {
	t.Parallel()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := parseComputed(t, languageRules, true, language())
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{
		"de-AT,en;q=0.7": "each: de; german; tiers; costs",
		"fr":             "each: fr; tiers; costs",
		"en, de":         "each: en; tiers; costs",
		"":               "each; none; tiers; costs",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if accept != "" {
			r.Header.Set("Accept-Language", accept)
		}
		var q httprequest.Request
		q.SetRequest(r, clients, client.Identity{})
		var m rules.Matches
		if set.Match("d", &q, &m); checks(&m) != want {
			t.Errorf("%q: %s, want %s", accept, checks(&m), want)
		}
		if tier := m.Checks[len(m.Checks)-2].Rule.Tier; (tier == "fr") != (accept == "fr") {
			t.Errorf("%q: the tier %q", accept, tier)
		}
		list, _ := set.Explain("d", &q)
		applies := 0
		for _, x := range list {
			if x.Applies {
				applies++
			}
		}
		if applies != len(m.Checks) {
			t.Errorf("%q: explain says that %d rules apply, not %d", accept, applies, len(m.Checks))
		}
	}

	// What a caller says comes first.
	var told described.Request
	told.Add(rules.Attribute{Name: "language"}, "it", clients)
	told.Add(rules.Attribute{Kind: rules.Header, Name: "Accept-Language"}, "de", clients)
	var m rules.Matches
	if set.Match("d", &told, &m); !strings.HasPrefix(checks(&m), "each: it; tiers") {
		t.Errorf("of a caller's own: %s", checks(&m))
	}
}

// Without the line in the list, no request of HTTP has the attribute.
func TestUnknownAttributeIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := parseComputed(t, languageRules, true); err == nil || !strings.Contains(err.Error(), `unknown attribute "language"`) {
		t.Errorf("got %v", err)
	}
}

// Names in the list are ones that rules can write, and no two are the same.
func TestComputedAttributes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range append(rules.ComputedAttributes(), language()) {
		a, err := rules.ParseAttribute(c.Name)
		if err != nil || a != (rules.Attribute{Kind: rules.Other, Name: c.Name}) || strings.Contains(c.Name, ":") || seen[c.Name] || c.Of == nil {
			t.Errorf("%q: %v, %v", c.Name, a, err)
		}
		seen[c.Name] = true
	}
}
