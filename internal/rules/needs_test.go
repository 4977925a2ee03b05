package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// having is a request with some attributes.
type having map[string]string

func (h having) Attribute(a rules.Attribute) (string, bool) { v, ok := h[a.String()]; return v, ok }

func (having) ClientIP() netip.Addr { return netip.Addr{} }

// TestMissing: the key alone shows which of its parts were missing, however long the
// others are.
func TestMissing(t *testing.T) {
	t.Parallel()
	long, hash := strings.Repeat("x", 200), strings.Repeat("y", 300)
	for _, row := range []struct {
		key  string
		has  having
		want uint64
	}{
		{"[a, b, c]", having{}, 0b111},
		{"[a, b, c]", having{"a": "", "c": "1"}, 0b010},
		{"[a, b, c]", having{"a": long, "b": hash}, 0b100},
		{"[a, b, c]", having{"a": hash, "c": long}, 0b010},
		{"[a, b, c]", having{"a": "\x80\x00", "b": "\x80\x00", "c": "\x80"}, 0},
		{`["hash:a", "hash:b", c]`, having{"a": "1"}, 0b110},
		{`["hash:a", "hash:b", c]`, having{"a": "1", "b": "2"}, 0b100},
	} {
		text := "domain: d\nlimits:\n  - {name: r, key: " + row.key + ", rate: 5/minute}\n"
		rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
		if rs == nil {
			t.Fatal(problems)
		}
		var m rules.Matches
		rs.Match("d", row.has, &m)
		r, key := m.Checks[0].Rule, m.Checks[0].Key
		if got := r.Missing(key); got != row.want {
			t.Errorf("%s of %d attributes: %03b, want %03b", row.key, len(row.has), got, row.want)
		}
		for end := range key {
			r.Missing(key[:end]) // whatever it says, it does not fail
		}
	}
}

// TestNeeds: without which attributes a rule does not apply.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: r, key: [client_ip, tenant], rate: 5/minute}":                                     "[]",
		"{name: r, key: [client_ip, tenant], key_missing: skip, rate: 5/minute}":                  "[client_ip tenant]",
		`{name: r, match: {method: GET, path: /a, host: a.example}, rate: 5/minute}`:              "[host]",
		`{name: r, match: {headers: {X-A: a, X-B: {not: b}}, cookies: {c: "*"}}, rate: 5/minute}`: "[header:X-A cookie:c]",
		`{name: r, match: {attributes: {a: x}}, key: [a], key_missing: skip, rate: 5/minute}`:     "[a]",
	} {
		rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte("domain: d\nlimits:\n  - " + text + "\n")})
		if rs == nil {
			t.Fatal(text, problems)
		}
		var got []string
		for _, a := range rs.Rules()[0].Needs() {
			got = append(got, a.String())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
	tree := "domain: e\ndescriptors:\n  - key: generic_key\n    value: a\n    descriptors:\n      - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 5}}\n"
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(tree)})
	if rs == nil {
		t.Fatal(problems)
	}
	if got := rs.Rules()[0].Needs(); len(got) != 1 || got[0].Name != "generic_key" {
		t.Errorf("%v", got)
	}
}
