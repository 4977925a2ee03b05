package checks_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/checks"
	"github.com/headgate/headgate/store"
)

// TestScopes: a check counts separately if an earlier one could count under the same.
func TestScopes(t *testing.T) {
	t.Parallel()
	six, seven, named := headgate.PerMinute(6), headgate.PerMinute(7), headgate.PerMinute(6).WithName("six")
	for _, row := range []struct {
		name   string
		checks []checks.Check
		limit  headgate.Limit
		want   string // the ends of the resulting scopes
	}{
		{"alone", []checks.Check{{Limit: six}}, six, "-"},
		{"different limits", []checks.Check{{Limit: six}, {Limit: seven}}, seven, "- -"},
		{"the same, and the same in other words", []checks.Check{{Limit: six}, {Limit: seven}, {Limit: six.WithBurst(6)}}, six, "- - 3"},
		{"with a name", []checks.Check{{Limit: six}, {Limit: six, Name: "a"}, {Limit: named}}, six, "- a -"},
		{"the first varies", []checks.Check{{Limit: six, Varies: true}, {Limit: seven}, {Limit: named}}, seven, "- 2 -"},
		{"the second varies", []checks.Check{{Limit: six}, {Limit: seven, Varies: true}}, six, "- 2"},
		{"the second varies, the first has a name", []checks.Check{{Limit: named}, {Limit: seven, Varies: true}}, six, "- -"},
		{"both vary", []checks.Check{{Limit: named, Varies: true}, {Limit: seven, Varies: true}}, six, "- 2"},
		{"a scope for all that vary", []checks.Check{{Limit: six, Varies: true, Name: "a"}, {Limit: six, Varies: true}}, six, "a -"},
		{"for a limit with a name", []checks.Check{{Limit: six, Varies: true}, {Limit: seven, Varies: true}}, named, "- -"},
		{"no limit", []checks.Check{{Limit: headgate.Unlimited()}, {Limit: headgate.Unlimited()}}, six, "- 2"},
	} {
		var scopes checks.Scopes
		for _, c := range row.checks {
			if err := scopes.Add(c); err != nil {
				t.Fatal(row.name, err)
			}
		}
		var got []string
		for i := range row.checks {
			scope := scopes.Of(i, row.limit)
			if at := strings.LastIndex(scope, "-"); at >= 0 {
				op := store.Op{Rule: row.limit.Rule()}
				if want := string(op.AppendSpace(nil)); scope[:at] != want {
					t.Errorf("%s: the scope %q is not of %q", row.name, scope, want)
				}
				scope = scope[at+1:]
			}
			if scope == "" {
				scope = "-"
			}
			got = append(got, scope)
		}
		if got := strings.Join(got, " "); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestNamesDiffer: a middleware uses each name for one limit only.
func TestNamesDiffer(t *testing.T) {
	t.Parallel()
	six := headgate.PerMinute(6)
	for i, row := range [][2]checks.Check{
		{{Limit: six, Name: "a"}, {Limit: headgate.PerHour(9), Name: "a"}},
		{{Limit: six.WithName("a")}, {Limit: headgate.PerHour(9), Name: "a"}},
		{{Limit: six, Name: "a"}, {Limit: headgate.Concurrent(9).WithName("a"), Varies: true}},
		{{Limit: six.WithName("a")}, {Limit: six.WithName("a")}},
	} {
		var scopes checks.Scopes
		if err := scopes.Add(row[0]); err != nil {
			t.Fatal(err)
		}
		if err := scopes.Add(row[1]); err == nil || !strings.HasPrefix(err.Error(), `two limits of this middleware are named "a"`) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
