package engine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// mark is one request of a trace.
type mark struct {
	seconds float64
	cost    int64
	allowed bool
	marked  bool
	left    int64
	over    int64
}

// followMarks sends requests for /a and compares the answers of the only rule.
func followMarks(t *testing.T, e *engine.Engine, rows []mark) {
	t.Helper()
	for i, row := range rows {
		q := ask(request{"path": "/a", "user": "ann"}, row.seconds)
		q.Cost = row.cost
		v := decide(t, e, q)
		r := v.Results()[0]
		got := mark{row.seconds, row.cost, v.Allowed, r.Marked, r.Decision.Remaining, r.Over}
		if got != row || v.Marked > 0 != r.Marked || (r.Outcome() == engine.Marked) != r.Marked {
			t.Errorf("request %d: %+v, want %+v; the verdict has %d marks, outcome %s", i, got, row, v.Marked, r.Outcome())
		}
		if names := v.Marks(nil); r.Marked != slices.Equal(names, []string{"one"}) {
			t.Errorf("request %d: marked by %q", i, names)
		}
		v.Release()
	}
}

// oneRule returns an Engine for a rule named one.
func oneRule(t *testing.T, db store.Store, rule string) *engine.Engine {
	t.Helper()
	return engine.New(db, parse(t, "domain: api\nlimits: [{name: one, key: user, "+rule+"}]"))
}

// algorithms are rules for 10 in a day, of which nothing comes back while a test runs.
func algorithms() map[string]string {
	return map[string]string{
		"token_bucket":    "rate: 10/day",
		"refill":          "rate: 10/day, refill: {every: 12h}",
		"fixed_window":    "rate: 10/day, algorithm: fixed_window, anchor: first_request",
		"sliding_log":     "rate: 10/day, algorithm: sliding_log",
		"sliding_window":  "rate: 10/day, algorithm: sliding_window",
		"sliding_buckets": "rate: 10/day, algorithm: sliding_buckets",
		"concurrency":     "concurrency: 10, lease: 1h",
	}
}

