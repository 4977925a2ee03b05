package metrics_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// start is the time of the first request, in the middle of a window.
var start = time.Date(2026, 11, 21, 11, 0, 12, 0, time.UTC)

// request is a rules.Request of plain attributes.
type request struct{ path, user string }

func (r *request) Attribute(a rules.Attribute) (string, bool) {
	switch {
	case a.Kind == rules.Path:
		return r.path, true
	case a.Name == "user" && r.user != "":
		return r.user, true
	}
	return "", false
}

func (r *request) ClientIP() netip.Addr { return netip.Addr{} }

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatal(problems)
	}
	return rs
}

// fixture is an engine with an observer.
type fixture struct {
	*engine.Engine
	observer *metrics.Observer
	now      time.Time
	elapsed  atomic.Int64 // nanoseconds
}

func newFixture(t testing.TB, text string, change ...func(*metrics.Options)) *fixture {
	t.Helper()
	f := &fixture{now: start}
	// Each decision takes a microsecond.
	o := metrics.Options{Elapsed: func() time.Duration { return time.Duration(f.elapsed.Add(int64(time.Microsecond))) }}
	for _, c := range change {
		c(&o)
	}
	f.observer = metrics.New(o)
	rs := parse(t, text)
	f.observer.SetRules(rs, f.now)
	f.Engine = engine.New(memory.New(memory.WithMaxKeys(2_000_000)), rs, engine.WithObserver(f.observer), engine.WithStart(f.observer.Start), engine.WithRefunded(f.observer.Refunded))
	return f
}

func (f *fixture) reload(t *testing.T, text string) {
	t.Helper()
	rs := parse(t, text)
	f.observer.SetRules(rs, f.now)
	f.SetRules(rs)
}

// ask decides about one request and returns the result.
func (f *fixture) ask(t testing.TB, path, user string, change ...func(*engine.Query)) engine.Outcome {
	t.Helper()
	q := engine.Query{Domain: "api", Part: engine.Part{Request: &request{path, user}, Cost: 1}, At: f.now.UnixMicro(), Door: engine.DoorAPI}
	for _, c := range change {
		c(&q)
	}
	v, err := f.Decide(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	return v.Outcome()
}

// gathered returns the counters and gauges of f by name and labels.
func (f *fixture) gathered(t testing.TB) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(f.observer.Collector())
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "headgate_") + " " + strings.Join(labels, " ")
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

const twoRules = `
domain: api
limits:
  - {name: real, match: {path: /a}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: trial, match: {path: /a}, key: [user], rate: 1/minute, algorithm: fixed_window, mode: shadow}
`

