package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// Each TestEnvoyDefect_ shows that a defect of envoyproxy/ratelimit is not in
// here, and, where compat: envoy asks for the same answers, that it is there.

// both parses rules with and without compat: envoy.
func both(t *testing.T, src string) (ours, theirs *rules.Ruleset) {
	t.Helper()
	ours = parse(t, src)
	theirs, diagnostics := rulefile.Options{Compat: rules.CompatEnvoy}.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(src)})
	if theirs == nil {
		t.Fatal(diagnostic.Problems(diagnostics))
	}
	return ours, theirs
}

// The first wildcard of the file wins there.
func TestEnvoyDefect_WildcardFileOrder(t *testing.T) {
	ours, theirs := both(t, `
domain: d
descriptors:
  - {key: path, value: /api/*, rate_limit: {name: wide, unit: hour, requests_per_unit: 5}}
  - {key: path, value: /api/v1/*, rate_limit: {name: narrow, unit: hour, requests_per_unit: 5}}
`)
	lookups{{"path=/api/v1/x", "narrow: /api/v1/x"}, {"path=/api/v2", "wide: /api/v2"}}.run(t, ours)
	lookups{{"path=/api/v1/x", "wide: d_path_/api/v1/x_"}, {"path=/api/v2", "wide: d_path_/api/v2_"}}.run(t, theirs)
}

// There as here every star of a value is a wildcard, but of a key only the last
// one, if there is no value.
func TestEnvoyDefect_StarsOfKeys(t *testing.T) {
	src := `
domain: d
descriptors:
  - {key: path, value: "*.png", rate_limit: {name: png, unit: hour, requests_per_unit: 9}}
  - {key: path, value: "/a/*/b", rate_limit: {name: inner, unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/v*/health*"}
  - {key: path, value: "/x**", rate_limit: {name: two, unit: hour, requests_per_unit: 1}}
  - {key: path, rate_limit: {name: open, unit: hour, requests_per_unit: 5}}
  - {key: "x*", value: v, rate_limit: {name: key, unit: hour, requests_per_unit: 5}}
  - {key: "y*", rate_limit: {name: star, unit: hour, requests_per_unit: 5}}
`
	ours, _ := rulefile.Options{}.Parse(rulefile.Source{Name: "f", Data: []byte(src)})
	lookups{
		{"path=/i.png", "png: /i.png"},
		{"path=/a/x/b", "inner: /a/x/b"},
		{"path=/v1/health", ""},
		{"path=/xy", "two: /xy"},
		{"path=/z", "open: /z"},
	}.run(t, ours)
	theirs, diagnostics := rulefile.Options{Compat: rules.CompatEnvoy}.Parse(rulefile.Source{Name: "f", Data: []byte(src)})
	lookups{
		{"path=/i.png", "png: d_path_/i.png_"},
		{"path=*.png", "png: d_path_*.png_"},
		{"path=/a/x/b", "inner: d_path_/a/x/b_"},
		{"path=/a/x/b.png", "png: d_path_/a/x/b.png_"},
		{"path=/a/b", "open: d_path_/a/b_"},
		{"path=/a/*/b", "inner: d_path_/a/*/b_"},
		{"path=/v1/health", ""},
		{"path=/v*/health/x", ""},
		{"path=/xy", "two: d_path_/xy_"},
		{"path=/x*y", "two: d_path_/x*y_"},
		{"path=/z", "open: d_path_/z_"},
		{"xyz=v", ""},
		{"x*=v", "key: d_x*_v_"},
		{"yes=1", "star: d_yes_1_"},
	}.run(t, theirs)
	if len(diagnostics) > 0 {
		t.Error(diagnostics)
	}
	var m rules.Matches
	req := &attributesOnly{rules.Descriptor{entriesOf("path=/a/x/b")}}
	theirs.Match("d", req, &m)
	if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != "inner" {
		t.Errorf("by attributes: %v", m.Checks)
	}
}

