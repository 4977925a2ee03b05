package trial_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/lifetime"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/trial"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/candidate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/follow"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// start is when all tests start.
var start = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)

// user is a rules.Request that only has a user.
type user string

func (u user) Attribute(a rules.Attribute) (string, bool) { return string(u), a.Name == "user" }

func (user) ClientIP() netip.Addr { return netip.Addr{} }

// limited returns the rules of a domain with one limit for each user.
func limited(rate string) string {
	return "domain: d\nlimits:\n  - {name: each, key: [user], algorithm: fixed_window, rate: " + rate + "}\n"
}

// bench is a Trial whose file the test writes.
type bench struct {
	*trial.Trial
	t      *testing.T
	file   string
	now    time.Time
	log    bytes.Buffer
	warned int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, file: filepath.Join(t.TempDir(), "new.yaml"), now: start}
	return b
}

// open starts to compare with the content of the file.
func (b *bench) open() {
	b.t.Helper()
	life := &lifetime.Lifetime{}
	b.t.Cleanup(life.End)
	b.Trial = trial.Open(trial.Options{
		Config: &config.Config{Candidate: config.Candidate{Rules: []string{b.file}}},
		Clock:  func() time.Time { return b.now }, Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Life: life,
		Warn: func(*rules.Ruleset) { b.warned++ }, Live: [32]byte{1},
	})
}

func (b *bench) write(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// state returns how reading went: successes, failures, the rules that are tried,
// whether the last attempt failed, and the log lines since the last call.
func (b *bench) state() string {
	r := b.Reading()
	n := 0
	if r.Rules != nil {
		n = r.Rules.Stats().Rules
	}
	logged := strings.Count(b.log.String(), "\n")
	b.log.Reset()
	return fmt.Sprintf("read %d, failed %d, %d rules, now wrong: %v, logged %d", r.Succeeded, r.Failed, n, r.Failure != nil, logged)
}

// Each change of the files is logged once, and errors in them leave the old rules in
// place.
func TestCandidateIsRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.open()
	change := func(text string) func() { return func() { b.write(text); b.ReloadIfChanged(follow.Occasion{}) } }
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"no file", func() {}, "read 1, failed 0, 0 rules, now wrong: false, logged 1"},
		{"still none", b.Reload, "read 2, failed 0, 0 rules, now wrong: false, logged 0"},
		{"wrong from the beginning", change("domain: d\nlimits: 5\n"), "read 2, failed 1, 0 rules, now wrong: true, logged 1"},
		{"written", change(limited("2/minute")), "read 3, failed 1, 1 rules, now wrong: false, logged 1"},
		{"not changed", func() { b.ReloadIfChanged(follow.Occasion{}) }, "read 3, failed 1, 1 rules, now wrong: false, logged 0"},
		{"read again all the same", b.Reload, "read 4, failed 1, 1 rules, now wrong: false, logged 1"},
		{"broken", change("domain: d\nlimits:\n  - {name: a, rate: 5}\n"), "read 4, failed 2, 1 rules, now wrong: true, logged 1"},
		{"still broken", func() { b.ReloadIfChanged(follow.Occasion{}) }, "read 4, failed 2, 1 rules, now wrong: true, logged 0"},
		{"put right", change(limited("3/minute")), "read 5, failed 2, 1 rules, now wrong: false, logged 1"},
		{"gone", func() { _ = os.Remove(b.file); b.ReloadIfChanged(follow.Occasion{}) }, "read 6, failed 2, 0 rules, now wrong: false, logged 1"},
		{"still gone", func() { b.ReloadIfChanged(follow.Occasion{}) }, "read 6, failed 2, 0 rules, now wrong: false, logged 0"},
		{"wrong meanwhile", change("nonsense"), "read 6, failed 3, 0 rules, now wrong: true, logged 1"},
		{"gone again", func() { _ = os.Remove(b.file); b.ReloadIfChanged(follow.Occasion{}) }, "read 7, failed 3, 0 rules, now wrong: false, logged 1"},
		{"back", change(limited("3/minute")), "read 8, failed 3, 1 rules, now wrong: false, logged 1"},
	} {
		b.now = b.now.Add(time.Minute)
		step.do()
		if got := b.state(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if b.warned != 4 {
		t.Errorf("warnings were asked for %d times, want once for each candidate that was read", b.warned)
	}
}

// LoadedAt is when the current rules were first read, FailedAt when the last failed
// attempt was made.
func TestTimesOfReading(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write(limited("2/minute"))
	b.open()
	at := func(seconds int) { b.now = start.Add(time.Duration(seconds) * time.Second); b.Reload() }
	at(10)
	if r := b.Reading(); !r.LoadedAt.Equal(start) || !r.FailedAt.IsZero() {
		t.Errorf("read twice, the same: %+v", r)
	}
	b.write("nonsense")
	at(20)
	if r := b.Reading(); !r.LoadedAt.Equal(start) || !r.FailedAt.Equal(start.Add(20*time.Second)) || !strings.Contains(r.Failure.Error(), "new.yaml:1:1") {
		t.Errorf("broken: %+v", r)
	}
	b.write(limited("3/minute"))
	at(30)
	if r := b.Reading(); !r.LoadedAt.Equal(start.Add(30*time.Second)) || r.Failure != nil {
		t.Errorf("put right: %+v", r)
	}
}

// decisions sends n requests for each user under live rules, with a candidate if there
// is one, and returns a letter for each answer and what is left.
func decisions(t *testing.T, live string, at time.Time, n int, options ...engine.Option) string {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "live.yaml", Data: []byte(live)})
	if rs == nil {
		t.Fatal(problems)
	}
	e := engine.New(memory.New(memory.WithClock(func() time.Time { return at })), rs, options...)
	var out strings.Builder
	for i := range n {
		v, err := e.Decide(t.Context(), engine.Query{Domain: "d", Part: engine.Part{Cost: 1, Request: user("ab"[i%2 : i%2+1])}, At: at.Add(time.Duration(i) * time.Second).UnixMicro()})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(&out, map[bool]string{true: "a", false: "r"}[v.Allowed], v.Decision.Remaining, " ")
		v.Release()
	}
	return out.String()
}

