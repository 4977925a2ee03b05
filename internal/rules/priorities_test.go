package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

const classes = `
domain: shop
priorities:
  classes: [critical, default, sheddable]
  from: FROM
  rules:
    - {match: {path: /pay/**}, class: critical}
    - {match: {path: /pay/reports}, class: sheddable}
limits:
  - {name: fleet, rate: 1000/second, headroom: {critical: 20%, default: 10.5%}}
  - {name: other, rate: 5/second, match: {method: GET}}
`

// viaProxy is a request through a proxy whose header fields are believed, or not.
type viaProxy struct {
	*fakeRequest

	trusted bool
}

func (r viaProxy) Trusted() bool { return r.trusted }

// TestClassOfARequest: rules come first, then the attribute, and a header only of a trusted
// proxy. What is unknown, missing or unclear is default.
func TestClassOfARequest(t *testing.T) {
	t.Parallel()
	const none = ""
	for _, row := range []struct{ from, request, proxy, want string }{
		{"jwt:class", "method=GET path=/a jwt:class=sheddable", none, "sheddable (jwt:class), leaves 30.5% to higher classes"},
		{"jwt:class", "method=GET path=/a jwt:class=critical", none, "critical (jwt:class), may use the whole limit"},
		{"jwt:class", "method=GET path=/a jwt:class=default", none, "default (jwt:class), leaves 20% to higher classes"},
		{"jwt:class", "method=GET path=/a jwt:class=Critical", none, "default, leaves 20% to higher classes"},
		{"jwt:class", "method=GET path=/a jwt:class=unclear:critical", none, "sheddable (jwt:class), leaves 30.5% to higher classes"},
		{"jwt:class", "method=GET path=/a", none, "default, leaves 20% to higher classes"},
		{"jwt:class", "method=GET path=/pay/reports jwt:class=sheddable", none, "critical (rule), may use the whole limit"},
		{"header:X-Class", "method=GET path=/a header:X-Class=critical", none, "default, leaves 20% to higher classes"},
		{"header:X-Class", "method=GET path=/a header:X-Class=critical", "stranger", "default, leaves 20% to higher classes"},
		{"header:X-Class", "method=GET path=/a header:X-Class=critical", "trusted", "critical (header:X-Class), may use the whole limit"},
		{"class", "method=GET path=/a class=sheddable", none, "sheddable (class), leaves 30.5% to higher classes"},
	} {
		set := parse(t, strings.Replace(classes, "FROM", `"`+row.from+`"`, 1))
		var r rules.Request = request(t, row.request)
		if row.proxy != none {
			r = viaProxy{request(t, row.request), row.proxy == "trusted"}
		}
		var m rules.Matches
		set.Match("shop", r, &m)
		if c := m.Checks[0]; c.Rule.ClassText(c.Class) != row.want {
			t.Errorf("%s by %s %s: %s, want %s", row.request, row.from, row.proxy, c.Rule.ClassText(c.Class), row.want)
		}
		if c := m.Checks[1]; c.Rule.ClassText(c.Class) != "" || c.Rule.LeaveOf(c.Class) != 0 {
			t.Errorf("a limit without headroom: %s", c.Rule.ClassText(c.Class))
		}
	}
}

