package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// marked returns the rules of text, changed by name in ways that rule files do not
// support yet.
func marked(t testing.TB, text string, marks map[string]func(*rules.Rule)) *rules.Ruleset {
	t.Helper()
	rs := parse(t, text)
	for _, r := range rs.Rules() {
		if mark := marks[r.Name]; mark != nil {
			mark(r)
		}
	}
	return rs
}

const byEntry = `
domain: api
limits:
  - {name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: team, match: {attributes: {team: {present: true}}}, key: [team], rate: 2/minute, algorithm: fixed_window}
  - {name: seen, match: {attributes: {seen: {present: true}}}, key: [seen], rate: 1/minute, algorithm: fixed_window, mode: shadow}
`

func user(name string) request { return request{"user": name} }
func team(name string) request { return request{"team": name} }

func take(r request) engine.Part { return engine.Part{Request: r, Cost: 1} }

func part(r request, cost int64, kind store.Kind) engine.Part {
	return engine.Part{Request: r, Cost: cost, Kind: kind}
}

// multiRow is one request: its parts, whether it passes, the remaining numbers, and
// which parts are refused.
type multiRow struct {
	parts     []engine.Part
	allowed   bool
	remaining []int64
	refused   []bool
}

func trace(t *testing.T, e *engine.Engine, base engine.Query, rows []multiRow) {
	t.Helper()
	for i, row := range rows {
		q := base
		q.Domain, q.At, q.Parts = "api", start+int64(i), row.parts
		v, err := e.Decide(context.Background(), q)
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if v.Allowed != row.allowed || len(v.Parts()) != len(row.parts) {
			t.Errorf("row %d: allowed %t with %d parts, want %t with %d", i, v.Allowed, len(v.Parts()), row.allowed, len(row.parts))
		}
		for j := range v.Parts() {
			p := &v.Parts()[j]
			if p.Decision.Remaining != row.remaining[j] {
				t.Errorf("row %d: part %d has %d left, want %d", i, j, p.Decision.Remaining, row.remaining[j])
			}
			if want := row.refused != nil && row.refused[j]; p.Allowed == want {
				t.Errorf("row %d: part %d allowed: %t", i, j, p.Allowed)
			}
		}
		v.Release()
	}
}

// A request that one descriptor refuses must not use up the limits of others:
// issue 1060 of envoyproxy/ratelimit.
func TestPartsAreChargedAllOrNone(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{take(user("ann")), take(team("red"))}, true, []int64{2, 1}, nil},
		{[]engine.Part{take(user("ann")), take(team("red"))}, true, []int64{1, 0}, nil},
		{[]engine.Part{take(user("ann")), take(team("red"))}, false, []int64{1, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann")), take(team("red"))}, false, []int64{1, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann"))}, true, []int64{0}, nil},
		{[]engine.Part{take(team("blue")), take(user("ann"))}, false, []int64{2, 0}, []bool{false, true}},
		{[]engine.Part{take(team("blue")), take(team("blue")), take(request{})}, true, []int64{1, 0, 0}, nil},
	})
}

func TestPeekAndRefundParts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{part(user("ann"), 3, store.KindTake)}, true, []int64{0}, nil},
		{[]engine.Part{part(user("ann"), 1, store.KindPeek)}, false, []int64{0}, []bool{true}},
		// A refund next to a refusal is still made.
		{[]engine.Part{part(user("ann"), 2, store.KindRefund), part(team("red"), 9, store.KindTake)}, false, []int64{2, 2}, []bool{false, true}},
		{[]engine.Part{part(user("ann"), 2, store.KindPeek)}, true, []int64{2}, nil},
		{[]engine.Part{part(user("ann"), 9, store.KindRefund)}, true, []int64{3}, nil},
		{[]engine.Part{part(user("ann"), 3, store.KindPeek)}, true, []int64{3}, nil}, // and no more than 3
	})
}

func TestQuotaModeRefusesWhenNoneIsLeft(t *testing.T) {
	quota := func(r *rules.Rule) { r.QuotaMode = true }
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){"user": quota, "team": quota}))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{take(user("ann")), part(team("red"), 2, store.KindTake)}, true, []int64{2, 0}, nil},
		{[]engine.Part{take(user("ann")), take(team("red"))}, true, []int64{1, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann")), take(team("red"))}, true, []int64{0, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann")), take(team("red"))}, false, []int64{0, 0}, []bool{true, true}},
		{[]engine.Part{take(user("ann"))}, false, []int64{0}, []bool{true}},
		{[]engine.Part{take(request{"none": "x"})}, true, []int64{0}, nil},
	})
}

