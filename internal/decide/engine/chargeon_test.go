package engine_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const chargeRules = `
domain: api
limits:
  - {name: failed, match: {path: /login}, key: [user], rate: 5/day, algorithm: fixed_window, charge_on: {status: [401, 403]}}
  - {name: watched, match: {path: /login}, key: [user], rate: 50/day, algorithm: fixed_window, mode: shadow, charge_on: {status: 401}}
  - {name: all, match: {path: /login}, key: [user], rate: 100/day, algorithm: fixed_window}
`

var (
	right     = rules.Answer{Status: 200}
	wrong     = rules.Answer{Status: 401}
	forbidden = rules.Answer{Status: 403}
)

// lefts returns what the rules of chargeRules have left for ann.
func lefts(t *testing.T, e *engine.Engine, seconds float64) string {
	t.Helper()
	list := make([]string, 0, 3)
	for _, rule := range []string{"failed", "watched", "all"} {
		list = append(list, fmt.Sprint(left(t, e, "/login", rule, seconds)))
	}
	return strings.Join(list, " ")
}

// A request that passes is charged at once, and gives back what rules with charge_on
// took if its answer does not count, whatever their mode. Other rules keep theirs.
func TestAnswersThatDoNotCount(t *testing.T) {
	refunded := 0
	e := engine.New(memory.New(), parse(t, chargeRules), engine.WithRefunded(func(*rules.Rule) { refunded++ }))
	login := func(answer *rules.Answer) (v engine.Verdict) {
		v = decide(t, e, query1("/login", 0))
		if answer != nil && v.HasChargeOn() != v.Allowed {
			t.Errorf("an answer matters: %t", v.HasChargeOn())
		}
		if answer != nil {
			for range 2 { // the second time does nothing
				if err := e.SettleAnswer(t.Context(), &v, at(1), *answer); err != nil {
					t.Fatal(err)
				}
			}
			if v.HasChargeOn() {
				t.Error("an answer still matters")
			}
		}
		v.Release()
		return v
	}
	for i, row := range []struct {
		answer *rules.Answer
		left   string
	}{
		{&right, "5 50 99"},
		{&wrong, "4 49 98"},
		{&forbidden, "3 49 97"},
		{nil, "2 48 96"},
		{&right, "2 48 95"},
		{&wrong, "1 47 94"},
		{&wrong, "0 46 93"},
		{&right, "0 46 93"},
	} {
		login(row.answer)
		if got := lefts(t, e, 2); got != row.left {
			t.Errorf("%d: %s left, want %s", i, got, row.left)
		}
	}
	if n := refunded; n != 5 {
		t.Errorf("%d given back, want 5", n)
	}
}

// What is left after an answer is in the results.
func TestResultsAfterAnAnswer(t *testing.T) {
	e := engine.New(memory.New(), parse(t, chargeRules))
	v := decide(t, e, query1("/login", 0))
	if r := v.Results()[0].Decision; r.Remaining != 4 {
		t.Errorf("%+v", r)
	}
	if err := e.SettleAnswer(t.Context(), &v, at(1), right); err != nil {
		t.Error(err)
	}
	if r := v.Results()[0].Decision; r.Remaining != 5 || r.ResetAfter != 0 {
		t.Errorf("%+v, want all of it", r)
	}
	v.Release()
}

// A report settles a check once, at any node, under the rules with charge_on alone.
func TestReports(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window", "sliding_buckets"} {
		store, rs := memory.New(), parse(t, strings.ReplaceAll(chargeRules, "fixed_window, charge_on", algorithm+", charge_on"))
		refunded := 0
		one, other := engine.New(store, rs, engine.WithSecret(shared)), engine.New(store, rs, engine.WithSecret(shared), engine.WithRefunded(func(*rules.Rule) { refunded++ }))
		check := func() string {
			v := decide(t, one, query1("/login", 0))
			defer v.Release()
			token, err := one.ReportToken(t.Context(), &v, start)
			if err != nil || (token != "") != v.Allowed {
				t.Fatalf("%s: %q, %v", algorithm, token, err)
			}
			return token
		}
		report := func(e *engine.Engine, token string, a rules.Answer, seconds float64, want engine.Reported) {
			t.Helper()
			got, err := e.Report(t.Context(), token, a, at(seconds))
			if err != nil || got.Ending != want.Ending || got.Counts != want.Counts || len(got.Lost) != len(want.Lost) {
				t.Errorf("%s: %+v, %v; want %+v", algorithm, got, err, want)
			}
		}
		done, counts := engine.Reported{}, engine.Reported{Counts: true}
		settled := engine.Reported{Settlement: engine.Settlement{Ending: engine.Settled}}
		first, second := check(), check()
		report(other, first, right, 0.01, done)
		report(one, first, right, 0.01, settled)
		report(other, second, wrong, 0.01, counts)
		settled.Counts = true
		report(one, second, wrong, 0.01, settled)
		left := "4 49 98"
		if algorithm == "leaky_bucket" {
			left = "3 49 98" // the second one's turn relies on the first
		}
		if got := lefts(t, one, 0.01); got != left {
			t.Errorf("%s: %s left", algorithm, got)
		}
		if n := refunded; n != 2 {
			t.Errorf("%s: %d given back", algorithm, n)
		}
		third := check()
		if algorithm == "fixed_window" {
			late := engine.Reported{Settlement: engine.Settlement{Ending: engine.Expired}}
			report(other, third, right, engine.DefaultReservation.Seconds()+1, late)
			if got := lefts(t, one, 601); got != "3 48 97" {
				t.Errorf("%s left: a late report has given something back", got)
			}
		}
		one.SetRules(parse(t, "domain: api\nlimits: []\n"))
		gone := engine.Reported{Settlement: engine.Settlement{Lost: []string{"", ""}}}
		fourth := third
		if algorithm != "fixed_window" {
			report(one, fourth, right, 0.02, gone)
		}
		one.SetRules(rs)
	}
}