// TestDoubtLowersTheClass: of the classes that can be meant the lowest counts, so that no
// spelling of a request makes it more important: nor one that makes an exception doubtful.
func TestDoubtLowersTheClass(t *testing.T) {
	t.Parallel()
	set := parse(t, `
domain: shop
priorities:
  classes: [critical, default, sheddable]
  from: "jwt:class"
  rules:
    - {match: {path: /api/reports/**}, class: default}
    - {match: {path: /api/**}, class: critical}
    - {match: {path: [/pay/**, "!/pay/free"]}, class: critical}
    - {match: {jwt: {plan: gold}}, class: critical}
    - {match: {headers: {X-Prio: high}}, class: critical}
    - {match: {path: /low/**}, class: sheddable}
    - {match: {jwt: {plan: free}}, class: sheddable}
limits:
  - {name: fleet, rate: 1000/second, headroom: {critical: 20%}}
`)
	for _, row := range []struct{ request, want string }{
		{"path=/pay/x", "critical"},
		{"path=/pay/x;y=1", "critical"},
		{"path=/pay/../a", "default"},
		{"path=/pay/%2e%2e/a", "default"},
		{"path=/pay/..%2fa", "default"},
		{"path=//pay/../a", "default"},
		{"path=/a/..;/pay/x", "default"},
		{"path=/pay/free", "default"},
		{"path=/pay/x/../free", "default"},
		{"path=/a jwt:plan=gold", "critical"},
		{"path=/a jwt:plan=unclear:gold", "sheddable"}, // it may be free, too
		{"path=/a header:X-Prio=high", "default"},
		{"proxy path=/a header:X-Prio=high", "critical"},
		{"path=/low/x", "sheddable"},
		{"path=/low/../a", "sheddable"},
		{"path=/api/x", "critical"},
		{"path=/api/reports/x", "default"},
		{"path=/api/%72eports/x", "default"},
		{"path=/api//reports/x", "default"},
		{"path=/api/y/../reports/x", "default"},
		{"path=/a jwt:class=critical", "critical"},
		{"path=/a jwt:class=unclear:critical", "sheddable"},
	} {
		text, proxy := strings.CutPrefix(row.request, "proxy ")
		var m rules.Matches
		set.Match("shop", viaProxy{request(t, text), proxy}, &m)
		if c := m.Checks[0]; c.Rule.ClassName(c.Class) != row.want {
			t.Errorf("%s: %s, want %s", row.request, c.Rule.ClassName(c.Class), row.want)
		}
	}
}

// TestPrioritiesOfAnotherDocument: a domain has one list of classes, wherever it is.
func TestPrioritiesOfAnotherDocument(t *testing.T) {
	t.Parallel()
	set := parse(t, "domain: shop\nlimits:\n  - {name: a, rate: 100/second, headroom: {gold: 50%}}\n---\ndomain: shop\npriorities: {classes: [gold, default]}\nlimits: []\n")
	var m rules.Matches
	set.Match("shop", request(t, "path=/"), &m)
	if got := m.Checks[0].Rule.LeaveOf(m.Checks[0].Class); got != 500_000 {
		t.Errorf("default leaves %d", got)
	}
}

