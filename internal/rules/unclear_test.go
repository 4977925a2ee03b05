package rules_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// valued is a request whose attributes may have several values, by their text.
type valued map[string][]string

func (v valued) Attribute(a rules.Attribute) (string, bool) {
	if values := v[a.String()]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

func (v valued) Read(a rules.Attribute) (value string, ok, unclear bool) {
	value, ok = v.Attribute(a)
	return value, ok, len(slices.Compact(slices.Sorted(slices.Values(v[a.String()])))) > 1
}

func (valued) ClientIP() netip.Addr { return netip.Addr{} }

const severalRules = `
domain: d
limits:
  - {name: one, key: ["header:A"], rate: 1/day}
  - {name: both, key: ["header:A", "query:b"], rate: 1/day}
  - {name: cookie, key: ["cookie:c"], key_missing: skip, rate: 1/day}
  - {name: auth, key: ["header:Authorization"], key_missing: skip, rate: 1/day}
  - {name: sub, key: ["jwt:sub"], key_missing: skip, rate: 1/day}
  - {name: guests, match: {jwt: {role: guest}}, rate: 1/day}
  - {name: is, match: {headers: {A: wanted}}, rate: 1/day}
  - {name: not, match: {headers: {A: {not: spared, present: true}}}, rate: 1/day}
  - {name: costly, match: {headers: {T: {present: true}}}, cost: {from: "header:T", max: 90}, rate: 100/day}
  - {name: wanted, match: {cookies: {w: wanted}}, rate: 1/day}
  - {name: cookietier, match: {cookies: {t: {present: true}}}, rate: 1/day, tiers: {by: "cookie:t", pro: {rate: 9/day}}}
  - {name: tiered, match: {headers: {P: {present: true}}}, rate: 1/day, tiers: {by: "header:P", pro: {rate: 9/day}}}
`

// TestUnclearValues: a rule counts all values of a client that are unclear under one key,
// whatever they are.
func TestUnclearValues(t *testing.T) {
	t.Parallel()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(severalRules)})
	if rs == nil {
		t.Fatal(problems)
	}
	for _, row := range []struct {
		name string
		r    valued
		want string
	}{
		{"nothing", valued{}, "one:- both:-,-"},
		{"one value", valued{"header:A": {"x"}, "query:b": {"y"}}, "one:x both:x,y not:"},
		{"twice the same", valued{"header:A": {"x", "x"}}, "one:x both:x,- not:"},
		{"two of a header", valued{"header:A": {"x", "y"}}, "one:unclear:a both:unclear:a,unclear:a is: not:"},
		{"two of two", valued{"header:A": {"x", "y"}, "query:b": {"1", "2"}}, "one:unclear:a both:unclear:a,unclear:a is: not:"},
		{"one spared of two", valued{"header:A": {"x", "spared"}}, "one:unclear:a both:unclear:a,unclear:a is: not:"},
		{"spared", valued{"header:A": {"spared"}}, "one:spared both:spared,-"},
		{"of another client, it says", valued{"header:A": {"unclear:b"}}, "one:unclear:a both:unclear:a,unclear:a is: not:"},
		{"a cookie", valued{"cookie:c": {"a+b"}}, "one:- both:-,- cookie:a b"},
		{"in quotes", valued{"cookie:c": {`"a b"`}}, "one:- both:-,- cookie:a b"},
		{"a scheme in small letters", valued{"header:Authorization": {"bearer  t"}}, "one:- both:-,- auth:Bearer t"},
		{"another scheme", valued{"header:Authorization": {"Token t"}}, "one:- both:-,- auth:Bearer t"},
		{"a cookie with backslashes", valued{"cookie:c": {`"r\145al"`}}, "one:- both:-,- cookie:unclear:a"},
		{"lenient base64", valued{"header:Authorization": {"Basic YWI6Yw==QUFB"}}, "one:- both:-,- auth:unclear:a"},
		{"it may be wanted", valued{"cookie:w": {`"w\141nted"`}}, "one:- both:-,- wanted:"},
		{"it is no tier", valued{"cookie:t": {`"pr\157"`}}, "one:- both:-,- cookietier:"},
		{"two tokens", valued{"jwt:sub": {"anna", "bert"}, "jwt:role": {"user", "guest"}}, "one:- both:-,- sub:unclear:a guests:"},
		{"two costs", valued{"header:T": {"1", "70"}}, "one:- both:-,- costly:*90"},
		{"two tiers", valued{"header:P": {"pro", "free"}}, "one:- both:-,- tiered:"},
	} {
		row.r["client_ip"] = []string{"a"}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var m rules.Matches
			for range 2 { // with memory that was used before
				rs.Match("d", row.r, &m)
			}
			var got []string
			for _, c := range m.Checks {
				got = append(got, c.Rule.Name+":"+shownKey(c.Key)+shownCost(c.Cost))
			}
			if text := strings.Join(got, " "); text != row.want {
				t.Errorf("%s\nwant %s", text, row.want)
			}
			list, _ := rs.Explain("d", row.r)
			for _, e := range list {
				if applies := strings.Contains(" "+row.want, " "+e.Rule.Name+":"); applies != e.Applies || applies == (len(e.Mismatches) > 0) {
					t.Errorf("explained %s: applies %v, %v", e.Rule.Name, e.Applies, e.Mismatches)
				}
			}
		})
	}
}