// Tokens of reports and reservations are not interchangeable.
func TestReportTokensAreNoReservations(t *testing.T) {
	e := engine.New(memory.New(), parse(t, chargeRules))
	v := decide(t, e, query1("/login", 0))
	token, err := e.ReportToken(t.Context(), &v, start)
	v.Release()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Cancel(t.Context(), token, start); err == nil {
		t.Error("a report was cancelled")
	}
	w, reservation, err := e.Reserve(t.Context(), query1("/login", 0), time.Minute)
	w.Release()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Report(t.Context(), reservation, right, start); err == nil {
		t.Error("a reservation was reported")
	}
	if got := lefts(t, e, 0); got != "3 48 98" {
		t.Errorf("%s left", got)
	}
}

// If the store does not answer, a request stays charged: a report can be repeated.
func TestAnswersDuringAnOutage(t *testing.T) {
	store := &counted{Store: memory.New()}
	e := engine.New(store, parse(t, chargeRules))
	v := decide(t, e, query1("/login", 0))
	token, err := e.ReportToken(t.Context(), &v, start)
	if err != nil {
		t.Fatal(err)
	}
	store.down = true
	if _, err := e.Report(t.Context(), token, right, at(1)); err == nil {
		t.Error("no error of the store")
	}
	store.down = false
	if got := lefts(t, e, 1); got != "4 49 99" {
		t.Errorf("%s left", got)
	}
	if out, err := e.Report(t.Context(), token, right, at(1)); err != nil || out.Ending != engine.Done {
		t.Errorf("%+v, %v", out, err)
	}
	if got := lefts(t, e, 1); got != "5 50 99" {
		t.Errorf("%s left", got)
	}
	v.Release()
}

// A check that takes nothing has nothing to report.
func TestNothingToReport(t *testing.T) {
	e := engine.New(memory.New(), parse(t, chargeRules+"  - {name: plain, match: {path: /plain}, rate: 5/day}\n"))
	for _, change := range []func(*engine.Query){
		func(q *engine.Query) { q.Kind = store.KindPeek },
		func(q *engine.Query) { q.Cost = 0 },
		func(q *engine.Query) { q.Request = request{"path": "/plain"} },
	} {
		q := query1("/login", 0)
		change(&q)
		v := decide(t, e, q)
		if token, err := e.ReportToken(t.Context(), &v, start); token != "" || err != nil {
			t.Errorf("%q, %v", token, err)
		}
		v.Release()
	}
}

// FuzzReport: no token settles anything but one that was issued.
func FuzzReport(f *testing.F) {
	store := memory.New()
	e := engine.New(store, parse(f, chargeRules))
	v, err := e.Decide(context.Background(), query1("/login", 0))
	if err != nil {
		f.Fatal(err)
	}
	token, err := e.ReportToken(context.Background(), &v, start)
	if err != nil {
		f.Fatal(err)
	}
	v.Release()
	for _, text := range []string{"", "x", token[:len(token)-1], token + "A", strings.ToLower(token)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sealed, _ := base64.RawURLEncoding.DecodeString(text)
		if issued, _ := base64.RawURLEncoding.DecodeString(token); bytes.Equal(sealed, issued) {
			return
		}
		if out, err := e.Report(t.Context(), text, right, at(1)); err == nil {
			t.Errorf("%q: %+v", text, out)
		}
	})
}