// TestWhatHeadroomRefuses: each mistake is one error, in its place, with what is right.
func TestWhatHeadroomRefuses(t *testing.T) {
	t.Parallel()
	good := strings.Replace(classes, "FROM", `"jwt:class"`, 1)
	for _, row := range []struct{ old, changed, want string }{
		{"{critical: 20%", "{critcal: 20%", `test.yaml:10:49: unknown class "critcal", did you mean "critical"?`},
		{"20%, default: 10.5%", "60%, default: 40%", "test.yaml:10:48: headroom is 100% of the limit: less than 100% leaves something for the others"},
		{"default: 10.5%", "sheddable: 1%", `no class is below "sheddable", so nothing can be kept for it`},
		{"20%", "20", "a part of the limit must be more than 0% and less than 100%, not \"20\""},
		{"20%", "100%", "a part of the limit must be more than 0% and less than 100%, not \"100%\""},
		{"{critical: 20%, default: 10.5%}", "20%", `"headroom" must be a mapping from classes to parts of the limit`},
		{"default, sheddable]", "default, default]", `test.yaml:4:32: the class "default" is repeated`},
		{"default, sheddable]", "normal, sheddable]", "one of the classes must be called default"},
		{"[critical, default, sheddable]", "[default]", `"classes" must be a list of 2 to 16 names, the highest class first`},
		{"class: critical}", "class: crit}", `test.yaml:7:39: unknown class "crit"; use one of critical, default, sheddable`},
		{"match: {path: /pay/**}, ", "", `test.yaml:7:7: class rule 1 has no "match"`},
		{"match: {path: /pay/**}, class: critical", "soft: true, class: critical", `test.yaml:7:27: "soft" can only lower the class of a request, and none is above "critical"`},
		{"match: {path: /pay/**}, class: critical", "soft: 80%, class: default", `test.yaml:7:14: "soft" must be true or false`},
		{`"jwt:class"`, `"query:class"`, `every client can give itself a class in "query:class"`},
		{`"jwt:class"`, "path", "the value of path is not a class"},
		{"rate: 1000/second", "rate: unlimited", `"headroom" does not work with an unlimited rate`},
		{"rate: 1000/second", "rate: 1000/second, sync: blocks", `"headroom" does not work with sync: blocks`},
		{"rate: 1000/second", "rate: 1000/second, algorithm: fixed_window, count_denied: true", `"headroom" does not work with count: distinct or count_denied`},
		{"domain: shop\n", "domain: shop\n---\ndomain: shop\nlimits: []\npriorities: {classes: [a, default]}\n---\ndomain: shop\n", `"priorities" of the domain "shop" are already set in test.yaml:6:13`},
		{good, "domain: shop\nlimits:\n  - {name: a, rate: 100/second, headroom: {gold: 50%}}\n", `test.yaml:3:33: "headroom" needs classes, and the domain "shop" has no "priorities"`},
	} {
		set, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(strings.Replace(good, row.old, row.changed, 1))})
		if text := diagnostic.Problems(diagnostics).Error(); set != nil || strings.Count(text, "\n") > 1 && strings.Count(text, "error") > 1 || !strings.Contains(text, row.want) {
			t.Errorf("%s -> %s: %s, want %s", row.old, row.changed, text, row.want)
		}
	}
}

// TestSmallHeadroomWarns: a part of a few tokens is next to nothing.
func TestSmallHeadroomWarns(t *testing.T) {
	t.Parallel()
	_, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte("domain: shop\npriorities: {classes: [gold, default]}\nlimits:\n  - {name: a, rate: 45/second, headroom: {gold: 20%}}\n")})
	if len(diagnostics) != 1 || !strings.Contains(diagnostics[0].Message, "20% of the limit is only 9") {
		t.Error(diagnostics)
	}
}

// TestHeadroomThatLeavesNothing: what is kept is rounded up, and must not be all of the limit.
func TestHeadroomThatLeavesNothing(t *testing.T) {
	t.Parallel()
	const all = `"headroom" leaves nothing of the limit of %s for the class "%s", whose requests would always be refused`
	for _, row := range []struct{ limit, headroom, want string }{
		{"rate: 1/s", "critical: 20%", fmt.Sprintf(all, "1", "default")},
		{"rate: 1/minute, algorithm: fixed_window", "critical: 20%", fmt.Sprintf(all, "1", "default")},
		{"rate: 1/minute, algorithm: sliding_log", "critical: 20%", fmt.Sprintf(all, "1", "default")},
		{"rate: 1/minute, algorithm: leaky_bucket", "critical: 20%", fmt.Sprintf(all, "1", "default")},
		{"concurrency: 1", "critical: 20%", fmt.Sprintf(all, "1", "default")},
		{"concurrency: 1", "default: 20%", fmt.Sprintf(all, "1", "sheddable")},
		{"concurrency: 2", "critical: 40%, default: 20%", fmt.Sprintf(all, "2", "sheddable")},
		{"concurrency: 2", "critical: 51%", fmt.Sprintf(all, "2", "default")},
		{"rate: 1/s, burst: 3", "critical: 67%", fmt.Sprintf(all, "3", "default")},
		{"rate: 1/s, burst: 3", "critical: 66%", "66% of the limit is only 2: a burst of the class finds no room"},
		{"concurrency: 2", "critical: 20%, default: 20%", "20% of the limit is only 1: a burst of the class finds no room"},
		{"rate: 0/s", "critical: 20%", ""},
	} {
		text := "domain: shop\npriorities: {classes: [critical, default, sheddable]}\nlimits:\n  - {name: a, " + row.limit + ", headroom: {" + row.headroom + "}}\n"
		set, found := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
		got := fmt.Sprint(found)
		if !strings.Contains(got, row.want) || (set == nil) != strings.Contains(row.want, "always") || set == nil && len(found) != 1 {
			t.Errorf("%s with %s: %s, want %q", row.limit, row.headroom, got, row.want)
		}
	}
}