// When quotas refuse a request, limits that are not in quota mode do not change.
func TestQuotaModeGivesBack(t *testing.T) {
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){
		"team": func(r *rules.Rule) { r.QuotaMode = true },
	}))
	both := []engine.Part{take(user("ann")), take(team("red"))}
	trace(t, e, engine.Query{}, []multiRow{
		{both, true, []int64{2, 1}, nil},
		{both, true, []int64{1, 0}, nil},
		{both, false, []int64{1, 0}, []bool{false, true}},
		{both, false, []int64{1, 0}, []bool{false, true}},
		{[]engine.Part{take(user("ann"))}, true, []int64{0}, nil},
		// Refused by the other one: the quota is not checked.
		{[]engine.Part{take(user("ann")), take(team("blue"))}, false, []int64{0, 2}, []bool{true, false}},
		{[]engine.Part{part(team("blue"), 2, store.KindTake)}, true, []int64{0}, nil},
	})
}

func TestReplacedRulesDoNotApply(t *testing.T) {
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){
		"user": func(r *rules.Rule) { r.Replaces = []string{"of-teams"} },
		"team": func(r *rules.Rule) { r.LimitName = "of-teams" },
	}))
	for range 3 {
		trace(t, e, engine.Query{}, []multiRow{
			{[]engine.Part{part(team("red"), 9, store.KindTake), take(request{"user": t.Name()})}, true, []int64{0, 2}, nil},
		})
		e = engine.New(memory.New(), e.Rules())
	}
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{take(team("red"))}, true, []int64{1}, nil}, // alone, it applies
	})
}

// A cost that is only known afterwards must be charged even if it does not fit: tokens
// of a language model, for example. Limits that count refusals add first and compare
// then, whatever the rest of the request does. A peek adds nothing, and is refused when
// the count is above the limit.
func TestChargeDenied(t *testing.T) {
	charge := func(r *rules.Rule) { r.ChargeDenied = true }
	peek := func(r request) engine.Part { return part(r, 1, store.KindPeek) }
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){"user": charge}))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{peek(user("ann"))}, true, []int64{3}, nil},
		{[]engine.Part{part(user("ann"), 50, store.KindTake)}, false, []int64{0}, []bool{true}},
		{[]engine.Part{peek(user("ann"))}, false, []int64{0}, []bool{true}},
		{[]engine.Part{part(user("bob"), 3, store.KindTake)}, true, []int64{0}, nil},
		{[]engine.Part{peek(user("bob"))}, true, []int64{0}, nil}, // exactly at the limit
		// The same count twice; the first refuses.
		{[]engine.Part{part(user("cid"), 5, store.KindTake), take(user("cid"))}, false, []int64{0, 0}, []bool{true, true}},
		// Charged next to a limit that refuses; the one that refuses is not.
		{[]engine.Part{take(user("dan")), part(team("red"), 9, store.KindTake)}, false, []int64{2, 2}, []bool{false, true}},
		{[]engine.Part{part(user("dan"), 9, store.KindTake), take(team("red"))}, false, []int64{0, 2}, []bool{true, false}},
		{[]engine.Part{take(user("dan"))}, false, []int64{0}, []bool{true}},
	})
}

// The modes of a limit that counts refusals change the answer, but not the count.
func TestChargeDeniedInItsModes(t *testing.T) {
	mode := func(more func(*rules.Rule)) func(*rules.Rule) {
		return func(r *rules.Rule) { r.ChargeDenied = true; more(r) }
	}
	quota := mode(func(r *rules.Rule) { r.QuotaMode = true })
	e := engine.New(memory.New(), marked(t, byEntry, map[string]func(*rules.Rule){
		"user": quota, "team": quota, "seen": mode(func(*rules.Rule) {}),
	}))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{part(team("red"), 5, store.KindTake), take(user("ann"))}, true, []int64{0, 2}, []bool{true, false}},
		{[]engine.Part{take(team("red"))}, false, []int64{0}, []bool{true}},
		{[]engine.Part{take(team("red")), part(user("ann"), 9, store.KindTake)}, false, []int64{0, 0}, []bool{true, true}},
	})
	for i, want := range []struct {
		cost, remaining int64
		reason          headgate.Reason
	}{{1, 0, headgate.ReasonOK}, {5, 0, store.ReasonShadow}, {1, 0, store.ReasonShadow}} {
		v, err := e.Decide(context.Background(), engine.Query{
			Domain: "api", At: start, Parts: []engine.Part{part(request{"seen": "x"}, want.cost, store.KindTake)},
		})
		if d := v.Parts()[0].Results()[0].Decision; err != nil || !v.Allowed || !d.Allowed || d.Reason != want.reason || d.Remaining != want.remaining {
			t.Errorf("row %d: %+v, %v", i, d, err)
		}
		v.Release()
	}
}

