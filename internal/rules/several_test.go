package rules_test

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// valued is a request whose attributes have several values, by their text. The
// first may be none.
type valued map[string][]string

const none = "<none>"

func (v valued) Attribute(a rules.Attribute) (string, bool) {
	if values := v[a.String()]; len(values) > 0 && values[0] != none {
		return values[0], true
	}
	return "", false
}

func (v valued) AppendOthers(dst []string, a rules.Attribute) []string {
	values := v[a.String()]
	return append(dst, values[min(len(values), 1):]...)
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

// TestSeveralValues: a rule counts a request under every value that it may mean.
func TestSeveralValues(t *testing.T) {
	t.Parallel()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(severalRules)})
	if rs == nil {
		t.Fatal(problems)
	}
	many := strings.Split("1 2 3 4 5 6 7 8 9", " ")
	for _, row := range []struct {
		name string
		r    valued
		want string
	}{
		{"nothing", valued{}, "one:- both:-,-"},
		{"one value", valued{"header:A": {"x"}, "query:b": {"y"}}, "one:x both:x,y not:"},
		{"two of a header", valued{"header:A": {"x", "y"}}, "one:x one:y both:x,- both:y,- not:"},
		{"two of two", valued{"header:A": {"x", "y"}, "query:b": {"1", "2"}}, "one:x one:y both:x,1 both:y,1 both:x,2 both:y,2 not:"},
		{"too many", valued{"header:A": many}, "one:1! both:1,-! is: not:"},
		{"too many together", valued{"header:A": many[:5], "query:b": many[:4]}, "one:1 one:2 one:3 one:4 one:5 both:1,1! not:"},
		{"perhaps none", valued{"header:A": {none, "x"}}, "one:- one:x both:-,- both:x,- not:"},
		{"perhaps none, skipped", valued{"cookie:c": {none, "x"}}, "one:- both:-,- cookie:x"},
		{"any is wanted", valued{"header:A": {"x", "wanted"}}, "one:x one:wanted both:x,- both:wanted,- is: not:"},
		{"one is spared", valued{"header:A": {"x", "spared"}}, "one:x one:spared both:x,- both:spared,- not:"},
		{"all are spared", valued{"header:A": {"spared"}}, "one:spared both:spared,-"},
		{"cookies that are one", valued{"cookie:c": {"a%20b", `"a b"`, "a+b"}}, "one:- both:-,- cookie:a b"},
		{"schemes that are one", valued{"header:Authorization": {"bearer  t", "Bearer t"}}, "one:- both:-,- auth:Bearer t"},
		{"an unclear cookie", valued{"cookie:c": {`"r\145al"`}}, `one:- both:-,- cookie:r\145al cookie:real cookie:-`},
		{"an unclear cookie next to another", valued{"cookie:c": {"junk", `"r\145al"`}}, `one:- both:-,- cookie:junk cookie:r\145al cookie:real cookie:-`},
		{"an unclear cookie that some drop", valued{"cookie:c": {none, "real\xa0"}}, "one:- both:-,- cookie:real\xa0 cookie:real cookie:-"},
		{"unclear credentials", valued{"header:Authorization": {"Basic YWI6Yw==QUFB"}}, "one:- both:-,- auth:Basic YWI6Yw== auth:Basic YWI6YwQUFA== auth:-"},
		{"an unclear cookie may be wanted", valued{"cookie:w": {`"w\141nted"`}}, "one:- both:-,- wanted:"},
		{"and so may one next to another", valued{"cookie:w": {"x", `"w\141nted"`}}, "one:- both:-,- wanted:"},
		{"an unclear cookie is no tier", valued{"cookie:t": {`"pr\157"`}}, "one:- both:-,- cookietier:"},
		{"tokens, the first no good", valued{"jwt:sub": {none, "anna", "bert"}, "jwt:role": {none, "guest"}}, "one:- both:-,- sub:anna sub:bert guests:"},
		{"the tenth is dear", valued{"header:T": append(slices.Clone(many), "70")}, "one:- both:-,- costly:*90"},
		{"the dearest", valued{"header:T": {"1", "70"}}, "one:- both:-,- costly:*70"},
		{"the first tier", valued{"header:P": {"free", "pro"}}, "one:- both:-,- tiered:"},
		{"the first tier, again", valued{"header:P": {"pro", "free"}}, "one:- both:-,- tiered/pro:"},
	} {
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

// TestSeveralValuesOfDescriptors is the same for rules in the form of descriptors.
func TestSeveralValuesOfDescriptors(t *testing.T) {
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
		{"two values", valued{"query:u": {"x", "y"}}, "1:x 1:y"},
		{"twice the same", valued{"cookie:c": {"x", "x"}}, "2:x"},
		{"with quotes, which PHP keeps", valued{"cookie:c": {"x", `"x"`}}, `2:x 2:"x"`},
		{"perhaps one", valued{"query:u": {none, "y"}}, "1:y"},
		{"at two depths", valued{"cookie:c": {"x", "y"}, "header:A": {"a", "b"}}, "2:x 3:x,a 3:x,b 2:y 3:y,a 3:y,b"},
		{"the other is known", valued{"cookie:c": {"x", "known"}}, "2:x 4:"},
		{"unclear", valued{"cookie:c": {`"kn\157wn"`}}, `2:kn\157wn 4: 2:`},
		{"unclear next to another", valued{"cookie:c": {"x", `"kn\157wn"`}}, `2:x 2:kn\157wn 4: 2:`},
		{"too many", valued{"query:u": strings.Split("1 2 3 4 5 6 7 8 9", " ")}, "1:1! 1:!"},
	} {
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
	case math.MaxInt64:
		return "!"
	case 70:
		return "*70"
	case 90:
		return "*90"
	}
	return "?"
}