// TestSoftRulesWhereNothingMarks: a class rule for marked requests is warned about where no
// limit of its domain marks any.
func TestSoftRulesWhereNothingMarks(t *testing.T) {
	const file = "domain: shop\npriorities:\n  classes: [default, low]\n  rules:\n    - {soft: true, class: low}\n" +
		"limits: [{name: fleet, rate: 1000/second, headroom: {default: 20%}}, {name: calls, rate: 100/minute}]\n"
	for _, row := range []struct{ old, changed, warning string }{
		{"", "", `test.yaml:5:7: warning: no request has this class by "soft": no limit of the domain has soft or on_limit: pass`},
		{"soft: true", "match: {path: /a}, soft: true", `test.yaml:5:7: warning: no request has this class by "soft"`},
		{"rate: 100/minute", "rate: 100/minute, soft: 80%", ""},
		{"rate: 100/minute", "rate: 100/minute, on_limit: pass", ""},
		{"rate: 100/minute}]", "rate: 100/minute}]\n---\ndomain: other\nlimits: [{name: b, rate: 1/minute, on_limit: pass}]", `warning: no request has this class by "soft"`},
		{"rate: 100/minute}]", "rate: 100/minute}]\n---\ndomain: shop\nlimits: [{name: b, rate: 1/minute, on_limit: pass}]", ""},
	} {
		_, found := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(strings.Replace(file, row.old, row.changed, 1))})
		if text := fmt.Sprint(found); !strings.Contains(text, row.warning) || (row.warning == "") != (len(found) == 0) {
			t.Errorf("%s instead of %s: %s, want %q", row.changed, row.old, text, row.warning)
		}
	}
}

// TestSoftRulesOfClasses: a rule with soft lowers the class of marked requests that it matches,
// and of no others; a rule before it that matches for sure decides.
func TestSoftRulesOfClasses(t *testing.T) {
	t.Parallel()
	const text = `
domain: shop
priorities:
  classes: [critical, default, low, lowest]
  from: class
  rules:
    - {match: {path: /pay/**}, class: critical}
    - {match: {path: /batch/**}, soft: true, class: lowest}
    - {soft: true, class: low}
    - {match: {path: /slow/**}, class: low}
limits: [{name: fleet, rate: 1000/second, headroom: {critical: 20%}, mode: enforce}, {name: calls, rate: 10/minute, soft: 80%}]
`
	for _, row := range []struct{ request, usual, marked string }{
		{"path=/pay/1", "critical", "critical"},
		{"path=/batch/1", "default", "lowest"},
		{"path=/a", "default", "low"},
		{"path=/a class=critical", "critical", "low"},
		{"path=/a class=lowest", "lowest", "lowest"},
		{"path=/slow/1", "low", "low"},
	} {
		set := parse(t, text)
		var m rules.Matches
		set.Match("shop", request(t, "method=GET "+row.request), &m)
		fleet := m.Checks[0]
		over, lower := fleet.Class.Over()
		if usual, marked := fleet.Rule.ClassName(fleet.Class), fleet.Rule.ClassName(over); usual != row.usual || marked != row.marked || lower != (usual != marked) {
			t.Errorf("%s: %s, marked %s, lower %t; want %s, %s", row.request, usual, marked, lower, row.usual, row.marked)
		}
	}
}
