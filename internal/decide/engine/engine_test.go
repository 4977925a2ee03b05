package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// request is a rules.Request with a few entries.
type request map[string]string

func (r request) Attribute(a rules.Attribute) (string, bool) {
	v, ok := r[a.String()]
	return v, ok
}

func (r request) ClientIP() netip.Addr { return netip.Addr{} }

func parse(t testing.TB, text string) *rules.Ruleset {
	t.Helper()
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(text)})
	if rs == nil {
		t.Fatalf("rules: %v", diagnostics)
	}
	return rs
}

// start is the time of all tests, in microseconds.
const start = 1_800_000_000_000_000

func ask(r request, seconds float64) engine.Query {
	return engine.Query{Domain: "api", Part: engine.Part{Request: r, Cost: 1}, At: start + int64(seconds*1e6)}
}

func decide(t *testing.T, e *engine.Engine, q engine.Query) engine.Verdict {
	t.Helper()
	v, err := e.Decide(context.Background(), q)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	return v
}

const twoLimits = `
domain: api
limits:
  - {name: user, match: {path: /a}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: team, match: {path: /a}, key: [team], rate: 2/minute, algorithm: fixed_window}
`

// Trap T28: a limit must not be charged for a request that another refuses.
func TestAllLimitsAreChargedOrNone(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	rows := []struct {
		user, team string
		allowed    bool
		rule       string
		remaining  int64
	}{
		{"ann", "red", true, "team", 1},
		{"ann", "red", true, "team", 0},
		{"ann", "red", false, "team", 0}, // ann is not charged for this one
		{"ann", "blue", true, "user", 0}, // her third
		{"ann", "green", false, "user", 0},
		{"bob", "green", true, "team", 1}, // green was not charged for ann's
	}
	for i, row := range rows {
		v := decide(t, e, ask(request{"path": "/a", "user": row.user, "team": row.team}, float64(i)))
		if v.Allowed != row.allowed || v.Rule.Name != row.rule || v.Decision.Remaining != row.remaining {
			t.Errorf("row %d: allowed %t by %s with %d left, want %t by %s with %d",
				i, v.Allowed, v.Rule.Name, v.Decision.Remaining, row.allowed, row.rule, row.remaining)
		}
		if len(v.Results()) != 2 {
			t.Errorf("row %d: %d results, want both limits", i, len(v.Results()))
		}
		v.Release()
	}
}

func TestNoRuleApplies(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	v := decide(t, e, ask(request{"path": "/b"}, 0))
	if !v.Allowed || !v.Known || v.Rule != nil || v.Decision.Reason != headgate.ReasonNoLimit {
		t.Errorf("verdict %+v, want one without a limit", v)
	}
}

func TestUnknownDomain(t *testing.T) {
	q := ask(request{"path": "/a"}, 0)
	q.Domain = "nobody's"
	for policy, allowed := range map[engine.UnknownDomain]bool{engine.UnknownDomainAllow: true, engine.UnknownDomainRefuse: false} {
		e := engine.New(memory.New(), parse(t, twoLimits), engine.WithUnknownDomain(policy))
		v := decide(t, e, q)
		if v.Allowed != allowed || v.Known || v.Rule != nil {
			t.Errorf("policy %s: verdict %+v", policy, v)
		}
	}
	v := decide(t, engine.New(memory.New(), nil), ask(request{}, 0))
	if v.Known || !v.Allowed {
		t.Errorf("without rules: %+v", v)
	}
}

const shadowed = `
domain: api
limits:
  - {name: real, match: {path: /a}, key: [user], rate: 3/minute, algorithm: fixed_window}
  - {name: trial, match: {path: /a}, key: [user], rate: 1/minute, algorithm: fixed_window, mode: shadow}
`