func TestEachRuleIsCounted(t *testing.T) {
	f := newFixture(t, twoRules)
	for range 5 {
		f.ask(t, "/a", "ann")
	}
	f.ask(t, "/b", "ann")                                                                   // no rule
	f.ask(t, "/a", "ann", func(q *engine.Query) { q.Domain = "other" })                     // unknown
	f.ask(t, "/a", "ann", func(q *engine.Query) { q.Kind = store.KindPeek })                // a peek
	f.ask(t, "/a", "ann", func(q *engine.Query) { q.Cost = 0 })                             // a dry run
	f.ask(t, "/b", "ann", func(q *engine.Query) { q.Door = engine.DoorProxy })              // another door
	f.ask(t, "/a", "bob", func(q *engine.Query) { q.At += int64(time.Millisecond) / 1000 }) // later
	got := f.gathered(t)
	for name, want := range map[string]float64{
		"decisions_total api allowed real":         4,
		"decisions_total api refused real":         2,
		"decisions_total api allowed trial":        2,
		"decisions_total api shadow_refused trial": 4, // including those that real refused
		"decisions_total (unknown) allowed (none)": 1,
		"decisions_total (unknown) refused (none)": 0,
		"near_limit_total api real":                1,
		"near_limit_total api trial":               2,
		"requests_total api allowed":               4,
		"requests_total api shadow_refused":        2,
		"requests_total api refused":               2,
		"requests_total proxy allowed":             1,
		"rules ":                                   2,
		"rules_without_series ":                    0,
	} {
		if is, ok := got[name]; !ok || is != want {
			t.Errorf("%s: %v, want %v", name, is, want)
		}
	}
	// One per core and millisecond.
	if n := got["decision_duration_seconds api"]; n < 2 || n > 10 {
		t.Errorf("%v decisions were timed", n)
	}
	if n, ok := got["decision_duration_seconds proxy"]; !ok || n > 1 { // 1 if the scheduler has moved the test to another core
		t.Errorf("%v of the proxy's one decision were timed", n)
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestAMillionKeysMakeNoMoreSeries(t *testing.T) {
	f := newFixture(t, twoRules)
	f.ask(t, "/a", "ann")
	before := len(f.gathered(t))
	n := 1_000_000
	if testing.Short() || raceDetector {
		n = 50_000
	}
	for i := range n {
		f.now = f.now.Add(20 * time.Microsecond)
		domain := "api"
		if i%10 == 0 {
			domain = fmt.Sprint("domain-", i)
		}
		f.ask(t, "/a", fmt.Sprint("user-", i), func(q *engine.Query) { q.Domain = domain })
	}
	got := f.gathered(t)
	if len(got) > before+1 { // shadow_refused may be new
		t.Errorf("%d series before, %d after", before, len(got))
	}
	if got["decisions_total api allowed real"] != float64(n-n/10+1) || got["decisions_total (unknown) allowed (none)"] != float64(n/10) {
		t.Error(got)
	}
	if list, ok := f.observer.Top(f.Rules().Rule("api", "real"), top.Active, f.now, 1000); !ok || len(list.Keys) > 2*top.Counters {
		t.Errorf("%d keys", len(list.Keys))
	}
}

// many returns n rules.
func many(n int) string {
	var b strings.Builder
	b.WriteString("domain: api\nlimits:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: limit-%d, match: {path: /%d}, key: [user], rate: 10/minute}\n", i, i)
	}
	return b.String()
}

func TestRulesBeyondTheMostShareSeries(t *testing.T) {
	f := newFixture(t, many(5), func(o *metrics.Options) { o.MaxRules = 3 })
	for i := range 5 {
		f.ask(t, fmt.Sprint("/", i), "ann")
	}
	got := f.gathered(t)
	if got["decisions_total api allowed limit-2"] != 1 || got["decisions_total api allowed (other)"] != 2 || got["rules_without_series "] != 2 {
		t.Error(got)
	}
	if _, ok := got["decisions_total api allowed limit-3"]; ok {
		t.Error("limit-3 has series of its own")
	}
}

func TestCountsSurviveAReloadAndFadeWithTheirRule(t *testing.T) {
	f := newFixture(t, many(3), func(o *metrics.Options) { o.MaxRules = 2 })
	old := f.Rules().Rule("api", "limit-1")
	for range 2 {
		f.ask(t, "/0", "ann")
		f.ask(t, "/1", "ann")
	}
	f.reload(t, many(1)) // removes limit-1 and limit-2
	f.ask(t, "/0", "ann")
	if got := f.gathered(t); got["decisions_total api allowed limit-0"] != 3 || got["decisions_total api allowed limit-1"] != 2 {
		t.Error("after the reload:", got)
	}
	if c := f.observer.Counts(old); c[engine.Allowed] != 2 {
		t.Errorf("the old rule has %+v", c)
	}
	f.now = f.now.Add(metrics.Retention)
	f.observer.Prune(f.now)
	if got := f.gathered(t); got["decisions_total api allowed limit-0"] != 3 {
		t.Error("later:", got)
	} else if _, ok := got["decisions_total api allowed limit-1"]; ok {
		t.Error("limit-1 is still there")
	}
	f.reload(t, many(3))
	f.ask(t, "/1", "ann")
	if got := f.gathered(t); got["decisions_total api allowed limit-1"] != 1 || got["rules_without_series "] != 1 {
		t.Error("when it is back:", got)
	}
}

func TestTicksAddUp(t *testing.T) {
	f := newFixture(t, twoRules)
	f.ask(t, "/a", "ann")
	f.ask(t, "/a", "ann")
	tick := f.observer.Tick(f.now)
	want := []metrics.RuleTick{
		{Domain: "api", Rule: "real", Outcomes: metrics.Outcomes{Allowed: 2}},
		{Domain: "api", Rule: "trial", Outcomes: metrics.Outcomes{Allowed: 1, ShadowRefused: 1}, Near: 1},
	}
	if len(tick.Rules) != 2 || tick.Rules[0] != want[0] || tick.Rules[1] != want[1] {
		t.Errorf("%+v", tick.Rules)
	}
	if tick.Totals != (metrics.Totals{Requests: 2, Outcomes: metrics.Outcomes{Allowed: 1, ShadowRefused: 1}}) {
		t.Errorf("%+v", tick.Totals)
	}
	if tick = f.observer.Tick(f.now); len(tick.Rules) != 0 || tick.Totals.Requests != 0 {
		t.Errorf("%+v", tick)
	}
	for i, text := range []string{many(60), many(60)} {
		f.reload(t, text)
		for j := range 60 {
			f.ask(t, fmt.Sprint("/", j), "ann")
		}
		short := f.observer.Tick(f.now).Shorten(50)
		if n := len(short.Rules); n != 50 || short.Rules[49].Rule != "(other)" || short.Rules[49].Allowed != 11 {
			t.Errorf("%d: %d rules, %+v", i, n, short.Rules[n-1])
		}
	}
}

func TestTopKeysAreExactWhileThereAreFewAndRightOnAverageBeyond(t *testing.T) {
	f := newFixture(t, twoRules)
	rule := f.Rules().Rule("api", "real")
	for i := range 300 {
		f.now = f.now.Add(100 * time.Microsecond) // ten per millisecond
		f.ask(t, "/a", fmt.Sprint("user-", i%3))
	}
	got, _ := f.observer.Top(rule, top.Active, f.now, 10)
	if got.Total != 300 || got.Sampled != 0 || len(got.Keys) != 3 || got.Keys[0].Count != 100 || got.Keys[0].Error != 0 {
		t.Errorf("%+v", got)
	}
	refused, _ := f.observer.Top(rule, top.Refused, f.now, 10)
	if refused.Total != 291 {
		t.Errorf("%+v", refused)
	}
	for range 64_000 {
		f.ask(t, "/a", "flood") // all at the same time
	}
	got, _ = f.observer.Top(rule, top.Active, f.now, 10)
	if off := got.Keys[0].Count - 64_000; got.Sampled == 0 || off < -8_000 || off > 8_000 { // eight sigma
		t.Errorf("%+v", got)
	}
}

func TestPartsOfAnEnvoyRequestAreOneRequest(t *testing.T) {
	f := newFixture(t, twoRules)
	part := engine.Part{Request: &request{"/a", "ann"}, Cost: 1}
	back := engine.Part{Request: &request{"/a", "bob"}, Cost: 1, Kind: store.KindRefund}
	for range 2 {
		v, err := f.Decide(context.Background(), engine.Query{
			Domain: "api", At: f.now.UnixMicro(), Door: engine.DoorGRPC, Parts: []engine.Part{part, part, back},
		})
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	got := f.gathered(t)
	for name, want := range map[string]float64{
		"requests_total grpc shadow_refused": 1,
		"requests_total grpc refused":        1,
		"decisions_total api allowed real":   3,
		"decisions_total api refused real":   1,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// unavailable is a store that does not answer.
type unavailable struct{ store.Store }

func (unavailable) Do(_ context.Context, b *store.Batch) { b.Fail(headgate.ErrUnavailable) }

func TestDegradedAnswersAreCountedByPolicy(t *testing.T) {
	text := `
domain: api
limits:
  - {name: open, match: {path: /open}, rate: 3/minute}
  - {name: closed, match: {path: /closed}, rate: 3/minute, on_store_error: deny}
  - {name: local, match: {path: /local}, rate: 3/minute, on_store_error: local}
`
	rs := parse(t, text)
	f := newFixture(t, text)
	f.observer.SetRules(rs, f.now)
	e := engine.New(unavailable{}, rs, engine.WithObserver(f.observer), engine.WithStart(f.observer.Start), engine.WithRefunded(f.observer.Refunded), engine.WithFallback(memory.New()))
	for _, path := range []string{"/open", "/closed", "/local"} {
		v, err := e.Decide(context.Background(), engine.Query{Domain: "api", Part: engine.Part{Request: &request{path: path}, Cost: 1}, At: f.now.UnixMicro()})
		if err == nil {
			t.Fatal("the store answers")
		}
		v.Release()
	}
	got := f.gathered(t)
	for _, name := range []string{"allow open", "deny closed", "local local"} {
		if got["degraded_decisions_total api "+name] != 1 {
			t.Errorf("%s is missing: %v", name, got)
		}
	}
}

// Requests that an answer gave back are counted by rule.
func TestRequestsGivenBack(t *testing.T) {
	f := newFixture(t, "domain: api\nlimits: [{name: failed, rate: 5/minute, charge_on: {status: 401}}]\n")
	for _, status := range []int{200, 401, 200} {
		v, err := f.Decide(t.Context(), engine.Query{Domain: "api", Part: engine.Part{Request: &request{path: "/"}, Cost: 1}, At: start.UnixMicro()})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.SettleAnswer(t.Context(), &v, start.UnixMicro(), rules.Answer{Status: status}); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	if got := f.gathered(t); got["given_back_total api failed"] != 2 || got["decisions_total api allowed failed"] != 3 {
		t.Error(got)
	}
}
