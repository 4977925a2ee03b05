package features_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/replay/ruletest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/schema"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// What follows, up to the tests, is all of a feature, as its folder would have it: a limit
// that applies on a day of every so many weeks. Its line is the one of features.Add.

// days is the trait of such a rule: a weekday of every nth week since 1970.
type days struct {
	weekday time.Weekday
	every   int64
}

func (d *days) String() string { return fmt.Sprintf("%s of every %d weeks", d.weekday, d.every) }

func (d *days) Holds(at int64) bool {
	const thursday, day = 3, int64(24 * time.Hour / time.Microsecond) // 1970 began on a Thursday
	n := at/day + thursday
	return time.Weekday((n+1)%7) == d.weekday && n/7%d.every == 0
}

func (d *days) Now(at int64) string {
	_, week := time.UnixMicro(at).UTC().ISOWeek()
	return fmt.Sprintf("%s of week %d", time.UnixMicro(at).UTC().Weekday(), week)
}

func daysFeature() feature.Feature {
	return feature.Feature{
		Row: func() form.Row {
			return form.Row{Key: "days", Doc: "The days on which the rule applies.", See: "rules/rules.md", Type: form.Ref("days").Is("a mapping").Or("always")}
		},
		Keys: func() form.Mapping { return daysKeys(new(days)) },
		Read: func(r *feature.Reading) {
			n, d := r.Fields.Get("days"), &days{every: 1}
			if n == nil {
				return
			}
			form.Read(r.Report, n, "days", daysKeys(d).Rows)
			r.Rule.AddTrait(d)
		},
	}
}

func daysKeys(d *days) form.Mapping {
	return form.Mapping{Def: "days", Doc: "A day of the week, in UTC.", Rows: []form.Row{
		{Key: "weekday", Doc: "The day.", Example: "for example weekday: Tuesday", Type: form.Choice(&d.weekday, time.Tuesday, time.Friday)},
		{Key: "every", Doc: "Only in each nth week.", Type: form.Integer(1, 52, &d.every)},
	}}
}

const tuesdays = `
domain: api
limits:
  - {name: tuesdays, key: user, rate: 1/day, days: {weekday: Tuesday, every: 2}}
  - {name: always, key: user, rate: 3/day}
`

// rulesWith returns the rules of a text after the feature has been added.
func rulesWith(t *testing.T, text string) *rules.Ruleset {
	t.Helper()
	features.Add(t, daysFeature())
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if len(problems) > 0 {
		t.Fatal(diagnostic.Problems(problems))
	}
	return rs
}

// noon returns the time at noon of a day.
func noon(day string) int64 {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return 0
	}
	return at.Add(12 * time.Hour).UnixMicro()
}

func user(name string) *described.Request {
	q := new(described.Request)
	q.Add(rules.Attribute{Name: "user"}, name, nil)
	return q
}

// A feature that says at which times a rule applies is a folder and a line: all that decides,
// explains, lists or waits asks it.
func TestRuleOfSomeDays(t *testing.T) {
	e := engine.New(memory.New(), rulesWith(t, tuesdays))
	const why = "when: wants Tuesday of every 2 weeks, is "
	for _, row := range []struct{ day, want string }{
		{"2026-11-24", "true true true false, 1 caller limits, again true, " + why + "Tuesday of week 48"},
		{"2026-11-30", "true true true false, 1 caller limits, again true, " + why + "Monday of week 49"},
		{"2026-12-01", "true false false false, 2 caller limits, again false, applies"},
		{"2026-12-08", "true true true false, 1 caller limits, again true, " + why + "Tuesday of week 50"},
		{"2026-12-15", "true false false false, 2 caller limits, again false, applies"},
	} {
		at, got := noon(row.day), []string(nil)
		for range 4 {
			v, err := e.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: user(row.day), Cost: 1}, At: at})
			if got = append(got, fmt.Sprint(v.Allowed)); err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
		callers, err := e.CallerLimits(t.Context(), "api", user("ann"), at)
		if err != nil {
			t.Fatal(err)
		}
		again := false
		for range 2 { // of what is queued
			v, err := e.Again(t.Context(), "api", []engine.Claim{{Rule: "tuesdays", Key: string(store.AppendKeyPart(nil, row.day)), Cost: 1}}, at)
			if again = v.Allowed; err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
		x, err := e.Explain(t.Context(), engine.ExplainQuery{Domain: "api", Parts: []rules.Request{user("ann")}, Cost: 1, At: at, Rule: "tuesdays"})
		if err != nil {
			t.Fatal(err)
		}
		applies := "applies"
		if rule := x.Parts[0].Rules[0]; !rule.Applies {
			applies = rule.Mismatches[0].String()
		}
		text := fmt.Sprintf("%s, %d caller limits, again %t, %s", strings.Join(got, " "), len(callers.Limits), again, applies)
		if diff := cmp.Diff(row.want, text); diff != "" {
			t.Errorf("%s: -want +got:\n%s", row.day, diff)
		}
	}
}