func TestShadowNeverRefusesAndNeverStandsInTheWay(t *testing.T) {
	e := engine.New(memory.New(), parse(t, shadowed))
	rows := []struct {
		allowed     bool
		remaining   int64 // of the rule real
		wouldRefuse int
	}{{true, 2, 0}, {true, 1, 1}, {true, 0, 1}, {false, 0, 1}}
	for i, row := range rows {
		v := decide(t, e, ask(request{"path": "/a", "user": "ann"}, 0))
		if v.Allowed != row.allowed || v.Rule.Name != "real" || v.Decision.Remaining != row.remaining || v.WouldRefuse != row.wouldRefuse {
			t.Errorf("request %d: %+v, want %+v", i, v, row)
		}
		trial := v.Results()[1]
		if !trial.Decision.Allowed || trial.Enforced || (row.wouldRefuse > 0) != (trial.Decision.Reason == store.ReasonShadow) {
			t.Errorf("request %d: trial said %+v", i, trial.Decision)
		}
		v.Release()
	}
}

// A request that an enforced rule refuses does not reach an observing one; otherwise
// its numbers would differ from those it would have if enforced.
func TestShadowIsNotChargedForRefusedRequests(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: none, match: {path: /no}, rate: 0/minute}
  - {name: trial, key: [user], rate: 5/minute, algorithm: fixed_window, mode: shadow}
`))
	for range 3 {
		v := decide(t, e, ask(request{"path": "/no", "user": "ann"}, 0))
		v.Release()
	}
	v := decide(t, e, ask(request{"path": "/yes", "user": "ann"}, 0))
	if got := v.Results()[0].Decision.Remaining; got != 4 || v.Rule != nil {
		t.Errorf("trial has %d left, want 4; rule %v", got, v.Rule)
	}
}

func TestPeekChargesNothing(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	q := ask(request{"path": "/a", "user": "ann", "team": "red"}, 0)
	q.Kind = store.KindPeek
	for range 5 {
		v := decide(t, e, q)
		if !v.Allowed || v.Decision.Remaining != 2 {
			t.Fatalf("peek: %+v", v)
		}
		v.Release()
	}
}

func TestCostIsMultipliedByTheRules(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: units, rate: 10/minute, cost: 3, algorithm: fixed_window}
`))
	rows := []struct {
		cost      int64
		allowed   bool
		remaining int64
		reason    headgate.Reason
	}{
		{2, true, 4, headgate.ReasonOK},
		{0, true, 4, headgate.ReasonOK}, // a dry run
		{2, false, 4, headgate.ReasonLimited},
		{1, true, 1, headgate.ReasonOK},
		{1 << 62, false, 1, headgate.ReasonTooLarge}, // trap T4: 3 × 2^62 overflows
	}
	for i, row := range rows {
		q := ask(request{}, 0)
		q.Cost = row.cost
		v := decide(t, e, q)
		if v.Allowed != row.allowed || v.Decision.Remaining != row.remaining || v.Decision.Reason != row.reason {
			t.Errorf("row %d: %+v, want %+v", i, v.Decision, row)
		}
		v.Release()
	}
}

func TestWrongQueriesAreRefused(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	negative := ask(request{"path": "/a"}, 0)
	negative.Cost = -1
	if v, err := e.Decide(context.Background(), negative); v.Allowed || !errors.Is(err, headgate.ErrInvalidCost) {
		t.Errorf("negative cost: allowed %t, err %v", v.Allowed, err)
	}
	grant := ask(request{"path": "/a"}, 0)
	grant.Kind = store.KindGrant
	for grant.Cost = range int64(2) {
		if v, err := e.Decide(context.Background(), grant); v.Allowed || err == nil || errors.Is(err, headgate.ErrInvalidCost) {
			t.Errorf("grant %d: allowed %t, err %v", grant.Cost, v.Allowed, err)
		}
	}
}

// broken is a store that cannot answer.
type broken struct{ store.Store }

var errBroken = errors.New("connection refused")

func (broken) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return errBroken
	})
}