// There a file has one document, whatever follows it.
func TestEnvoyDefect_OneDocumentInAFile(t *testing.T) {
	const first = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {rate: 1/h}}\n---\n"
	const second = "descriptors:\n  - {key: a, rate_limit: {rate: 1/h}}\n"
	for _, test := range []struct {
		name, rest   string
		ours, theirs string // the domains, or nothing if the file is refused
		warning      string
	}{
		{name: "another domain", rest: "domain: e\n" + second, ours: "d e", theirs: "d", warning: "f:6:1"},
		{name: "the same domain", rest: "domain: d\n" + second, theirs: "d", warning: "f:6:1"},
		{name: "limits of our own", rest: "domain: e\nlimits: [{name: n, rate: 1/s}]\n", ours: "d e", theirs: "d e"},
		{name: "with compat", rest: "compat: none\ndomain: e\n" + second, ours: "d e", theirs: "d e"},
		{name: "no mapping", rest: "just text\n", theirs: "d", warning: "f:6:1"},
		{name: "no YAML", rest: "domain: [\n", theirs: "d", warning: "f:1:1"},
		{name: "a custom tag", rest: "domain: !x y\n", theirs: "d", warning: "f:6:1"},
		{name: "nothing", rest: "", ours: "d", theirs: "d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for compat, want := range map[rules.Compat]string{rules.CompatNone: test.ours, rules.CompatEnvoy: test.theirs} {
				set, diagnostics := rulefile.Options{Compat: compat}.Parse(rulefile.Source{Name: "f", Data: []byte("---\n" + first + test.rest)})
				got := ""
				if set != nil {
					got = strings.Join(set.Domains(), " ")
				}
				if got != want {
					t.Errorf("%s: domains %q, want %q: %v", compat, got, want, diagnostics)
				}
				if compat == rules.CompatEnvoy && test.warning != "" {
					if len(diagnostics) != 1 || fmt.Sprintf("f:%d:%d", diagnostics[0].Line, diagnostics[0].Column) != test.warning ||
						!strings.Contains(diagnostics[0].Message, "reads only the first document") {
						t.Errorf("warnings %v", diagnostics)
					}
				}
			}
		})
	}
	own := "compat: envoy\n" + first + "domain: e\n" + second
	if set := parse(t, own); len(set.Domains()) != 2 {
		t.Errorf("a file that says compat itself: domains %v", set.Domains())
	}
}

// share_threshold is for the values that a wildcard matches.
func TestShareThresholdUnderCompatNeedsAStar(t *testing.T) {
	for value, ok := range map[string]bool{"x*": true, "*": true, "x*y*": true, "*x": true, "x*y": true, "x": false} {
		src := fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, value: %q, share_threshold: true, rate_limit: {rate: 1/s}}\n", value)
		if set, diagnostics := (rulefile.Options{Compat: rules.CompatEnvoy}).Parse(rulefile.Source{Name: "f", Data: []byte(src)}); (set != nil) != ok {
			t.Errorf("%s: %v", value, diagnostics)
		}
	}
}

// A tag makes no other value of a word.
func TestTaggedSwitches(t *testing.T) {
	_, theirs := both(t, `
domain: d
descriptors:
  - {key: a, value: "x*", share_threshold: !!bool yes, rate_limit: {name: a, unit: hour, requests_per_unit: 5}}
  - {key: b, rate_limit: {name: b, unlimited: !!bool yes}}
`)
	lookups{{"a=xy", "a: d_a_x*_"}}.run(t, theirs)
	if !theirs.Rules()[1].Limit.Rule().Unlimited {
		t.Error("it is limited")
	}
}

// A branch that leads nowhere hides its sibling there.
func TestEnvoyDefect_NoSecondTry(t *testing.T) {
	ours, theirs := both(t, `
domain: d
descriptors:
  - key: path
    value: /api
    descriptors: [{key: user, value: root, rate_limit: {name: root, unit: hour, requests_per_unit: 5}}]
  - key: path
    rate_limit: {name: path, unit: hour, requests_per_unit: 5}
    descriptors: [{key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 5}}]
`)
	lookups{
		{"path=/api user=u", "user: /api,u"},
		{"path=/api", "path: /api"},
		{"path=/api user=root", "root"},
		{"path=/x user=root", "user: /x,root"},
	}.run(t, ours)
	lookups{
		{"path=/api user=u", ""},
		{"path=/api", ""},
		{"path=/api user=root", "root: d_path_/api_user_root_"},
		{"path=/x user=root", "user: d_path_/x_user_root_"},
	}.run(t, theirs)
}

