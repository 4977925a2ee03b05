package when_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features/when"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

const slowly = "domain: api\nlimits:\n  - {name: calm, rate: 1/s, when: {upstream_p90: \">200ms\"}}\n---\ndomain: other\nlimits:\n  - {name: calm, rate: 1/s, when: {upstream_p90: \">200ms\"}}\n"

// parse returns the rules of a text.
func parse(t *testing.T, text string) *rules.Ruleset {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(diagnostic.Problems(problems))
	}
	return rs
}

// upstream answers 50 requests a second.
type upstream struct {
	when.Watch
	log strings.Builder
}

func (u *upstream) run(d, took time.Duration, well bool) {
	log := slog.New(slog.NewTextHandler(&u.log, nil))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		u.Answered(time.Now(), took, well, log)
	}
}

// The rule begins when a tenth of the last five seconds was slow, and ends after five seconds
// below 80 % of the limit. The rule of another domain never holds.
func TestHoldsWhileTheUpstreamIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs, u := parse(t, slowly), new(upstream)
		r := rs.Rule("api", "calm")
		holds := func() string {
			at := time.Now().UnixMicro()
			return fmt.Sprintf("%t %s", r.Holds(at), rules.TraitOf[*when.Slow](r).Now(at))
		}
		if got := holds(); got != "false not measured yet: the proxy of the domain does, from its first answer on" {
			t.Error(got)
		}
		none := parse(t, "domain: api\nlimits: []\n")
		if !u.Wanted(rs, nil, "api") || !u.Wanted(rs, nil, "other") || u.Wanted(rs, nil, "third") || u.Wanted(none, nil, "api") || u.Wanted(none, none, "api") ||
			!u.Wanted(none, rs, "api") || u.Wanted(none, rs, "third") || !u.Wanted(rs, none, "api") || !u.Wanted(rs, nil, "api") {
			t.Error("wanted by the wrong rules")
		}
		ms := time.Millisecond
		for i, row := range []struct {
			lasts, took time.Duration
			well        bool
			want        string
		}{
			{200 * ms, 300 * ms, true, "false not known: fewer than 20 answers in 5s"},
			{300 * ms, 300 * ms, true, "true 303ms"},
			{5 * time.Second, 120 * ms, true, "true 121ms"}, // most of it is new
			{5 * time.Second, 120 * ms, true, "false 121ms"},
			{400 * ms, 300 * ms, true, "false 121ms"}, // not yet a tenth
			{400 * ms, 300 * ms, true, "true 303ms"},
			{20 * time.Second, 170 * ms, true, "true 168ms"},                             // above 80 % of the limit
			{10 * time.Second, 150 * ms, true, "false 152ms"},                            // below it
			{20 * time.Second, 170 * ms, true, "false 168ms"},                            // that is not where it begins
			{5 * time.Second, ms, false, "false not known: fewer than 20 answers in 5s"}, // errors that are fast
			{2 * time.Second, time.Second, false, "true 999ms"},                          // clients that give up
			{5 * time.Second, 2 * time.Minute, true, "true 1m6"},                         // longer than can be told
			{20 * ms, ms, true, "true 1m6"},
		} {
			u.run(row.lasts, row.took, row.well)
			if got := holds(); !strings.HasPrefix(got, row.want) {
				t.Errorf("%d: %s, want %s", i, got, row.want)
			}
		}
		time.Sleep(5 * time.Second) // without an answer
		if got := holds(); got != "false not known: fewer than 20 answers in 5s" {
			t.Error(got)
		}
		if r.Holds(time.Now().Add(-24 * time.Hour).UnixMicro()) {
			t.Error("it holds after the clock was set back")
		}
		if begun, ended := strings.Count(u.log.String(), "a rule applies"), strings.Count(u.log.String(), "no longer applies"); begun != 3 || ended != 2 || !strings.Contains(u.log.String(), `rule=calm when="upstream_p90 >200ms" upstream_p90=303ms`) {
			t.Errorf("begun %d times, ended %d, want 3 and 2:\n%s", begun, ended, &u.log)
		}
		if other := rs.Rule("other", "calm"); other.Holds(time.Now().UnixMicro()) || !strings.HasPrefix(rules.TraitOf[*when.Slow](other).Now(0), "not measured") {
			t.Error("the rule of another domain was told")
		}
	})
}

// To measure costs no memory.
func TestAllocatesNothing(t *testing.T) {
	rs, u, now := parse(t, slowly), new(upstream), time.Unix(1e9, 0)
	log := slog.New(slog.DiscardHandler)
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(20 * time.Millisecond)
		u.Wanted(rs, rs, "api")
		u.Answered(now, 10*time.Millisecond, true, log)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMistakes(t *testing.T) {
	for value, want := range map[string]string{
		`{upstream_p90: "200ms"}`:     `rules.yaml:3:47: "upstream_p90" must be > and a time, not "200ms"; write upstream_p90: ">200ms"`,
		`{upstream_p90: "<200ms"}`:    `3:47: "upstream_p90" must be > and a time, not "<200ms"; write upstream_p90: ">200ms"`,
		`{upstream_p90: ">=0.2s"}`:    `3:47: "upstream_p90" must be > and a time, not ">=0.2s"; write upstream_p90: ">200ms"`,
		`{upstream_p90: 200}`:         `3:47: "upstream_p90" must be > and a time, not "200"; for example when: {upstream_p90: ">200ms"}`,
		`{upstream_p90: ">"}`:         `3:47: "upstream_p90": invalid duration "": want a number and a unit, such as 250ms or 2m`,
		`{upstream_p90: ">200"}`:      `3:47: "upstream_p90": invalid duration "200": want a number and a unit, such as 250ms or 2m`,
		`{upstream_p90: ">slow"}`:     `3:47: "upstream_p90": invalid duration "slow"`,
		`{upstream_p90: ">0ms"}`:      `3:47: "upstream_p90": 0ms must be from 1ms to 1m`,
		`{upstream_p90: ">24h"}`:      `3:47: "upstream_p90": 24h must be from 1ms to 1m`,
		`{upstream_p90: [">200ms"]}`:  `3:47: "upstream_p90" must be > and a time, not a list`,
		`{upstream_p99: ">200ms"}`:    `3:33: unknown key "upstream_p99" in when, did you mean "upstream_p90"?`,
		`{cpu: ">90%"}`:               `3:33: unknown key "cpu" in when; use upstream_p90`,
		`{}`:                          `3:32: when has no "upstream_p90"`,
		`">200ms"`:                    `3:32: when must be a mapping`,
		`{upstream_p90: "> 1.5s"}`:    "",
		`{upstream_p90: ">200ms"}`:    "",
		`{upstream_p90: ' >  200ms'}`: "",
	} {
		_, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte("domain: api\nlimits:\n  - {name: a, rate: 1/s, when: " + value + "}\n")})
		got := ""
		if len(problems) > 0 {
			got = diagnostic.Problems(problems).Error()
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s\nwant %s", value, got, want)
		}
	}
}

// Where no proxy is configured, the rule is a mistake; where that is not known, it is not.
func TestWarnsWithoutAProxy(t *testing.T) {
	for options, want := range map[rulefile.Options]int{{NoProxy: true}: 2, {ProxyDomain: "third"}: 2, {ProxyDomain: "other"}: 1, {}: 0} {
		rs, _ := options.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(slowly)})
		if len(rs.Warnings()) != want || want > 0 && !strings.Contains(rs.Warnings()[0].String(), `rules.yaml:3:29: warning: the rule never applies`) {
			t.Errorf("%+v: %v", options, rs.Warnings())
		}
	}
}
