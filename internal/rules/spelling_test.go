package rules_test

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// normalisations are what servers do with a path before they choose a handler.
var normalisations = []func(string) string{
	path.Clean,
	func(p string) string {
		if decoded, err := url.PathUnescape(p); err == nil {
			return decoded
		}
		return p
	},
	func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	func(p string) string { before, _, _ := strings.Cut(p, ";"); return before },
	func(p string) string { before, _, _ := strings.Cut(p, "\x00"); return before },
	func(p string) string { before, _, _ := strings.Cut(p, "\n"); return before },
	func(p string) string {
		steps := strings.Split(p, "/")
		for i := range steps {
			steps[i], _, _ = strings.Cut(steps[i], ";")
		}
		return strings.Join(steps, "/")
	},
	func(p string) string { // as the authors of web applications parse it
		if u, err := url.Parse(p); err == nil && u.Path != "" {
			return u.Path
		}
		return p
	},
	strings.ToLower,
}

// If any sequence of normalisations comes to a protected path, a rule for it
// applies, counts by that path, or its segment, and is not escaped by the exclusion.
func FuzzNoSpellingSlipsPast(f *testing.F) {
	f.Add("/v1/otp/1234%2f..%2f..%2f..%2flogin", []byte{1, 0})
	f.Add("/x/..;/LOGIN", []byte{5, 0, 7})
	f.Add("//host/%256cogin/", []byte{6, 1, 0})
	f.Add("/v1/health;/../otp", []byte{3, 0})
	f.Add("/v1/otp/..%5chealth", []byte{0})
	f.Add("/v1/acme/../other/%2541", []byte{0, 3})
	set, diagnostics := rulefile.Parse(rulefile.Source{Name: "fuzz.yaml", Data: []byte(`
domain: d
limits:
  - {name: login, rate: 1/s, key: path, match: {path: /login}}
  - {name: v1, rate: 1/s, match: {path: [/v1/**, "!/v1/health"]}}
  - {name: tenant, rate: 1/s, key: path:2, match: {path: /v1/**}}
`)})
	if set == nil {
		f.Fatal(diagnostic.Problems(diagnostics))
	}
	f.Fuzz(func(t *testing.T, sent string, steps []byte) {
		if !strings.HasPrefix(sent, "/") || len(steps) > 8 {
			return
		}
		read := sent
		for _, step := range steps {
			if read = normalisations[int(step)%len(normalisations)](read); !strings.HasPrefix(read, "/") {
				return
			}
		}
		var m rules.Matches
		set.Match("d", &fakeRequest{attributes: map[rules.Attribute]string{{Kind: rules.Path}: sent}}, &m)
		got := map[string][]string{}
		for _, c := range m.Checks {
			got[c.Rule.Name] = append(got[c.Rule.Name], c.Key)
		}
		if trimmed := strings.TrimRight(read, "/"); strings.EqualFold(trimmed, "/login") {
			key := string(rules.AppendPart(nil, "/login"))
			beyond := string(rules.AppendPart(nil, reading.Unread))
			if keys := got["login"]; len(keys) == 0 || !strings.Contains(strings.Join(keys, " "), key) && keys[0] != beyond {
				t.Errorf("%q is read as %q by %v, and counted by %q", sent, read, steps, keys)
			}
		}
		if strings.HasPrefix(read, "/v1/") && read != "/v1/health" && len(got["v1"]) == 0 {
			t.Errorf("%q is read as %q by %v, and no rule applies", sent, read, steps)
		}
		if rest, is := strings.CutPrefix(read, "/v1/"); is {
			text, _, _ := strings.Cut(rest, "/")
			key, beyond := string(rules.AppendPart(nil, reading.Fold(reading.Segment(text)))), string(rules.AppendPart(nil, reading.Unread))
			if key == string(rules.AppendPart(nil, "")) {
				key = rules.MarkMissing
			}
			if keys := got["tenant"]; !slices.Contains(keys, key) && !slices.Contains(keys, beyond) {
				t.Errorf("%q is read as %q by %v, and counted by %q, not by %q", sent, read, steps, keys, key)
			}
		}
	})
}