// A candidate decides alongside the live rules and takes nothing from them; the
// reported changes are those between two separate engines.
func TestCandidateTakesNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ live, tried string }{
		{"2/minute", "3/minute"}, {"3/minute", "2/minute"}, {"3/minute", "3/minute"}, {"1/minute", "5/10s"}, {"0/minute", "1/minute"},
	} {
		b := newBench(t)
		b.write(limited(row.tried))
		b.open()
		const n = 40
		alone, other := decisions(t, limited(row.live), start, n), decisions(t, limited(row.tried), start, n)
		if both := decisions(t, limited(row.live), start, n, engine.WithObserver(b.Comparing)); both != alone {
			t.Errorf("%+v: with the candidate %s, alone %s", row, both, alone)
		}
		var want [candidate.Changes]uint64
		before, after := strings.Fields(alone), strings.Fields(other)
		for i := range before {
			switch was, is := before[i][0], after[i][0]; {
			case was == is && is == 'a':
				want[candidate.SameAllowed]++
			case was == is:
				want[candidate.SameRefused]++
			case is == 'a':
				want[candidate.NewlyAllowed]++
			default:
				want[candidate.NewlyRefused]++
			}
		}
		if got := b.Comparing.Totals(); got != want {
			t.Errorf("%+v: changes %v, want %v", row, got, want)
		}
		if stats, most := b.Store(); stats.Keys != 2 || most != 1_000_000 {
			t.Errorf("%+v: %d keys of %d, want those of two users", row, stats.Keys, most)
		}
	}
}

// A comparison restarts when the live rules change, or on request.
func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write(limited("2/minute"))
	b.open()
	for _, step := range []struct {
		name string
		live *[32]byte
		kept bool
	}{
		{"the rules that it began with", &[32]byte{1}, true},
		{"others", &[32]byte{2}, false},
		{"those again", &[32]byte{2}, true},
		{"the first", &[32]byte{1}, false},
		{"no fingerprint", nil, false},
	} {
		decisions(t, limited("5/minute"), b.now, 10, engine.WithObserver(b.Comparing))
		b.now = b.now.Add(time.Hour)
		b.Restart(step.live)
		r, ok := b.Comparing.Report(10)
		if kept := r.Since.Before(b.now); !ok || kept != step.kept || kept != (r.Counts[candidate.SameAllowed] > 0) {
			t.Errorf("%s: compared since %s, now %s: %v", step.name, r.Since, b.now, r.Counts)
		}
	}
}

// The metrics report how reading and comparing the candidate go.
func TestCollector(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write(limited("2/minute"))
	b.open()
	decisions(t, limited("5/minute"), start, 6, engine.WithObserver(b.Comparing))
	b.write("nonsense")
	b.Reload()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "headgate_candidate_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"decisions_total newly_refused": 2, "decisions_total same_allowed": 4, "rules": 1, "reloads_total success": 1, "reloads_total failure": 1,
		"reload_last_successful": 0, "keys": 2, "evicted_total": 0,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %v, want %v: %v", name, n, want, got)
		}
	}
}