func TestObserveLetsEverythingPass(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	q := engine.Query{Domain: "api", At: start, Observe: true, Parts: []engine.Part{part(team("red"), 2, store.KindTake)}}
	for i, refuses := range []int{0, 1} {
		v, err := e.Decide(context.Background(), q)
		if err != nil || !v.Allowed || v.WouldRefuse != refuses {
			t.Errorf("request %d: %+v, %v; want %d rules that would refuse", i, v, err, refuses)
		}
		if r := v.Parts()[0].Results()[0]; r.Enforced || (r.Decision.Reason == store.ReasonShadow) != (refuses == 1) {
			t.Errorf("request %d: %+v", i, r)
		}
		v.Release()
	}
}

func TestShadowRulesOfParts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	q := engine.Query{Domain: "api", At: start, Parts: []engine.Part{
		take(request{"seen": "x"}), part(team("red"), 2, store.KindTake),
	}}
	for i, want := range []struct {
		allowed bool
		refuse  int
	}{{true, 0}, {false, 1}} {
		v, err := e.Decide(context.Background(), q)
		if err != nil || v.Allowed != want.allowed || v.WouldRefuse != want.refuse || !v.Parts()[0].Allowed {
			t.Errorf("request %d: %+v, %v", i, v, err)
		}
		v.Release()
	}
}

func TestLimitOfTheRequestReplacesTheRules(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	own := &rules.Rule{Domain: "api", Name: "own", Scope: "own", Cost: 1, Limit: headgate.PerMinute(9).WithAlgorithm(headgate.FixedWindow)}
	p := engine.Part{Request: user("ann"), Cost: 4, Rule: own, Key: "ann"}
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{p}, true, []int64{5}, nil},
		{[]engine.Part{p}, true, []int64{1}, nil},
		{[]engine.Part{p}, false, []int64{1}, []bool{true}},
		{[]engine.Part{take(user("ann"))}, true, []int64{2}, nil},
	})
	v, err := e.Decide(context.Background(), engine.Query{Domain: "other", Parts: []engine.Part{p}})
	if err != nil || !v.Allowed || v.Known || v.Parts()[0].Rule != nil {
		t.Errorf("in an unknown domain: %+v, %v", v, err)
	}
	v.Release()
}

func TestUnknownDomainOfParts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry), engine.WithUnknownDomain(engine.UnknownDomainRefuse))
	v, err := e.Decide(context.Background(), engine.Query{Domain: "other", Parts: []engine.Part{take(user("ann"))}})
	if err != nil || v.Allowed || v.Parts()[0].Allowed || v.Parts()[0].Decision.RetryAfter != headgate.Never {
		t.Errorf("%+v, %v", v, err)
	}
	v.Release()
}

func TestStoreFailsForParts(t *testing.T) {
	down := memory.New()
	_ = down.Close()
	rs := marked(t, byEntry, map[string]func(*rules.Rule){
		"team": func(r *rules.Rule) { r.OnStoreError = rules.StoreErrorDeny },
		"seen": func(r *rules.Rule) { r.OnStoreError = rules.StoreErrorDeny },
	})
	e := engine.New(down, rs)
	rows := []struct {
		parts   []engine.Part
		allowed bool
	}{
		{[]engine.Part{take(user("ann"))}, true},
		{[]engine.Part{take(user("ann")), take(team("red"))}, false},
		{[]engine.Part{take(request{"seen": "x"})}, true}, // it only observes
		{[]engine.Part{part(team("red"), 1, store.KindRefund)}, true},
	}
	for i, row := range rows {
		v, err := e.Decide(context.Background(), engine.Query{Domain: "api", At: start, Parts: row.parts})
		if !errors.Is(err, headgate.ErrUnavailable) || v.Allowed != row.allowed || v.WouldRefuse != 0 {
			t.Errorf("row %d: allowed %t, %d would refuse, %v", i, v.Allowed, v.WouldRefuse, err)
		}
		v.Release()
	}
}