// stores calls test with a store in memory and in Redis.
func stores(t *testing.T, test func(t *testing.T, db store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, memory.New()) })
	t.Run("redis", func(t *testing.T) {
		db, err := redis.New(t.Context(), redis.Options{Addresses: []string{redistest.Standalone(t).Addr}, Timeout: 10 * time.Second, CallerTime: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		test(t, db)
	})
}

// Up to the soft part, requests pass. Above it they are marked, and refused above the
// limit, under every algorithm.
func TestSoftMarksAboveAPartOfTheLimit(t *testing.T) {
	stores(t, func(t *testing.T, db store.Store) {
		for name, rule := range algorithms() {
			t.Run(name, func(t *testing.T) {
				e := engine.New(db, parse(t, "domain: api\nlimits: [{name: one, key: [user, kind], soft: 80%, "+rule+"}]"))
				for i := range 12 {
					v := decide(t, e, ask(request{"user": "ann", "kind": name}, float64(i)/1000))
					if r := v.Results()[0]; v.Allowed != (i < 10) || r.Marked != (i == 8 || i == 9) || r.Over != 0 {
						t.Errorf("request %d: allowed %t, marked %t, over %d", i+1, v.Allowed, r.Marked, r.Over)
					}
					v.Release()
				}
			})
		}
	})
}

// A rule with the action pass marks what is over its limit, under every algorithm. The debt
// ends at one limit, and its state is that of the limit itself.
func TestPassMarksWhatIsOverTheLimit(t *testing.T) {
	all := algorithms()
	all["distinct"] = "rate: 10/day, count: distinct, of: page"
	stores(t, func(t *testing.T, db store.Store) {
		for name, rule := range all {
			t.Run(name, func(t *testing.T) {
				e := engine.New(db, parse(t, "domain: api\nlimits: [{name: one, key: [user, kind], on_limit: pass, "+rule+"}]"))
				for i := range 25 {
					v := decide(t, e, ask(request{"user": "ann", "kind": name, "page": fmt.Sprint(i)}, float64(i)/1000))
					over, left := min(max(i+1-10, 0), 10), max(10-i-1, 0)
					r := v.Results()[0]
					if !v.Allowed || r.Marked != (i >= 10) || r.Over != int64(over) || r.Decision.Remaining != int64(left) || r.Decision.Limit != 10 || r.Decision.RetryAfter != 0 {
						t.Errorf("request %d: marked %t, over %d, want %d; %+v", i+1, r.Marked, r.Over, over, r.Decision)
					}
					if taken := r.Decision.Granted; (taken == 1) != (i < 20) {
						t.Errorf("request %d: %d taken", i+1, taken)
					}
					v.Release()
				}
			})
		}
	})
}

// Costs and time: a debt is paid back before requests pass unmarked.
func TestTracesOfMarks(t *testing.T) {
	rows := []struct {
		name, rule string
		trace      []mark
	}{
		{"soft bucket", "rate: 10/second, burst: 20, soft: 50%", []mark{
			{0, 10, true, false, 10, 0},
			{0, 1, true, true, 9, 0},
			{0, 10, false, false, 9, 0},
			{0, 9, true, true, 0, 0},
			{1, 1, true, true, 9, 0},
			{2, 1, true, false, 18, 0}, // at 2s, 19 of 20 were back
		}},
		{"soft queue", "rate: 1/second, burst: 4, algorithm: leaky_bucket, soft: 50%, on_limit: delay", []mark{
			{0, 1, true, false, 3, 0}, {0, 1, true, false, 2, 0}, {0, 1, true, true, 1, 0}, {0, 1, true, true, 0, 0}, {0, 1, false, false, 0, 0},
		}},
		{"soft queue with a shorter wait", "rate: 1/second, burst: 100, algorithm: leaky_bucket, soft: 50%, on_limit: {action: delay, max_wait: 3s}", []mark{
			{0, 1, true, false, 3, 0}, {0, 1, true, false, 2, 0}, {0, 1, true, true, 1, 0}, {0, 1, true, true, 0, 0}, {0, 1, false, false, 0, 0},
		}},
		{"a part that is not whole", "rate: 3/second, soft: 50%", []mark{
			{0, 1, true, false, 2, 0}, {0, 1, true, true, 1, 0}, // 50% of 3 are 1.5
		}},
		{"pass bucket", "rate: 10/second, on_limit: pass", []mark{
			{0, 10, true, false, 0, 0},
			{0, 5, true, true, 0, 5},
			{0, 50, true, true, 0, 10},
			{1, 1, true, true, 0, 1},
			{1.1, 1, true, true, 0, 1},
			{1.3, 1, true, false, 0, 0},
			{2.3, 1, true, false, 9, 0},
		}},
		{"pass window", "rate: 10/minute, algorithm: fixed_window, on_limit: pass", []mark{
			{0, 30, true, true, 0, 10}, {1, 1, true, true, 0, 10}, {60, 1, true, false, 9, 0},
		}},
		{"soft part of a rule that passes", "rate: 10/minute, algorithm: fixed_window, soft: 80%, on_limit: pass", []mark{
			{0, 8, true, false, 2, 0}, {1, 1, true, true, 1, 0}, {1, 2, true, true, 0, 1}, {60, 1, true, false, 9, 0},
		}},
		{"a limit of nothing", "rate: 0/minute, on_limit: pass", []mark{{0, 1, true, true, 0, 0}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			stores(t, func(t *testing.T, db store.Store) { followMarks(t, oneRule(t, db, row.rule), row.trace) })
		})
	}
}

// Nothing else of a decision differs from that of the same rule without soft.
func TestSoftChangesNothingElse(t *testing.T) {
	all := algorithms()
	all["delay"] = "rate: 10/day, algorithm: leaky_bucket, on_limit: delay"
	all["distinct"] = "rate: 10/day, count: distinct, of: page"
	all["denied"] = "rate: 10/day, algorithm: sliding_log, count_denied: true"
	all["ban"] = "rate: 10/day, on_limit: shadow_ban"
	for name, rule := range all {
		plain, soft := oneRule(t, memory.New(), rule), oneRule(t, memory.New(), rule+", soft: 60%")
		marked := 0
		for i := range 60 {
			q := ask(request{"user": "ann", "page": fmt.Sprint(i % 17)}, float64(i*i*i)/3)
			q.Cost, q.Kind = int64(i%4), store.KindTake
			if i%7 == 3 {
				q.Kind = store.KindPeek
			}
			a, b := decide(t, plain, q), decide(t, soft, q)
			marked += b.Marked
			if a.Decision != b.Decision && !sameButLease(a.Decision, b.Decision) || a.Allowed != b.Allowed || a.Delay != b.Delay || a.Marked != 0 ||
				!sameButLease(a.Results()[0].Decision, b.Results()[0].Decision) || !reflect.DeepEqual(a.Claims(), b.Claims()) {
				t.Errorf("%s, request %d: %+v with soft, %+v without", name, i, b.Decision, a.Decision)
			}
			a.Release()
			b.Release()
		}
		if marked == 0 {
			t.Errorf("%s: nothing was marked, so the test shows nothing", name)
		}
	}
}

// sameButLease compares two decisions, apart from the names of slots.
func sameButLease(a, b store.Decision) bool {
	a.Lease, b.Lease = 0, 0
	return a == b
}

// A rule that passes does not stand in the way of others: they are charged when it is over,
// and it is not charged for what they refuse.
func TestPassIsChargedForWhatPasses(t *testing.T) {
	stores(t, func(t *testing.T, db store.Store) {
		e := engine.New(db, parse(t, `
domain: api
limits:
  - {name: fair, key: user, rate: 2/day, on_limit: pass}
  - {name: hard, key: user, rate: 4/day}
  - {name: none, match: {path: /no}, rate: 0/minute}
`))
		for i := range 3 {
			v := decide(t, e, ask(request{"path": "/no", "user": "ann"}, 0))
			if v.Allowed || v.Marked != 0 || v.Rule.Name != "none" {
				t.Errorf("refused %d: allowed %t by %s, %d marks", i, v.Allowed, v.Rule.Name, v.Marked)
			}
			v.Release()
		}
		for i := range 6 {
			v := decide(t, e, ask(request{"path": "/a", "user": "ann"}, 0))
			fair := v.Results()[0]
			if v.Allowed != (i < 4) || fair.Marked != (i == 2 || i == 3) {
				t.Errorf("request %d: allowed %t, marked %t", i, v.Allowed, fair.Marked)
			}
			if want := int64(max(min(i+1, 4)-2, 0)); fair.Over != want {
				t.Errorf("request %d: over by %d, want %d", i, fair.Over, want)
			}
			v.Release()
		}
	})
}

// In a batch and in parts, as in Envoy's service, marks are the same.
func TestMarksOfPartsAndBatches(t *testing.T) {
	rs := parse(t, "domain: api\nlimits:\n  - {name: one, key: user, rate: 2/day, soft: 50%}\n  - {name: two, key: user, rate: 2/day, on_limit: pass}")
	e := engine.New(memory.New(), rs)
	part := engine.Part{Request: request{"user": "ann"}, Cost: 1}
	v := decide(t, e, engine.Query{Domain: "api", At: start, Parts: []engine.Part{part, {Request: request{"user": "bob"}, Cost: 3}}})
	if v.Allowed || v.Marked != 0 || v.Marks(nil) != nil {
		t.Errorf("refused: allowed %t, %d marks %q", v.Allowed, v.Marked, v.Marks(nil))
	}
	v.Release()
	v = decide(t, e, engine.Query{Domain: "api", At: start, Parts: []engine.Part{part, {Request: request{"user": "bob"}, Cost: 2}}})
	if !v.Allowed || v.Marked != 1 || v.Parts()[0].Marked != 0 || !slices.Equal(v.Parts()[1].Marks(nil), []string{"one"}) || v.Outcome() != engine.Marked {
		t.Errorf("parts: allowed %t, %d marks %q, outcome %s", v.Allowed, v.Marked, v.Marks(nil), v.Outcome())
	}
	v.Release()
	var got []string
	away := struct{ store.Store }{memory.New()} // not Direct
	engine.New(away, rs).DecideBatch(t.Context(), 3, func(int) engine.Query { return engine.Query{Domain: "api", At: start, Part: part} },
		func(_ int, v *engine.Verdict, err error) {
			got = append(got, fmt.Sprint(v.Allowed, " ", v.Marks(nil), err))
		})
	if want := "true [] <nil>|true [one] <nil>|false [] <nil>"; strings.Join(got, "|") != want {
		t.Errorf("batch: %s, want %s", strings.Join(got, "|"), want)
	}
}

// Rules in shadow mode mark nothing, nor does a rule that does not know what is left.
func TestWhoDoesNotMark(t *testing.T) {
	for name, e := range map[string]*engine.Engine{
		"shadow":  oneRule(t, memory.New(), "rate: 1/day, soft: 50%, mode: shadow"),
		"percent": oneRule(t, memory.New(), "rate: 1/day, soft: 50%, percent: 0"),
		"pass":    oneRule(t, memory.New(), "rate: 0/day, on_limit: pass, mode: shadow"),
		"outage":  oneRule(t, broken{}, "rate: 1/day, soft: 50%"),
		"passing": oneRule(t, broken{}, "rate: 1/day, on_limit: pass"),
	} {
		v, _ := e.Decide(t.Context(), ask(request{"user": "ann"}, 0))
		if !v.Allowed || v.Marked != 0 {
			t.Errorf("%s: allowed %t, %d marks", name, v.Allowed, v.Marked)
		}
		v.Release()
	}
}

// During an outage this process goes on marking, by its share of the limit.
func TestPassFallsBack(t *testing.T) {
	e := engine.New(broken{}, parse(t, "domain: api\nlimits: [{name: one, key: user, rate: 4/day, on_limit: pass, on_store_error: {policy: local, share: 0.5}}]"),
		engine.WithFallback(memory.New()))
	for i := range 6 {
		v, _ := e.Decide(t.Context(), ask(request{"user": "ann"}, 0))
		r := v.Results()[0]
		if !v.Allowed || r.Marked != (i >= 2) || r.Over != int64(min(max(i-1, 0), 2)) || r.Decision.Limit != 2 {
			t.Errorf("request %d: marked %t, over %d, %+v", i, r.Marked, r.Over, r.Decision)
		}
		v.Release()
	}
}

// A request behind a shadow ban is charged to what its client can see, a limit that passes
// included.
func TestPassUnderAHiddenRefusal(t *testing.T) {
	e := engine.New(memory.New(), parse(t, `
domain: api
limits:
  - {name: hidden, key: user, rate: 1/day, on_limit: shadow_ban}
  - {name: fair, key: user, rate: 10/day, on_limit: pass}
`))
	for i := range 4 {
		v := decide(t, e, ask(request{"user": "ann"}, 0))
		if fair := v.Results()[1]; fair.Decision.Remaining != int64(9-i) || v.Marked != 0 || v.Allowed != (i == 0) {
			t.Errorf("request %d: %d left, want %d; allowed %t", i, fair.Decision.Remaining, 9-i, v.Allowed)
		}
		v.Release()
	}
}

// What an answer costs in addition is a debt that ends at one limit, too.
func TestPassSettlesWithinItsDebt(t *testing.T) {
	e := oneRule(t, memory.New(), "rate: 10/day, on_limit: pass, cost: {estimate: 1, from_response: X-Cost}")
	v := decide(t, e, ask(request{"user": "ann"}, 0))
	if err := e.SettleCosts(t.Context(), &v, start+1, told(1000, engine.CostKnown)); err != nil {
		t.Fatal(err)
	}
	v.Release()
	v = decide(t, e, ask(request{"user": "ann"}, 1))
	if r := v.Results()[0]; !v.Allowed || !r.Marked || r.Over != 10 {
		t.Errorf("allowed %t, marked %t, over %d", v.Allowed, r.Marked, r.Over)
	}
	v.Release()
	v = decide(t, e, ask(request{"user": "ann"}, (25*time.Hour*2).Seconds()))
	if v.Marked != 0 {
		t.Error("two days later it is still in debt")
	}
	v.Release()
}

// What is refunded of a debt is no longer one.
func TestPassRefundsADebt(t *testing.T) {
	e := oneRule(t, memory.New(), "rate: 1/day, on_limit: pass")
	for range 2 {
		v := decide(t, e, ask(request{"user": "ann"}, 0))
		v.Release()
	}
	for i := range 3 {
		v := decide(t, e, ask(request{"user": "bob"}, 0))
		if (v.Results()[0].Over == 1) != (i > 0) {
			t.Errorf("request %d is over by %d", i, v.Results()[0].Over)
		}
		if i > 0 {
			if err := e.Refund(t.Context(), &v, start+1); err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
	}
}

// A queued request that asks again is charged to a rule that passes when it passes.
func TestPassWhenAskedAgain(t *testing.T) {
	e := engine.New(memory.New(), parse(t, "domain: api\nlimits:\n  - {name: hard, key: user, rate: 1/day}\n  - {name: fair, key: user, rate: 1/day, on_limit: pass}"))
	first := decide(t, e, ask(request{"user": "ann"}, 0))
	first.Release()
	v := decide(t, e, ask(request{"user": "ann"}, 0))
	claims := v.Claims()
	v.Release()
	if v, err := e.Again(t.Context(), "api", claims, start+1); err != nil || v.Allowed {
		t.Errorf("allowed %t, %v", v.Allowed, err)
	}
	v, err := e.Again(t.Context(), "api", claims[1:], start+2)
	if err != nil || !v.Allowed || v.Marked != 1 || v.Results()[0].Over != 1 {
		t.Errorf("allowed %t, %d marks, %v", v.Allowed, v.Marked, err)
	}
}

// A rule that never refuses would not have refused, in shadow mode or outside its percentage.
func TestPassInShadowModeRefusesNothing(t *testing.T) {
	for _, off := range []string{"mode: shadow", "percent: 0"} {
		e := oneRule(t, memory.New(), "rate: 1/day, on_limit: pass, "+off)
		for range 3 {
			v := decide(t, e, ask(request{"user": "ann"}, 0))
			if d := v.Results()[0].Decision; v.WouldRefuse != 0 || v.Outcome() != engine.Allowed || !d.Allowed || d.RetryAfter != 0 {
				t.Errorf("%s: %s, %d would refuse, %+v", off, v.Outcome(), v.WouldRefuse, d)
			}
			v.Release()
		}
	}
}