// There the entry (a_b, c) matches the rule a: b_c.
func TestEnvoyDefect_CompositeKeyCollision(t *testing.T) {
	ours, theirs := both(t, `
domain: d
descriptors:
  - {key: a, value: b_c, rate_limit: {name: one, unit: hour, requests_per_unit: 5}}
  - {key: x_y, rate_limit: {name: two, unit: hour, requests_per_unit: 5}}
`)
	lookups{{"a_b=c", ""}, {"a=b_c", "one"}, {"x=y", ""}, {"x_y=z", "two: z"}}.run(t, ours)
	lookups{
		{"a_b=c", "one: d_a_b_c_"},
		{"a=b_c", "one: d_a_b_c_"},
		{"x=y", "two: d_x_y_"},
		{"x_y=z", "two: d_x_y_z_"},
	}.run(t, theirs)
	// So that this is no duplicate here, and one there.
	src := "domain: d\ndescriptors:\n  - {key: a, value: b_c, rate_limit: {rate: 1/s}}\n  - {key: a_b, value: c, rate_limit: {rate: 1/s}}\n"
	if r := parse(t, src).Rules(); r[0].Name == r[1].Name || r[0].Scope == r[1].Scope {
		t.Errorf("both are %s, %s", r[1].Name, r[1].Scope)
	}
	if set, _ := (rulefile.Options{Compat: rules.CompatEnvoy}).Parse(rulefile.Source{Name: "f", Data: []byte(src)}); set != nil {
		t.Error("no duplicate for compat: envoy")
	}
}

// There (u, x_1) and (u_x, 1) are counted together.
func TestEnvoyDefect_CountersShared(t *testing.T) {
	ours, theirs := both(t, `
domain: d
descriptors:
  - {key: u, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: u_x, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: v, descriptors: [{key: w, rate_limit: {unit: hour, requests_per_unit: 5}}]}
`)
	for _, pair := range [][2]string{{"u=x_1", "u_x=1"}, {"v=a_w_b w=c", "v=a w=b_w_c"}} {
		for _, set := range []*rules.Ruleset{ours, theirs} {
			var ids []string
			for _, words := range pair {
				var m rules.Matches
				set.MatchDescriptor("d", entriesOf(words), &m)
				if len(m.Checks) != 1 {
					t.Fatalf("%s: %d checks", words, len(m.Checks))
				}
				ids = append(ids, m.Checks[0].Rule.Scope+" "+m.Checks[0].Key)
			}
			if same := ids[0] == ids[1]; same != (set == theirs) {
				t.Errorf("%q", ids)
			}
		}
	}
}

// There a month has 30 days from the epoch on, and a week begins on Thursday.
func TestEnvoyDefect_MonthOf30Days(t *testing.T) {
	units := []headgate.CalendarUnit{headgate.Day, headgate.Week, headgate.Month, headgate.Year}
	var src strings.Builder
	src.WriteString("domain: d\ndescriptors:\n")
	for _, u := range units {
		fmt.Fprintf(&src, "  - {key: %s, rate_limit: {unit: %s, requests_per_unit: 5}}\n", u, strings.ToUpper(u.String()))
	}
	src.WriteString("  - {key: zone, rate_limit: {unit: month, requests_per_unit: 5, timezone: Asia/Tokyo}}\n")
	ours, theirs := both(t, src.String())
	days := []int{1, 7, 30, 365}
	for i, u := range units {
		if want := headgate.PerCalendar(5, u, time.UTC); !ours.Rules()[i].Limit.Equal(want) {
			t.Errorf("%s: %s, want %s", u, ours.Rules()[i].Limit, want)
		}
		want := headgate.Per(5, time.Duration(days[i])*24*time.Hour).WithAlgorithm(headgate.FixedWindow)
		if !theirs.Rules()[i].Limit.Equal(want) {
			t.Errorf("compat, %s: %s, want %s", u, theirs.Rules()[i].Limit, want)
		}
	}
	// Who names a time zone wants the calendar.
	for _, set := range []*rules.Ruleset{ours, theirs} {
		if got := set.Rules()[4].Limit.Rule(); got.Calendar != headgate.Month || got.Zone.String() != "Asia/Tokyo" {
			t.Errorf("got %s", set.Rules()[4].Limit)
		}
	}
}

