package rules_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

const countingRules = `
domain: d
limits:
  - {name: users, key: ["header:A"], count: distinct, of: "header:U", rate: 20/hour}
  - {name: skipping, key: ["header:A"], key_missing: skip, count: distinct, of: "header:U", rate: 20/hour}
  - {name: paths, key: ["header:A"], count: distinct, of: path, rate: 20/hour}
  - {name: tiered, key: ["header:A"], count: distinct, of: "header:U", rate: 20/hour, tiers: {by: "header:P", pro: {rate: 90/hour}, free: {rate: unlimited}}}
  - {name: all, count: distinct, of: "header:U", rate: 20/day, timezone: Europe/Berlin}
`

// checked returns the checks of a request under a rule.
func checked(t *testing.T, rs *rules.Ruleset, name string, v valued) (checks []rules.Check) {
	t.Helper()
	var m rules.Matches
	if !rs.Match("d", v, &m) {
		t.Fatal("unknown domain")
	}
	for _, c := range m.Checks {
		if c.Rule.Name == name {
			c.Key = strings.Clone(c.Key)
			checks = append(checks, c)
		}
	}
	return checks
}

// TestMembers: a check says which value the request shows, apart from the key.
func TestMembers(t *testing.T) {
	t.Parallel()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(countingRules)})
	if rs == nil {
		t.Fatal(problems)
	}
	first := func(name string, v valued) rules.Check {
		checks := checked(t, rs, name, v)
		if len(checks) != 1 {
			t.Fatalf("%s: %d checks of %v", name, len(checks), v)
		}
		return checks[0]
	}
	ann := first("users", valued{"header:A": {"1"}, "header:U": {"ann"}})
	for name, v := range map[string]valued{
		"another value": {"header:A": {"1"}, "header:U": {"bob"}}, "an empty value": {"header:A": {"1"}, "header:U": {""}}, "none": {"header:A": {"1"}},
	} {
		if c := first("users", v); c.Key != ann.Key || c.Member == ann.Member || c.Member == 0 {
			t.Errorf("%s: key %q and %d, of ann %q and %d", name, c.Key, c.Member, ann.Key, ann.Member)
		}
	}
	if c := first("users", valued{"header:A": {"2"}, "header:U": {"ann"}}); c.Key == ann.Key || c.Member != ann.Member {
		t.Errorf("another key: %q and %d, %q and %d", c.Key, c.Member, ann.Key, ann.Member)
	}
	if first("users", valued{"header:A": {"1"}}).Member == first("users", valued{"header:A": {"1"}, "header:U": {""}}).Member {
		t.Error("an absent value and an empty one are the same")
	}
	if n := len(checked(t, rs, "skipping", valued{"header:A": {"1"}})); n != 0 {
		t.Errorf("key_missing: skip: %d checks without a value", n)
	}
	if first("paths", valued{"header:A": {"1"}, "path": {"/a"}}).Member == first("paths", valued{"header:A": {"1"}, "path": {"/b"}}).Member {
		t.Error("two paths are one value")
	}
	if c := first("all", valued{"header:U": {"ann"}}); c.Key != "" || c.Member == 0 {
		t.Errorf("without a key: %q, %d", c.Key, c.Member)
	}
	long := strings.Repeat("x", 10_000)
	if first("all", valued{"header:U": {long}}).Member == first("all", valued{"header:U": {long + "y"}}).Member {
		t.Error("long values are one value")
	}
}

// TestUnclearMembers: all unclear values that a client shows are one.
func TestUnclearMembers(t *testing.T) {
	t.Parallel()
	rs, _ := rulefile.Parse(rulefile.Source{Name: "r.yaml", Data: []byte(countingRules)})
	one := checked(t, rs, "users", valued{"header:A": {"1"}, "header:U": {"ann", "bob"}})
	other := checked(t, rs, "users", valued{"header:A": {"1"}, "header:U": {"ann", "cy", "dan"}})
	if len(one) != 1 || len(other) != 1 || one[0].Member != other[0].Member || one[0].Key != other[0].Key {
		t.Errorf("%+v and %+v", one, other)
	}
}

// TestMembersDependOnTheSecret: who does not know it cannot find values that count as one.
func TestMembersDependOnTheSecret(t *testing.T) {
	t.Parallel()
	members := map[uint64]bool{}
	for _, secret := range []rules.KeySecret{"", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdeF"} {
		rs, err := (rulefile.Options{KeySecret: secret}).Parse(rulefile.Source{Name: "r.yaml", Data: []byte(countingRules)})
		if rs == nil {
			t.Fatal(err)
		}
		members[checked(t, rs, "users", valued{"header:U": {"ann"}})[0].Member] = true
	}
	if len(members) != 3 {
		t.Errorf("%d members under 3 secrets", len(members))
	}
}