// occupied is the store of a queue in which others wait for each limit.
type occupied struct{ queue.Store }

func (occupied) Waiting(context.Context, queue.Line) (bool, error) { return true, nil }

// A request waits in the queue of a limit that holds, not of one that does not.
func TestQueueOfSomeDays(t *testing.T) {
	rs := rulesWith(t, strings.ReplaceAll(tuesdays, "rate:", "on_limit: queue, rate:"))
	waiting := queue.New(queue.Options{Store: occupied{}})
	for day, want := range map[string]string{"2026-11-24": "always", "2026-12-01": "tuesdays"} {
		asker := admission.Asker{
			Engine: engine.New(memory.New(), rs), Clock: func() time.Time { return time.UnixMicro(noon(day)) },
			Queue: func() *queue.Queue { return waiting },
		}
		var pass admission.Pass
		pass.Begin(t.Context(), &asker, engine.Query{Domain: "api", Part: engine.Part{Request: user("ann"), Cost: 1}, At: noon(day), Waits: true})
		if pass.Allowed || pass.Rule.Name != want {
			t.Errorf("%s: %+v, want it to wait for %s", day, pass.Verdict, want)
		}
		pass.End()
	}
}

// The same in rule tests, whose time is virtual.
func TestRuleOfSomeDaysIsTested(t *testing.T) {
	rs := rulesWith(t, tuesdays)
	file, problems := ruletest.Parse(rulefile.Source{Name: "a_test.yaml", Data: []byte(`
domain: api
tests:
  - name: both Tuesdays
    trace:
      - {at: 2026-11-24T12:00:00Z, request: {user: ann}, repeat: 3, expect: allowed}
      - {at: 2026-11-24T12:00:01Z, request: {user: ann}, expect: {allowed: false, rule: always}}
      - {at: 2026-12-01T12:00:00Z, request: {user: ann}, expect: allowed}
      - {at: 2026-12-01T12:00:01Z, request: {user: ann}, expect: {allowed: false, rule: tuesdays}}
`)})
	if problems != nil {
		t.Fatal(diagnostic.Problems(problems))
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	results, problems, err := ruletest.Run(t.Context(), file, rs, ruletest.Options{Clients: clients})
	if err != nil || problems != nil || len(results) != 1 || !results[0].Passed {
		t.Errorf("%+v, %v, %v", results, problems, err)
	}
}

// Its keys are in the schema and in the tables of the docs, its mistakes have positions, and
// lists of rules say when it applies.
func TestRuleOfSomeDaysIsDescribed(t *testing.T) {
	rs := rulesWith(t, tuesdays)
	if got := rs.Rule("api", "tuesdays").Conditions(); got != "when Tuesday of every 2 weeks" {
		t.Error(got)
	}
	if got := schema.Rules(); !strings.Contains(got, `"#/$defs/days"`) || !strings.Contains(got, "Only in each nth week.") {
		t.Error("the schema has no days")
	}
	found := 0
	for _, m := range ownform.Mappings() {
		if table := form.Table(m.Rows, "rules/rules.md"); strings.Contains(table, "| `days` |") || m.Def == "days" && strings.Contains(table, "| `every` | 1 to 52 |") {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d tables of keys", found)
	}
	for value, want := range map[string]string{
		"{weekday: Someday}": `rules.yaml:3:42: unknown weekday "Someday"`,
		"{every: 53}":        `days has no "weekday"`,
		"{weekdy: Friday}":   `did you mean "weekday"?`,
	} {
		_, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: api\nlimits:\n  - {name: a, rate: 1/s, days: " + value + "}\n")})
		if got := diagnostic.Problems(problems).Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// A rule that does not hold always covers no other, so that there is no warning.
func TestRuleOfSomeDaysCoversNone(t *testing.T) {
	rulesWith(t, strings.Replace(tuesdays, "rate: 3/day", "rate: 1_000/day", 1))
}
