package metrics_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// split has rules with series by value, configured in different ways, and one rule
// without.
const split = `
domain: api
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: tenant
    descriptors:
      - {key: agent, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// tell decides about one descriptor, given as alternating keys and values.
func (f *fixture) tell(t testing.TB, pairs ...string) {
	t.Helper()
	d := &rules.Descriptor{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Entries = append(d.Entries, rules.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	v, err := f.Decide(context.Background(), engine.Query{
		Domain: "api", At: f.now.UnixMicro(), Door: engine.DoorGRPC, Parts: []engine.Part{{Request: d, Cost: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
}

// byValue returns the series by value: DESCRIPTOR DOMAIN OUTCOME RULE.
func (f *fixture) byValue(t testing.TB) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, n := range f.gathered(t) {
		if rest, ok := strings.CutPrefix(name, "descriptor_decisions_total "); ok {
			out[rest] = n
		}
	}
	return out
}

func same(t *testing.T, when string, got, want map[string]float64) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\ngot  %v\nwant %v", when, got, want)
	}
}

func TestBobAndAnnHaveSeriesOfTheirOwn(t *testing.T) {
	f := newFixture(t, split)
	for range 3 {
		f.tell(t, "user", "bob")
	}
	f.tell(t, "user", "ann")
	f.tell(t, "tenant", "a", "agent", "curl")
	f.tell(t, "tenant", "b", "agent", "curl")
	f.tell(t, "plain", "bob")
	f.ask(t, "/", "ann") // not a descriptor, though the rule for users applies
	same(t, "by value", f.byValue(t), map[string]float64{
		"user_bob api allowed user": 2, "user_bob api refused user": 1, "user_ann api allowed user": 1,
		"tenant.agent_curl api allowed tenant.agent": 2,
	})
	if got := f.gathered(t); got["decisions_total api allowed user"] != 4 || got["decisions_total api refused user"] != 1 {
		t.Error("by rule:", got)
	}
}

// logged returns a buffer, and an option that makes an Observer log into it.
func logged() (*bytes.Buffer, func(*metrics.Options)) {
	b := new(bytes.Buffer)
	return b, func(o *metrics.Options) { o.Log = slog.New(slog.NewTextHandler(b, nil)) }
}

func TestOneValueTooManyIsCountedWithTheOthers(t *testing.T) {
	log, change := logged()
	f := newFixture(t, split, change)
	for i := range 100 {
		f.tell(t, "user", fmt.Sprint(i))
	}
	f.observer.Prune(f.now)
	if got := f.byValue(t); len(got) != 100 || got["user_99 api allowed user"] != 1 || log.Len() > 0 {
		t.Errorf("of 100 values: %d series %v, log %q", len(got), got, log)
	}
	for i := range 103 {
		f.tell(t, "user", fmt.Sprint(i))
		f.observer.Prune(f.now)
	}
	got := f.byValue(t)
	if len(got) != 101 || got["user_99 api allowed user"] != 2 || got["(other) api allowed user"] != 3 {
		t.Errorf("of 103 values: %d series %v", len(got), got)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "rule=user") {
		t.Errorf("%d lines are logged: %s", n, log)
	}
}

// However many rules have series by value, there are at most 10,000 values.
func TestAllRulesTogetherHaveBoundedValues(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: api\ndescriptors:\n")
	for i := range 102 {
		fmt.Fprintf(&b, "  - {key: k%d, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}\n", i)
	}
	f := newFixture(t, b.String())
	fill := func() {
		for i := range 102 {
			for j := range 100 {
				f.tell(t, fmt.Sprint("k", i), fmt.Sprint(j))
			}
		}
	}
	fill()
	got := f.byValue(t)
	if len(got) != 10_002 || got["(other) api allowed k100"] != 100 || got["(other) api allowed k101"] != 100 {
		t.Errorf("%d series, of the last rules %v and %v", len(got), got["(other) api allowed k100"], got["(other) api allowed k101"])
	}
	// Removed rules free their values.
	f.reload(t, split)
	f.now = f.now.Add(metrics.Retention)
	f.observer.Prune(f.now)
	f.tell(t, "user", "bob")
	same(t, "after a reload", f.byValue(t), map[string]float64{"user_bob api allowed user": 1})
}

func TestValuesAfterAReload(t *testing.T) {
	f := newFixture(t, split)
	f.tell(t, "user", "bob")
	f.tell(t, "tenant", "a", "agent", "curl")
	f.reload(t, strings.Replace(split, "requests_per_unit: 2", "requests_per_unit: 5", 1))
	f.tell(t, "user", "bob")
	same(t, "of rules that stay", f.byValue(t), map[string]float64{
		"user_bob api allowed user": 2, "tenant.agent_curl api allowed tenant.agent": 1,
	})
	f.reload(t, strings.Replace(split, "value_to_metric", "detailed_metric", 1))
	f.tell(t, "tenant", "a", "agent", "curl")
	same(t, "of one that asks for others", f.byValue(t), map[string]float64{
		"user_bob api allowed user": 2, "tenant_a.agent_curl api allowed tenant.agent": 1,
	})
	f.reload(t, strings.Replace(split, "detailed_metric: true, ", "", 1))
	f.tell(t, "user", "bob")
	same(t, "of one that asks no more", f.byValue(t), map[string]float64{})
	f.reload(t, split)
	f.tell(t, "user", "bob")
	same(t, "of one that asks again", f.byValue(t), map[string]float64{"user_bob api refused user": 1})
	f.reload(t, twoRules)
	f.now = f.now.Add(metrics.Retention)
	f.observer.Prune(f.now)
	same(t, "of rules that are gone", f.byValue(t), map[string]float64{})
}

// Rules without their own series have none by value.
func TestRulesBeyondTheMostHaveNoValues(t *testing.T) {
	f := newFixture(t, split, func(o *metrics.Options) { o.MaxRules = 1 })
	f.tell(t, "user", "bob")
	f.tell(t, "tenant", "a", "agent", "curl")
	same(t, "by value", f.byValue(t), map[string]float64{"user_bob api allowed user": 1})
}

// Whatever callers send, names are short, valid and on one line, and no name occurs
// twice, which Prometheus would refuse.
func TestHostileValues(t *testing.T) {
	f := newFixture(t, split+"  - {key: (other), value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 200}}\n")
	long := strings.Repeat("x", 100_000)
	for _, value := range []string{
		"", "\xff\xfe", "\xff\xfd", "a\nb", "a\"b\\", "\x00", "\x1b[2J", "\u0085", "é" + long, long, long + "1", "(other)", "user_bob", "{}",
	} {
		f.tell(t, "user", value)
	}
	for i := range 101 {
		f.tell(t, "(other)", fmt.Sprint(i))
	}
	f.tell(t, "(other)", "")
	got := f.byValue(t)
	for name := range got {
		if len(name) > 120 || !utf8.ValidString(name) || strings.ContainsAny(name, "\n\x00\x1b\u0085") {
			t.Errorf("%q", name)
		}
	}
	x := strings.Repeat("x", 64)
	for name, want := range map[string]float64{
		"user api allowed user": 1, "user_\ufffd\ufffd api allowed user": 2, "user_" + x + "… api allowed user": 2,
		"(other) api allowed _other_": 2, "(other)_7 api allowed _other_": 1,
	} {
		if got[name] != want {
			t.Errorf("%q: %v, want %v", name, got[name], want)
		}
	}
}

// Every decision is counted once, with values added, scraped, pruned and reloaded
// concurrently.
func TestValuesFromManySides(t *testing.T) {
	_, change := logged()
	f := newFixture(t, split, change)
	e, now := f.Engine, f.now
	const each = 300
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range each {
				d := &rules.Descriptor{Entries: []rules.Entry{{Key: "user", Value: fmt.Sprint((i + g) % 150)}}}
				v, err := e.Decide(context.Background(), engine.Query{
					Domain: "api", At: now.UnixMicro(), Door: engine.DoorGRPC, Parts: []engine.Part{{Request: d, Cost: 1}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				v.Release()
			}
		})
	}
	group.Go(func() {
		for range 20 {
			f.byValue(t)
			f.observer.Prune(now)
			f.reload(t, split)
		}
	})
	group.Wait()
	sum, series := 0.0, map[string]bool{}
	for name, n := range f.byValue(t) {
		sum += n
		series[strings.Fields(name)[0]] = true
	}
	if sum != 4*each || len(series) != 101 {
		t.Errorf("%v decisions in %d series", sum, len(series))
	}
}
