package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

// Each TestEnvoyDefect_ shows that a defect of envoyproxy/ratelimit is not in
// here, and, where compat: envoy asks for the same answers, that it is there.

// both parses rules with and without compat: envoy.
func both(t *testing.T, src string) (ours, theirs *Ruleset) {
	t.Helper()
	ours = parse(t, src)
	theirs, diagnostics := Options{Compat: CompatEnvoy}.Parse(Source{Name: "test.yaml", Data: []byte(src)})
	if theirs == nil {
		t.Fatal(Problems(diagnostics))
	}
	return ours, theirs
}

// There a wildcard wins that stands first in the file.
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

// There a star is a wildcard only at the end of the composite key, and anywhere
// else a character.
func TestEnvoyDefect_OnlyTheLastStarIsAWildcard(t *testing.T) {
	src := `
domain: d
descriptors:
  - {key: path, value: "*.png", rate_limit: {name: png, unit: hour, requests_per_unit: 0}}
  - {key: path, value: "/a/*/b", rate_limit: {name: inner, unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/v*/health*"}
  - {key: path, value: "/x**", rate_limit: {name: two, unit: hour, requests_per_unit: 1}}
  - {key: path, rate_limit: {name: open, unit: hour, requests_per_unit: 5}}
  - {key: "x*", value: v, rate_limit: {name: key, unit: hour, requests_per_unit: 5}}
  - {key: "y*", rate_limit: {name: star, unit: hour, requests_per_unit: 5}}
`
	ours, _ := Options{}.Parse(Source{Name: "f", Data: []byte(src)})
	lookups{
		{"path=/i.png", "png: /i.png"},
		{"path=/a/x/b", "inner: /a/x/b"},
		{"path=/v1/health", ""},
		{"path=/xy", "two: /xy"},
		{"path=/z", "open: /z"},
	}.run(t, ours)
	theirs, diagnostics := Options{Compat: CompatEnvoy}.Parse(Source{Name: "f", Data: []byte(src)})
	lookups{
		{"path=/i.png", "open: d_path_/i.png_"},
		{"path=*.png", "png: d_path_*.png_"},
		{"path=/a/x/b", "open: d_path_/a/x/b_"},
		{"path=/a/*/b", "inner: d_path_/a/*/b_"},
		{"path=/v1/health", "open: d_path_/v1/health_"},
		{"path=/v*/health/x", ""},
		{"path=/xy", "open: d_path_/xy_"},
		{"path=/x*y", "two: d_path_/x*y_"},
		{"xyz=v", ""},
		{"x*=v", "key: d_x*_v_"},
		{"yes=1", "star: d_yes_1_"},
	}.run(t, theirs)
	var warned []string
	for _, d := range diagnostics {
		if strings.Contains(d.Message, "stand for themselves") {
			warned = append(warned, fmt.Sprint(d.Line))
		}
	}
	if got := strings.Join(warned, " "); got != "4 5 6 7" {
		t.Errorf("warnings of lines %s: %v", got, diagnostics)
	}
	var m Matches
	req := &attributesOnly{Descriptor{entriesOf("path=/a/x/b")}}
	theirs.Match("d", req, &m)
	if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != "open" {
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
			for compat, want := range map[Compat]string{CompatNone: test.ours, CompatEnvoy: test.theirs} {
				set, diagnostics := Options{Compat: compat}.Parse(Source{Name: "f", Data: []byte("---\n" + first + test.rest)})
				got := ""
				if set != nil {
					got = strings.Join(set.Domains(), " ")
				}
				if got != want {
					t.Errorf("%s: domains %q, want %q: %v", compat, got, want, diagnostics)
				}
				if compat == CompatEnvoy && test.warning != "" {
					if len(diagnostics) != 1 || fmt.Sprintf("f:%d:%d", diagnostics[0].Line, diagnostics[0].Column) != test.warning ||
						!strings.Contains(diagnostics[0].Message, "leaves out") {
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
func TestShareThresholdUnderCompatNeedsAStarAtTheEnd(t *testing.T) {
	for value, ok := range map[string]bool{"x*": true, "*": true, "x*y*": true, "*x": false, "x*y": false, "x": false} {
		src := fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, value: %q, share_threshold: true, rate_limit: {rate: 1/s}}\n", value)
		if set, diagnostics := (Options{Compat: CompatEnvoy}).Parse(Source{Name: "f", Data: []byte(src)}); (set != nil) != ok {
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
	if !theirs.Rules()[1].Limit.IsUnlimited() {
		t.Error("it is limited")
	}
}

// There a branch that leads nowhere hides the limit beside it.
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
	if set, _ := (Options{Compat: CompatEnvoy}).Parse(Source{Name: "f", Data: []byte(src)}); set != nil {
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
		for _, set := range []*Ruleset{ours, theirs} {
			var ids []string
			for _, words := range pair {
				var m Matches
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
		want := headgate.Per(5, time.Duration(days[i])*24*time.Hour).Using(headgate.FixedWindow)
		if !theirs.Rules()[i].Limit.Equal(want) {
			t.Errorf("compat, %s: %s, want %s", u, theirs.Rules()[i].Limit, want)
		}
	}
	// Who names a time zone wants the calendar.
	for _, set := range []*Ruleset{ours, theirs} {
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
			`f:3:26: "requests_per_unit" is missing; 0 refuses every request`,
			`f:3:26: warning: "requests_per_unit" is missing: every request is refused`,
		},
		{
			"{key: a, rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: nobody}]}}",
			`f:3:81: warning: no limit of the domain "d" is named "nobody"`,
			`f:3:81: warning: no limit of the domain "d" is named "nobody"`,
		},
		{
			"{key: a, shadow_mode: true}",
			`f:3:14: warning: "shadow_mode" has no effect without a rate_limit`,
			`f:3:14: warning: "shadow_mode" has no effect without a rate_limit`,
		},
	} {
		src := Source{Name: "f", Data: []byte("domain: d\ndescriptors:\n  - " + c.descriptor + "\n")}
		for compat, want := range map[Compat]string{CompatNone: c.ours, CompatEnvoy: c.theirs} {
			set, diagnostics := Options{Compat: compat}.Parse(src)
			found := false
			for _, d := range diagnostics {
				found = found || d.String() == want
			}
			if !found {
				t.Errorf("%s, %s:\n%v", c.descriptor, compat, Problems(diagnostics))
			}
			if set == nil && compat == CompatEnvoy {
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
	var m Matches
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
	_, diagnostics := Parse(Source{Name: "f.yaml", Data: []byte(src)})
	want := []string{
		`f.yaml:3:33: unknown unit "minuet", did you mean "minute"?`,
		`f.yaml:4:5: "key" is missing in descriptor 2`,
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

// What the format says beside the limit arrives in the rule.
func TestDescriptorRules(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: a, rate: 1/s}
descriptors:
  - {key: a, rate_limit: {name: A, unit: Minute, requests_per_unit: 7, replaces: [{name: B}, {name: a}]}}
  - {key: b, shadow_mode: on, quota_mode: true, rate_limit: {name: B, unit: SECOND, requests_per_unit: 0}}
  - {key: c, rate_limit: {unlimited: true}}
  - {key: e, rate_limit: {requests_per_unit: 10, unit: second, algorithm: token_bucket, burst: 20, cost: 2, percent: 5, on_store_error: deny, on_limit: {status: 503}}}
  - {key: "über weg", value: "a.b/c", rate_limit: {rate: 1/s}}
`)
	want := []string{
		"a d/a [] a 1/second token_bucket enforce",
		"a-68590bae d/|a [a] A 7/minute fixed_window enforce B,a",
		"b d/|b [b] B 0/second fixed_window shadow quota",
		"c d/|c [c]  unlimited enforce",
		"e d/|e [e]  10/second token_bucket burst 20 enforce",
		"_ber_weg_a.b/c d/|über weg=a.b/c []  1/second fixed_window enforce",
	}
	var got []string
	for _, r := range set.Rules() {
		text := fmt.Sprintf("%s %s %v %s %s %s %s", r.Name, r.Scope, r.Key, r.LimitName, r.Limit, r.Mode, strings.Join(r.Replaces, ","))
		if r.QuotaMode {
			text += "quota"
		}
		got = append(got, strings.TrimSpace(text))
		if set.Rule("d", r.Name) != r {
			t.Errorf("%s is not found by its name", r.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := set.Rule("d", "e"); e.Cost != 2 || e.Percent != 5 || e.OnStoreError != StoreErrorDeny || e.OnLimit.Status != 503 {
		t.Errorf("got %+v", e)
	}
}

// Names are for metrics: short, and of few characters, whatever is in the file.
func TestDescriptorNamesAreBounded(t *testing.T) {
	long := strings.Repeat("long", 200)
	set := parse(t, fmt.Sprintf(`
domain: d
descriptors:
  - {key: %s, rate_limit: {rate: 1/s}}
  - {key: %[1]s, value: x, rate_limit: {rate: 1/s}}
  - {key: "a|b", rate_limit: {rate: 1/s}}
  - {key: "a", value: "b", rate_limit: {rate: 1/s}, descriptors: [{key: b, rate_limit: {rate: 1/s}}]}
  - {key: "a=b", rate_limit: {rate: 1/s}}
  - {key: "a", value: "b|b", rate_limit: {rate: 1/s}}
  - {key: "a%%7Cb", rate_limit: {rate: 1/s}}
`, long))
	names, scopes := map[string]bool{}, map[string]bool{}
	for _, r := range set.Rules() {
		if len(r.Name) > maxRule || len(r.Scope) > maxScope+40 || names[r.Name] || scopes[r.Scope] {
			t.Errorf("%s, %s", r.Name, r.Scope)
		}
		names[r.Name], scopes[r.Scope] = true, true
	}
}

// What a star with share_threshold matches is counted together, level by level.
func TestShareThreshold(t *testing.T) {
	src := `
domain: d
descriptors:
  - {key: file, value: a.csv, rate_limit: {name: one, unit: minute, requests_per_unit: 1}}
  - {key: file, value: "*.csv", share_threshold: true, rate_limit: {name: csv, unit: minute, requests_per_unit: 1}}
  - key: user
    value: u*
    value_to_metric: true
    share_threshold: true
    descriptors:
      - key: file
        value: f*
        descriptors:
          - {key: user, value: "*x*", share_threshold: true, rate_limit: {name: deep, unit: minute, requests_per_unit: 1}}
`
	ours := parse(t, src)
	_, theirs := both(t, strings.NewReplacer("*.csv", "b*", "*x*", "a*").Replace(src))
	lookups{{"file=a.csv", "one"}, {"file=b.csv", "csv"}, {"user=u1 file=f1 user=axb", "deep: f1"}}.run(t, ours)
	lookups{
		{"file=a.csv", "one: d_file_a.csv_"},
		{"file=b.csv", "csv: d_file_b*_"},
		{"user=u1 file=f1 user=axb", "deep: d_user_u*_file_f1_user_a*_"},
	}.run(t, theirs)
	for _, r := range ours.Rules() {
		if len(r.MetricValues) > 0 {
			t.Errorf("%s has %v", r.Name, r.MetricValues)
		}
	}
}

// Limits are replaced by name, over all descriptors of a request.
func TestReplaces(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: own, match: {attributes: {a: "*"}}, rate: 1/s}
descriptors:
  - {key: a, rate_limit: {name: A, rate: 1/s}}
  - {key: b, rate_limit: {name: B, rate: 1/s, replaces: [{name: A}, {name: own}]}}
  - {key: c, rate_limit: {name: C, rate: 1/s, replaces: [{name: B}]}}
  - {key: e, rate_limit: {rate: 1/s}}
`)
	for descriptors, want := range map[string]string{
		"a=1":             "own; A: 1",
		"a=1 | b=2":       "| B: 2",
		"b=2 | a=1":       "B: 2 |",
		"a=1 | b=2 | c=3": "| | C: 3", // B has replaced A all the same
		"a=1 | e=5":       "own; A: 1 | e: 5",
	} {
		parts := strings.Split(descriptors, " | ")
		matches := make([]Matches, len(parts))
		for i, words := range parts {
			set.MatchDescriptor("d", entriesOf(words), &matches[i])
		}
		ApplyReplaces(matches)
		var got []string
		for i := range matches {
			got = append(got, checks(&matches[i]))
		}
		if text := strings.Join(strings.Fields(strings.Join(got, " | ")), " "); text != want {
			t.Errorf("%s: got %q, want %q", descriptors, text, want)
		}
	}
	var m Matches
	set.Match("d", request(t, "a=1 b=2 e=5"), &m)
	if got := checks(&m); got != "B: 2; e: 5" {
		t.Errorf("got %q", got)
	}
}

// Descriptors of one domain stand together, unless asked to be merged.
func TestDomainsOfDescriptors(t *testing.T) {
	source := func(name, src string) Source { return Source{Name: name, Data: []byte(src)} }
	const a = "domain: d\ndescriptors: [{key: a, rate_limit: {rate: 1/s}}]\n"
	const b = "domain: d\ndescriptors: [{key: b, rate_limit: {rate: 1/s}}]\n"
	const limits = "domain: d\nlimits: [{name: l, rate: 1/s, match: {attributes: {b: \"*\"}}}]\n"
	for name, c := range map[string]struct {
		options Options
		sources []Source
		want    string
	}{
		"two":          {sources: []Source{source("1", a), source("2", b)}, want: `2:1:9: duplicate domain "d": its descriptors are in 1:2:1; merge_domains: true puts them together`},
		"option":       {options: Options{MergeDomains: true}, sources: []Source{source("1", a), source("2", b)}},
		"key in first": {sources: []Source{source("1", "merge_domains: true\n"+a), source("2", b)}},
		"key in last":  {sources: []Source{source("1", a), source("2", "merge_domains: true\n"+b)}},
		"same twice":   {options: Options{MergeDomains: true}, sources: []Source{source("1", a), source("2", a)}, want: `2:2:15: duplicate descriptor composite key "a": first in 1:2:15`},
		"own form":     {sources: []Source{source("1", a), source("2", limits), source("3", limits)}, want: `3:2:17: the name "l" is taken in the domain "d": 2:2:10`},
	} {
		t.Run(name, func(t *testing.T) {
			set, diagnostics := c.options.Parse(c.sources...)
			if c.want != "" {
				if len(diagnostics) != 1 || diagnostics[0].String() != c.want {
					t.Errorf("got %v", Problems(diagnostics))
				}
				return
			}
			if set == nil {
				t.Fatal(Problems(diagnostics))
			}
			lookups{{"a=1", "a: 1"}, {"b=1", "b: 1"}}.run(t, set)
		})
	}
}

// The metric that a rule asks for is named as the original names its own.
func TestAppendMetric(t *testing.T) {
	set := parse(t, `
domain: d
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {name: detailed, rate: 1/s}}
  - key: det
    value: a
    descriptors:
      - {key: user, value_to_metric: true, rate_limit: {name: leaf, rate: 1/s}}
  - key: tenant
    value_to_metric: true
    descriptors:
      - {key: user, rate_limit: {name: above, rate: 1/s}}
      - {key: path, value: /a/*, rate_limit: {name: pattern, rate: 1/s}}
      - {key: file, value: "*.csv", share_threshold: true, value_to_metric: true, rate_limit: {name: together, rate: 1/s}}
      - {key: all, value: "*.csv", share_threshold: true, detailed_metric: true, rate_limit: {name: alltogether, rate: 1/s}}
  - {key: plain, rate_limit: {name: plain, rate: 1/s}}
`)
	for _, row := range []struct{ entries, rule, want string }{
		{"user=bob", "detailed", "user_bob"},
		{"user=", "detailed", "user"},
		{"det=a user=bob", "leaf", "det_a.user_bob"},
		{"tenant=t user=bob", "above", "tenant_t.user"},
		{"tenant=t path=/a/b", "pattern", "tenant_t.path_/a/*"},
		{"tenant=t file=1.csv", "together", "tenant_t.file_*.csv"},
		{"tenant=t all=1.csv", "alltogether", "tenant_t.all_*.csv"},
		{"plain=bob", "plain", ""},
	} {
		entries := entriesOf(row.entries)
		var m Matches
		set.MatchDescriptor("d", entries, &m)
		if len(m.Checks) != 1 || m.Checks[0].Rule.LimitName != row.rule {
			t.Fatalf("%s: %+v", row.entries, m.Checks)
		}
		r, got := m.Checks[0].Rule, ""
		if r.SplitsMetric() {
			got = string(r.AppendMetric(nil, entries))
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.entries, got, row.want)
		}
	}
}