// Without the store, memory charges what it answers for, unless a part that it does not
// answer for is refused. Rules that only observe have no answer; without memory, no
// rules do.
func TestWhichPartsMemoryAnswersFor(t *testing.T) {
	local := func(r *rules.Rule) { r.OnStoreError, r.LocalShare = rules.StoreErrorLocal, 1 }
	deny := func(r *rules.Rule) { r.OnStoreError = rules.StoreErrorDeny }
	for _, quota := range []bool{false, true} {
		rs := marked(t, byEntry, map[string]func(*rules.Rule){
			"user": func(r *rules.Rule) { local(r); r.QuotaMode = quota },
			"team": func(r *rules.Rule) { deny(r); r.QuotaMode = quota },
			"seen": local,
		})
		e := engine.New(broken{}, rs, engine.WithFallback(memory.New()))
		for i, row := range []struct {
			parts   []engine.Part
			allowed bool
			reason  headgate.Reason // of the first part
			left    int64           // of the first part, of 3
		}{
			{[]engine.Part{take(user("ann"))}, true, headgate.ReasonFallback, 2},
			// Not charged next to a refusal; quotas count separately.
			{[]engine.Part{take(user("ann")), take(team("red"))}, quota, headgate.ReasonFallback, map[bool]int64{false: 2, true: 1}[quota]},
			{[]engine.Part{take(user("ann"))}, true, headgate.ReasonFallback, map[bool]int64{false: 1, true: 0}[quota]},
		} {
			v, _ := e.Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: row.parts})
			if d := v.Parts()[0].Decision; v.Allowed != row.allowed || d.Reason != row.reason || d.Remaining != row.left {
				t.Errorf("quota %t, row %d: allowed %t, %+v", quota, i, v.Allowed, d)
			}
			v.Release()
		}
		seen := []engine.Part{take(request{"seen": "x"})}
		v, _ := e.Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: seen})
		if d := v.Parts()[0].Results()[0].Decision; d.Reason != headgate.ReasonFailOpen {
			t.Errorf("what only observes: %+v", d)
		}
		v.Release()
		v, err := engine.New(broken{}, rs).Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: []engine.Part{take(user("ann"))}})
		if !errors.Is(err, headgate.ErrUnavailable) || !v.Allowed || v.Parts()[0].Decision.Reason != headgate.ReasonFailOpen {
			t.Errorf("without memory: %+v, %v", v.Parts()[0].Decision, err)
		}
	}
}

// A limit that counts refusals gives as reason that the limit was exceeded, or that
// memory answered instead.
func TestReasonOfChargeDenied(t *testing.T) {
	rs := marked(t, byEntry, map[string]func(*rules.Rule){"user": func(r *rules.Rule) {
		r.ChargeDenied, r.OnStoreError, r.LocalShare = true, rules.StoreErrorLocal, 1
	}})
	for want, db := range map[headgate.Reason]store.Store{headgate.ReasonLimited: memory.New(), headgate.ReasonFallback: broken{}} {
		e := engine.New(db, rs, engine.WithFallback(memory.New()))
		v, _ := e.Decide(t.Context(), engine.Query{Domain: "api", At: start, Parts: []engine.Part{part(user("ann"), 4, store.KindTake)}})
		if d := v.Parts()[0].Decision; d.Allowed || d.Reason != want {
			t.Errorf("%+v, want %s", d, want)
		}
	}
}

func TestPartsFallBackToMemory(t *testing.T) {
	down := memory.New()
	_ = down.Close()
	local := func(r *rules.Rule) { r.OnStoreError, r.LocalShare = rules.StoreErrorLocal, 1 }
	for name, quota := range map[string]bool{"all or nothing": false, "quota": true} {
		t.Run(name, func(t *testing.T) {
			rs := marked(t, byEntry, map[string]func(*rules.Rule){
				"user": local,
				"team": func(r *rules.Rule) { local(r); r.QuotaMode = quota },
			})
			e := engine.New(down, rs, engine.WithFallback(memory.New()))
			both := []engine.Part{take(user("ann")), take(team("red"))}
			for i, want := range []struct{ allowed bool }{{true}, {true}, {false}, {false}} {
				v, err := e.Decide(context.Background(), engine.Query{Domain: "api", At: start, Parts: both})
				if !errors.Is(err, headgate.ErrUnavailable) || v.Allowed != want.allowed {
					t.Errorf("request %d: allowed %t, %v", i, v.Allowed, err)
				}
				if left := v.Parts()[0].Decision.Remaining; left != int64(max(2-i, 1)) {
					t.Errorf("request %d: ann has %d left", i, left)
				}
				if reason := v.Parts()[0].Decision.Reason; reason != headgate.ReasonFallback {
					t.Errorf("request %d: %s", i, reason)
				}
				v.Release()
			}
		})
	}
}