func TestStoreFailureIsAnsweredByTheRules(t *testing.T) {
	e := engine.New(broken{}, parse(t, `
domain: api
limits:
  - {name: open, match: {path: [/a, /c]}, rate: 5/minute}
  - {name: closed, match: {path: [/b, /c]}, rate: 5/minute, on_store_error: deny}
  - {name: trial, match: {path: /d}, rate: 5/minute, on_store_error: deny, mode: shadow}
`))
	rows := []struct {
		path    string
		allowed bool
		reason  headgate.Reason
	}{
		{"/a", true, headgate.ReasonFailOpen},
		{"/b", false, headgate.ReasonFailClosed},
		{"/c", false, headgate.ReasonFailClosed},
		{"/d", true, headgate.ReasonNoLimit},
	}
	for _, row := range rows {
		v, err := e.Decide(context.Background(), ask(request{"path": row.path}, 0))
		if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, errBroken) {
			t.Errorf("%s: err %v, want ErrUnavailable and its cause", row.path, err)
		}
		if v.Allowed != row.allowed || v.Decision.Reason != row.reason {
			t.Errorf("%s: %+v, want %+v", row.path, v.Decision, row)
		}
		v.Release()
	}
}

const queue = `
domain: api
limits:
  - {name: queue, key: [user], rate: 1/second, burst: 3, algorithm: leaky_bucket}
  - {name: hourly, key: [user], rate: 100/hour, algorithm: fixed_window}
`

func TestUndoFreesThePlaceInTheQueue(t *testing.T) {
	e := engine.New(memory.New(), parse(t, queue))
	ann := request{"user": "ann"}
	var last engine.Verdict
	for i := range 3 {
		last = decide(t, e, ask(ann, 0))
		if want := time.Duration(i) * time.Second; !last.Allowed || last.Delay != want {
			t.Fatalf("request %d: allowed %t, delay %s, want %s", i, last.Allowed, last.Delay, want)
		}
	}
	full := decide(t, e, ask(ann, 0))
	if full.Allowed || full.Delay != 0 || full.Rule.Name != "queue" {
		t.Fatalf("full queue: %+v", full)
	}
	for range 2 { // the second does nothing
		if err := e.Refund(context.Background(), &last, start); err != nil {
			t.Fatal(err)
		}
	}
	again := decide(t, e, ask(ann, 0))
	if !again.Allowed || again.Delay != 2*time.Second {
		t.Errorf("after Undo: allowed %t, delay %s, want the place of the one who left", again.Allowed, again.Delay)
	}
	if got := again.Results()[1].Decision.Remaining; got != 97 {
		t.Errorf("hourly has %d left, want 97: the one who left was refunded here too", got)
	}
}

func TestSetRulesKeepsCounts(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	ann := request{"path": "/a", "user": "ann", "team": "red"}
	v := decide(t, e, ask(ann, 0))
	v.Release()
	e.SetRules(parse(t, `
domain: api
limits:
  - {name: user, match: {path: /a}, key: [user], rate: 10/minute, algorithm: fixed_window}
`))
	v = decide(t, e, ask(ann, 0))
	if v.Decision.Remaining != 8 {
		t.Errorf("remaining %d of 10, want 8: one was used before the reload", v.Decision.Remaining)
	}
}

// recorder is an Observer.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) Observe(_ context.Context, d *engine.Decided) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, result := range d.Verdict.Results() {
		parts, _ := rules.SplitKey(result.Key)
		r.seen = append(r.seen, d.Query.Domain+" "+result.Rule.Name+" "+parts[0].Value+" "+result.Decision.Reason.String())
	}
	if d.Start != d.Query.At || d.Shard == 0 {
		r.seen = append(r.seen, fmt.Sprintf("%+v", d))
	}
	if d.Err != nil {
		r.seen = append(r.seen, d.Err.Error())
	}
}