// There a key in the wrong place, a missing number, and a replaces or a mode
// without effect all pass the checker.
func TestEnvoyDefect_MisplacedKeys(t *testing.T) {
	for _, c := range []struct{ descriptor, ours, theirs string }{
		{
			"{key: a, requests_per_unit: 5, unit: minute}",
			`f:3:14: "requests_per_unit" belongs under rate_limit, not in descriptor "a"`,
			`f:3:14: warning: "requests_per_unit" belongs under rate_limit, not in descriptor "a", where it has no effect`,
		},
		{
			"{key: a, rate_limit: {unit: minute, requests_per_unit: 5, shadow_mode: true}}",
			`f:3:63: "shadow_mode" belongs in a descriptor, not in the rate_limit of descriptor "a"`,
			`f:3:63: warning: "shadow_mode" belongs in a descriptor, not in the rate_limit of descriptor "a", where it has no effect`,
		},
		{
			"{key: a, rate_limit: {unit: minute}}",
			`f:3:26: "requests_per_unit" is missing; to refuse every request, set it to 0`,
			`f:3:26: warning: "requests_per_unit" is missing: every request is refused`,
		},
		{
			"{key: a, rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: nobody}]}}",
			`f:3:81: warning: unknown limit "nobody" in domain "d"`,
			`f:3:81: warning: unknown limit "nobody" in domain "d"`,
		},
		{
			"{key: a, shadow_mode: true}",
			`f:3:14: warning: "shadow_mode" has no effect without a rate_limit`,
			`f:3:14: warning: "shadow_mode" has no effect without a rate_limit`,
		},
	} {
		src := rulefile.Source{Name: "f", Data: []byte("domain: d\ndescriptors:\n  - " + c.descriptor + "\n")}
		for compat, want := range map[rules.Compat]string{rules.CompatNone: c.ours, rules.CompatEnvoy: c.theirs} {
			set, diagnostics := rulefile.Options{Compat: compat}.Parse(src)
			found := false
			for _, d := range diagnostics {
				found = found || d.String() == want
			}
			if !found {
				t.Errorf("%s, %s:\n%v", c.descriptor, compat, diagnostic.Problems(diagnostics))
			}
			if set == nil && compat == rules.CompatEnvoy {
				t.Errorf("%s is refused with compat: envoy", c.descriptor)
			}
		}
	}
}

// There the metadata of a rule with value_to_metric is lost.
func TestEnvoyDefect_MetadataLostByValueToMetric(t *testing.T) {
	set := parse(t, `
domain: d
descriptors:
  - key: a
    value_to_metric: true
    descriptors:
      - key: b
      - key: b
        value: c*
        value_to_metric: true
        detailed_metric: true
        metadata: {team: web, n: 1, x: 0.5, list: [true, null], "2": two}
        rate_limit: {unit: hour, requests_per_unit: 5}
`)
	var m rules.Matches
	set.MatchDescriptor("d", entriesOf("a=1 b=cd"), &m)
	r := m.Checks[0].Rule
	want := map[string]any{"team": "web", "n": int64(1), "x": 0.5, "list": []any{true, nil}, "2": "two"}
	if diff := cmp.Diff(want, r.Metadata); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if fmt.Sprint(r.MetricValues) != "[0 1]" || !r.DetailedMetric {
		t.Errorf("got %v, %v", r.MetricValues, r.DetailedMetric)
	}
}

// There refused requests are charged.
func TestEnvoyDefect_RefusalsCharged(t *testing.T) {
	ours, theirs := both(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: c, rate_limit: {unlimited: true}}
`)
	for i, want := range []bool{true, true, false} {
		if ours.Rules()[i].ChargeDenied || theirs.Rules()[i].ChargeDenied != want {
			t.Errorf("%s: %v, %v", ours.Rules()[i].Name, ours.Rules()[i].ChargeDenied, theirs.Rules()[i].ChargeDenied)
		}
	}
}

// There the first mistake hides the others, and has no line.
func TestEnvoyDefect_ErrorsWithoutLines(t *testing.T) {
	src := "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: minuet, requests_per_unit: 1}}\n  - {keey: b}\n"
	_, diagnostics := rulefile.Parse(rulefile.Source{Name: "f.yaml", Data: []byte(src)})
	want := []string{
		`f.yaml:3:33: unknown unit "minuet", did you mean "minute"?`,
		`f.yaml:4:5: descriptor 2 has no "key"`,
		`f.yaml:4:6: unknown key "keey" in descriptor 2, did you mean "key"?`,
	}
	var got []string
	for _, d := range diagnostics {
		got = append(got, d.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