// A request waits for a failing store once, not once for each type of limit.
func TestFailingStoreIsAskedOnce(t *testing.T) {
	db := &failing{}
	e := engine.New(db, marked(t, byEntry, map[string]func(*rules.Rule){
		"team": func(r *rules.Rule) { r.QuotaMode = true },
	}))
	v, err := e.Decide(context.Background(), engine.Query{Domain: "api", Parts: []engine.Part{
		part(user("bob"), 1, store.KindRefund), take(user("ann")), take(team("red")), take(request{"seen": "x"}),
	}})
	if !errors.Is(err, headgate.ErrUnavailable) || !v.Allowed || db.asked != 1 {
		t.Errorf("allowed %t, %v; the store was asked %d times", v.Allowed, err, db.asked)
	}
}

type failing struct{ asked int }

func (f *failing) Do(_ context.Context, b *store.Batch) {
	f.asked++
	b.Fail(errors.New("no route to host"))
}

func (f *failing) Close() error { return nil }

func TestWrongParts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, byEntry))
	for _, p := range []engine.Part{part(user("ann"), -1, store.KindTake), part(user("ann"), 1, store.KindReset)} {
		v, err := e.Decide(context.Background(), engine.Query{Domain: "api", At: start, Parts: []engine.Part{take(user("ann")), p}})
		if err == nil || v.Allowed {
			t.Errorf("%+v: allowed %t, %v", p, v.Allowed, err)
		}
		v.Release()
	}
	trace(t, e, engine.Query{}, []multiRow{{[]engine.Part{take(user("ann"))}, true, []int64{2}, nil}})
}

func TestObserverHearsOfEveryPart(t *testing.T) {
	heard := &listener{}
	e := engine.New(memory.New(), parse(t, byEntry), engine.WithObserver(heard))
	trace(t, e, engine.Query{}, []multiRow{
		{[]engine.Part{take(user("ann")), take(team("red"))}, true, []int64{2, 1}, nil},
	})
	if len(heard.rules) != 2 || heard.rules[0] != "user" || heard.rules[1] != "team" {
		t.Errorf("heard of %q", heard.rules)
	}
}

type listener struct{ rules []string }

func (r *listener) Observe(_ context.Context, d *engine.Decided) {
	for i := range d.Parts {
		for _, result := range d.Verdict.Parts()[i].Results() {
			r.rules = append(r.rules, result.Rule.Name)
		}
	}
}

// refunds is a store that lists the refunds that it is asked for.
type refunds struct {
	store.Store

	asked []store.Op
}

func (s *refunds) Do(ctx context.Context, b *store.Batch) {
	for _, op := range b.Ops {
		if op.Kind == store.KindRefund {
			op.Key = strings.Clone(op.Key)
			s.asked = append(s.asked, op)
		}
	}
	s.Store.Do(ctx, b)
}

// A refund that a caller asks for does not know when the take was, whatever the memory of
// the decision was used for before: here for refunds that know it.
func TestRefundsKnowNothingOfEarlierOnes(t *testing.T) {
	db := &refunds{Store: memory.New()}
	e := engine.New(db, marked(t, byEntry, map[string]func(*rules.Rule){
		"team": func(r *rules.Rule) { r.QuotaMode = true },
	}))
	both := []engine.Part{take(user("ann")), part(team("red"), 9, store.KindTake)} // handed back
	back := []engine.Part{part(user("bob"), 2, store.KindRefund)}
	for range 5 {
		trace(t, e, engine.Query{}, []multiRow{
			{both, false, []int64{3, 2}, []bool{false, true}},
			{[]engine.Part{part(user("bob"), 3, store.KindTake)}, true, []int64{0}, nil},
			{back, true, []int64{2}, nil},
			{[]engine.Part{part(user("bob"), 9, store.KindRefund)}, true, []int64{3}, nil},
		})
	}
	known := 0
	for _, op := range db.asked {
		switch {
		case op.CountsUntil != 0 && op.Key == key("ann"):
			known++
		case op.CountsUntil != 0 || op.Duration != 0:
			t.Errorf("%+v", op)
		}
	}
	if known != 5 {
		t.Errorf("%d refunds of what was handed back, want 5", known)
	}
}