func TestObserverHearsOfEveryLimit(t *testing.T) {
	var r recorder
	e := engine.New(memory.New(), parse(t, shadowed), engine.WithObserver(&r), engine.WithStart(func(at int64, _ uint32) int64 { return at }))
	for range 2 {
		v := decide(t, e, ask(request{"path": "/a", "user": "ann"}, 0))
		v.Release()
	}
	want := []string{"api real ann ok", "api trial ann ok", "api real ann ok", "api trial ann shadow"}
	if len(r.seen) != len(want) {
		t.Fatalf("heard %q, want %q", r.seen, want)
	}
	for i := range want {
		if r.seen[i] != want[i] {
			t.Errorf("heard %q, want %q", r.seen[i], want[i])
		}
	}
}

func TestConcurrentDecisionsAdmitExactlyTheLimit(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 8 {
		wg.Go(func() {
			for range 50 {
				v, err := e.Decide(context.Background(), ask(request{"path": "/a", "user": "ann", "team": "red"}, 0))
				if err != nil {
					t.Error(err)
				}
				if v.Allowed {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
				v.Release()
			}
		})
	}
	wg.Wait()
	if admitted != 2 {
		t.Errorf("admitted %d, want 2", admitted)
	}
}

func TestVerdictAfterRelease(t *testing.T) {
	e := engine.New(memory.New(), parse(t, twoLimits))
	v := decide(t, e, ask(request{"path": "/a", "user": "ann", "team": "red"}, 0))
	v.Release()
	v.Release()
	if v.Results() != nil {
		t.Error("a released verdict still has results")
	}
	if err := e.Refund(context.Background(), &v, start); err != nil {
		t.Error(err)
	}
}

// Requests that were matched before get the same decisions.
func TestMatchedBefore(t *testing.T) {
	rs := parse(t, twoLimits)
	plain, ahead := engine.New(memory.New(), rs), engine.New(memory.New(), rs)
	var m rules.Matches
	refused := 0
	for i := range 8 {
		q := ask(request{"path": []string{"/a", "/b"}[i/6], "user": "u", "team": fmt.Sprint("t", i%2)}, float64(i))
		want := decide(t, plain, q)
		known := rs.Match(q.Domain, q.Request, &m)
		q.Request, q.Matched = nil, &engine.Matched{Known: known, Checks: m.Checks}
		got, err := ahead.Decide(t.Context(), q)
		if err != nil || got.Allowed != want.Allowed || got.Known != want.Known || got.Rule != want.Rule || got.Decision != want.Decision ||
			!slices.Equal(got.Results(), want.Results()) {
			t.Errorf("%d: %+v, %v, want %+v", i, got, err, want)
		}
		if !got.Allowed {
			refused++
		}
		got.Release()
		want.Release()
	}
	unknown := ask(nil, 0)
	unknown.Matched = &engine.Matched{}
	v, err := ahead.Decide(t.Context(), unknown)
	if err != nil || v.Known || !v.Allowed || refused == 0 {
		t.Errorf("unknown domain: %+v, %v; %d refused", v, err, refused)
	}
}

// A domain chooses the dialect of its answers if a limit applies.
func TestHeadersOfADomain(t *testing.T) {
	e := engine.New(memory.New(), parse(t, "domain: api\nheaders: github\nlimits:\n  - {name: user, match: {path: /a}, key: [user], rate: 3/hour}\n"))
	for path, want := range map[string]string{"/a": "github", "/b": ""} {
		v := decide(t, e, query1(path, 0))
		if got := v.Headers(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestUnknownDomainNames(t *testing.T) {
	for _, u := range []engine.UnknownDomain{engine.UnknownDomainAllow, engine.UnknownDomainRefuse} {
		if got, ok := engine.ParseUnknownDomain(u.String()); !ok || got != u {
			t.Errorf("%d is %q, which reads as %d", u, u, got)
		}
	}
	if engine.UnknownDomainRefuse.String() != "refuse" {
		t.Error("the policy that refuses is not called so")
	}
	if _, ok := engine.ParseUnknownDomain("deny"); ok {
		t.Error("deny is a policy")
	}
}