// TestUnclearValuesOfDescriptors is the same for rules in the form of descriptors.
func TestUnclearValuesOfDescriptors(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: "query:u", rate_limit: {unit: day, requests_per_unit: 1}}
  - key: "cookie:c"
    rate_limit: {unit: day, requests_per_unit: 2}
    descriptors: [{key: "header:A", rate_limit: {unit: day, requests_per_unit: 3}}]
  - {key: "cookie:c", value: known, rate_limit: {unit: day, requests_per_unit: 4}}
`
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(problems)
	}
	for _, row := range []struct {
		name string
		r    valued
		want string
	}{
		{"nothing", valued{}, ""},
		{"one value", valued{"query:u": {"x"}}, "1:x"},
		{"two values", valued{"query:u": {"x", "y"}}, "1:unclear:a"},
		{"twice the same", valued{"cookie:c": {"x", "x"}}, "2:x"},
		{"at two depths", valued{"cookie:c": {"x"}, "header:A": {"a", "b"}}, "2:x 3:x,unclear:a"},
		{"known", valued{"cookie:c": {"known"}}, "4:"},
		{"unclear", valued{"cookie:c": {`"kn\157wn"`}, "header:A": {"a"}}, "2:unclear:a 3:unclear:a,a 4:"},
	} {
		row.r["client_ip"] = []string{"a"}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var m rules.Matches
			for range 2 {
				rs.Match("d", row.r, &m)
			}
			var got []string
			for _, c := range m.Checks {
				got = append(got, strconv.FormatInt(c.Rule.Limit.N(), 10)+":"+shownKey(c.Key)+shownCost(c.Cost))
			}
			if text := strings.Join(got, " "); text != row.want {
				t.Errorf("%s\nwant %s", text, row.want)
			}
		})
	}
}

func shownKey(key string) string {
	parts, _ := rules.SplitKey(key)
	var texts []string
	for _, p := range parts {
		text := p.Value
		if p.Missing {
			text = "-"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}

func shownCost(cost int64) string {
	switch cost {
	case 1:
		return ""
	case 90:
		return "*90"
	}
	return "?"
}

// TestUnclearKeysOfTables: who sends two keys has the lowest limit of the table: either of them
// may be the one with it.
func TestUnclearKeysOfTables(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ table, others, want string }{
		{"ann,5/second\nbob,5/minute\ncat,unlimited", "1/second", "5/minute token_bucket"},
		{"ann,5/second", "1/second", "1/second token_bucket"},
		{"ann,5/second\nbob,deny", "1/second", "0/minute token_bucket"},
		{"ann,5/second", "unlimited", "5/second token_bucket"},
		{"ann,5/second", "deny", "0/minute token_bucket"},
	} {
		dir := t.TempDir()
		text := "domain: d\nlimits:\n  - {name: a, key: \"header:A\", rate: {table: t.csv, default: " + row.others + "}}\n"
		for name, content := range map[string]string{"r.yaml": text, "t.csv": "key,rate\n" + row.table + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rs, err := rulefile.Load(filepath.Join(dir, "r.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var m rules.Matches
		rs.Match("d", valued{"header:A": {"ann", "zoe"}}, &m)
		if got := m.Checks[0].Rule.Limit.String(); got != row.want {
			t.Errorf("%s, else %s: %s, want %s", row.table, row.others, got, row.want)
		}
		m = rules.Matches{}
		rs.Match("d", valued{"header:A": {"ann", "ann"}}, &m)
		if got := m.Checks[0].Rule.Limit.String(); got != "5/second token_bucket" {
			t.Errorf("%s: one key twice: %s", row.table, got)
		}
	}
}
