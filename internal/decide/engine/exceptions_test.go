package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const excepted = `
domain: api
limits:
  - {name: user, key: [user], rate: 3/hour, algorithm: fixed_window, anchor: first_request}
  - {name: team, key: [team], rate: 100/hour, algorithm: fixed_window, anchor: first_request}
  - {name: seen, key: [seen], rate: 1/hour, algorithm: fixed_window, anchor: first_request, mode: shadow}
`

// key returns a key with a single part.
func key(part string) string { return string(headgate.AppendKey(nil, part)) }

// at returns a time in microseconds.
func at(seconds float64) int64 { return start + int64(seconds*1e6) }

// with returns another limit for a key until a time.
func with(t *testing.T, rs *rules.Ruleset, name, part, rate string, until float64) engine.Exception {
	t.Helper()
	rule := rs.Rule("api", name)
	instead, err := rule.WithLimit(rate, 0)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Exception{
		Scope: rule.Scope, Key: key(part), LimitUntil: at(until),
		Instead: []engine.Instead{{Of: rule, Rule: instead}},
	}
}

func banned(rs *rules.Ruleset, name, part string, until float64) engine.Exception {
	return engine.Exception{Scope: rs.Rule("api", name).Scope, Key: key(part), BannedUntil: at(until)}
}

func TestLimitOfOneKey(t *testing.T) {
	rs := parse(t, excepted)
	e := engine.New(memory.New(), rs)
	rows := []struct {
		second    float64
		user      string
		allowed   bool
		remaining int64
	}{
		{0, "ann", true, 2},
		{0, "bob", true, 2},
		// From second 1, ann has 5 an hour, of which one is used.
		{1, "ann", true, 3},
		{2, "ann", true, 2},
		{2, "bob", true, 1},
		{3, "ann", true, 1},
		{4, "ann", true, 0},
		{5, "ann", false, 0},
		// From second 10, the rule's own limit applies, with the same usage.
		{10, "ann", false, 0},
		{10, "bob", true, 0},
		{3600, "ann", true, 2},
	}
	for i, row := range rows {
		if row.second == 1 {
			e.SetExceptions(engine.NewExceptions([]engine.Exception{with(t, rs, "user", "ann", "5/hour", 10)}, at(1)))
		}
		v := decide(t, e, ask(user(row.user), row.second))
		if d := v.Decision; v.Rule.Name != "user" || v.Allowed != row.allowed || d.Remaining != row.remaining {
			t.Errorf("row %d: %s: %+v", i, v.Rule.Name, d)
		}
		v.Release()
	}
	// Reloaded rules have the limit at once.
	e.SetExceptions(engine.NewExceptions([]engine.Exception{with(t, rs, "user", "cay", "5/hour", 1e6)}, at(1)))
	e.SetRules(parse(t, excepted))
	if v := decide(t, e, ask(user("cay"), 5000)); v.Decision.Limit != 5 {
		t.Errorf("after a reload: %+v", v.Decision)
	}
	e.SetExceptions(nil)
	if v := decide(t, e, ask(user("cay"), 5000)); v.Decision.Limit != 3 {
		t.Errorf("after the end: %+v", v.Decision)
	}
}

// A banned key is refused without any charge, even if the store is down or the rule
// only observes.
func TestBan(t *testing.T) {
	rs := parse(t, excepted)
	db := &downable{Store: memory.New()}
	e := engine.New(db, rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{
		banned(rs, "user", "ann", 60), banned(rs, "seen", "x", 90),
	}, at(0)))
	rows := []struct {
		second  float64
		request request
		rule    string // the one that refuses
		retry   time.Duration
	}{
		{0, request{"user": "ann", "team": "red"}, "user", time.Minute},
		{59.5, request{"user": "ann", "team": "red"}, "user", 500 * time.Millisecond},
		{0, request{"user": "bob", "seen": "x"}, "seen", 90 * time.Second},
		{0, request{"user": "ann", "seen": "x"}, "seen", 90 * time.Second}, // the longer one
	}
	db.fails = true
	for i, row := range rows {
		v, err := e.Decide(context.Background(), ask(row.request, row.second))
		d := v.Decision
		if err != nil || v.Allowed || v.Rule.Name != row.rule || d.Reason != store.ReasonBanned || d.RetryAfter != row.retry || d.ResetAfter != row.retry {
			t.Errorf("row %d: %+v, %v", i, v, err)
		}
		for _, r := range v.Results() {
			if r.Decision.Reason != store.ReasonBanned || !r.Enforced || r.Outcome() != engine.Refused {
				t.Errorf("row %d: %+v", i, r)
			}
		}
		if err := e.Refund(context.Background(), &v, at(row.second)); err != nil {
			t.Errorf("row %d: Undo: %v", i, err)
		}
		v.Release()
	}
	db.fails = false
	v := decide(t, e, ask(request{"user": "ann", "team": "red"}, 60))
	for i, want := range []int64{2, 99} {
		if r := v.Results()[i]; !v.Allowed || r.Decision.Remaining != want {
			t.Errorf("after the ban: %+v, want %d left", r, want)
		}
	}
	// A request without a time uses the time of the exceptions.
	if v := decide(t, e, engine.Query{Domain: "api", Part: engine.Part{Request: user("ann"), Cost: 1}}); v.Decision.RetryAfter != time.Minute {
		t.Errorf("%+v", v.Decision)
	}
}

// downable is a store that can be told to fail.
type downable struct {
	store.Store
	fails bool
}

func (f *downable) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if f.fails {
			return errors.New("down")
		}
		return store.ExecuteAll(ctx, f.Store, ops, out, mode)
	})
}

// A rule's action also applies to a ban, except that no request is queued.
func TestBanAndActions(t *testing.T) {
	for action, want := range map[rules.Action]engine.Outcome{
		rules.Reject: engine.Refused, rules.ShadowBan: engine.ShadowBanned, rules.Queue: engine.Refused, rules.Delay: engine.Refused,
	} {
		rs := marked(t, excepted, map[string]func(*rules.Rule){"user": func(r *rules.Rule) { r.OnLimit.Action = action }})
		e := engine.New(memory.New(), rs)
		e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "user", "ann", 60)}, at(0)))
		if v := decide(t, e, ask(user("ann"), 0)); v.Outcome() != want {
			t.Errorf("%s: %s, want %s", action, v.Outcome(), want)
		}
	}
}

func TestExceptionsOfParts(t *testing.T) {
	rs := parse(t, byEntry)
	e := engine.New(memory.New(), rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{
		banned(rs, "user", "ann", 60), with(t, rs, "team", "red", "9/minute", 60),
	}, at(0)))
	query := engine.Query{Domain: "api", At: start, Parts: []engine.Part{take(user("ann")), take(team("red")), part(user("ann"), 1, store.KindRefund)}}
	all := func() engine.Verdict {
		t.Helper()
		v, err := e.Decide(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := all()
	parts := v.Parts()
	if v.Allowed || parts[0].Decision.Reason != store.ReasonBanned || parts[0].Rule.Name != "user" || parts[1].Decision.Remaining != 9 || !parts[2].Allowed {
		t.Errorf("%+v", parts)
	}
	if first := engine.First(parts); first == nil || first.Decision.RetryAfter != time.Minute {
		t.Errorf("%+v", first)
	}
	query.Observe = true
	if v := all(); !v.Allowed || v.WouldRefuse != 1 || v.Parts()[1].Results()[0].Decision.Remaining != 8 {
		t.Errorf("observing: %+v", v.Parts())
	}
}

func TestExplainShowsExceptions(t *testing.T) {
	rs := parse(t, excepted)
	e := engine.New(memory.New(), rs)
	decide(t, e, ask(request{"user": "ann", "seen": "y"}, 0))
	ban := banned(rs, "seen", "y", 60)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{ban, with(t, rs, "user", "ann", "9/hour", 60)}, at(0)))
	x, err := e.Explain(context.Background(), query(request{"user": "ann", "seen": "y"}))
	if err != nil || x.Verdict.Allowed || x.Verdict.Decision.Reason != store.ReasonBanned || x.Verdict.Rule.Name != "seen" {
		t.Fatalf("%+v, %v", x.Verdict, err)
	}
	for _, r := range x.Parts[0].Rules {
		switch r.Rule.Name {
		case "user":
			if !r.Overridden || r.Decision.Limit != 9 || r.Decision.Remaining != 8 || r.BannedUntil != 0 || r.Unbanned != r.Decision {
				t.Errorf("%+v", r)
			}
		case "seen":
			// The usage does not depend on the ban.
			if r.Overridden || !r.Enforced || r.Decision.RetryAfter != time.Minute || r.BannedUntil != at(60) ||
				r.Unbanned.Allowed || r.Unbanned.Reason != headgate.ReasonLimited || r.Unbanned.ResetAfter != time.Hour {
				t.Errorf("%+v", r)
			}
		}
	}
	x, err = e.Explain(context.Background(), query(request{"seen": "z"})) // z has no exception
	for _, r := range x.Parts[0].Rules {
		if r.Rule.Name == "seen" && (err != nil || r.Enforced || r.BannedUntil != 0 || !r.Decision.Allowed) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	applies, until := e.Applies(rs.Rule("api", "user"), key("ann"), time.UnixMicro(start))
	if applies.Limit.N() != 9 || !until.IsZero() {
		t.Errorf("%s until %s", applies.Limit, until)
	}
}

// Looking up exceptions does not allocate, and costs nothing if there are none: compare
// the sub-benchmarks.
func BenchmarkExceptions(b *testing.B) {
	rs := parse(b, "domain: api\nlimits: [{name: user, key: [user], rate: 1000000000/minute}]")
	var many []engine.Exception
	for i := range 100_000 {
		many = append(many, engine.Exception{Scope: rs.Rule("api", "user").Scope, Key: key(time.Duration(i).String()), BannedUntil: at(1e9)})
	}
	mine := []engine.Exception{{Scope: rs.Rule("api", "user").Scope, Key: key("ann"), BannedUntil: at(1e9)}}
	for _, row := range []struct {
		name string
		x    *engine.Exceptions
	}{{"none", nil}, {"other", engine.NewExceptions(many, 0)}, {"banned", engine.NewExceptions(mine, 0)}} {
		b.Run(row.name, func(b *testing.B) {
			e := engine.New(memory.New(), rs)
			e.SetExceptions(row.x)
			q := ask(user("ann"), 0)
			b.ReportAllocs()
			for b.Loop() {
				v, _ := e.Decide(context.Background(), q)
				v.Release()
			}
		})
	}
}

// An exception of With replaces existing ones; an empty one removes them; the old set
// does not change.
func TestExceptionsWith(t *testing.T) {
	rs := parse(t, excepted)
	e := engine.New(memory.New(), rs)
	old := engine.NewExceptions([]engine.Exception{banned(rs, "user", "ann", 100), banned(rs, "user", "eve", 100)}, at(0))
	pardoned := banned(rs, "user", "ann", 0)
	pardoned.BannedUntil = 0
	first := old.With([]engine.Exception{banned(rs, "user", "bob", 100)}, at(1))
	second := first.With([]engine.Exception{pardoned}, at(2))
	var none *engine.Exceptions
	for _, row := range []struct {
		name   string
		x      *engine.Exceptions
		newer  int
		banned string
	}{
		{"none", none, 0, ""},
		{"old", old, 0, "ann eve "},
		{"with bob", first, 1, "ann bob eve "},
		{"without ann", second, 2, "bob eve "},
		{"bob alone", none.With([]engine.Exception{banned(rs, "user", "bob", 100)}, at(1)), 1, "bob "},
		{"of none", engine.NewExceptions(nil, at(0)), 0, ""},
	} {
		e.SetExceptions(row.x)
		got := ""
		for _, name := range []string{"ann", "bob", "eve"} {
			if v := decide(t, e, ask(request{"user": name}, 3)); v.Decision.Reason == store.ReasonBanned {
				got += name + " "
			}
		}
		if got != row.banned || row.x.Newer() != row.newer || e.Exceptions() != row.x {
			t.Errorf("%s: %sare banned, want %s; %d newer, want %d", row.name, got, row.banned, row.x.Newer(), row.newer)
		}
	}
}

// An exception is active until its time, but not in the microsecond in which it ends.
func TestExceptionsEnd(t *testing.T) {
	rs := parse(t, excepted)
	e := engine.New(memory.New(), rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{with(t, rs, "user", "ann", "5/hour", 10), banned(rs, "user", "bob", 10)}, at(0)))
	rule := rs.Rule("api", "user")
	for _, row := range []struct {
		micros int64
		limit  int64
		banned bool
	}{{at(10) - 1, 5, true}, {at(10), 3, false}} {
		now := time.UnixMicro(row.micros)
		applies, until := e.Applies(rule, key("ann"), now)
		if applies.Limit.N() != row.limit || !until.IsZero() {
			t.Errorf("ann has %s, banned until %v, want %d an hour", applies.Limit, until, row.limit)
		}
		if _, until := e.Applies(rule, key("bob"), now); !until.IsZero() != row.banned || row.banned && !until.Equal(time.UnixMicro(at(10))) {
			t.Errorf("bob is banned until %v", until)
		}
	}
}

// After a reload, a key's override stays active for the tier for which it was set.
func TestLimitOfOneKeyInTiersAfterAReload(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 3/hour, tiers: {by: plan, pro: {rate: 30/hour}}}\n"
	before, now := parse(t, text), parse(t, text)
	x := engine.Exception{Key: key("ann"), LimitUntil: at(60)}
	for _, rule := range before.Rules() {
		instead, err := rule.WithLimit(map[string]string{"": "5/hour", "pro": "50/hour"}[rule.Tier], 0)
		if err != nil {
			t.Fatal(err)
		}
		x.Scope = rule.Scope
		x.Instead = append(x.Instead, engine.Instead{Of: rule, Rule: instead})
	}
	e := engine.New(memory.New(), now)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{x}, at(0)))
	for plan, want := range map[string]int64{"": 5, "pro": 50} {
		if v := decide(t, e, ask(request{"user": "ann", "plan": plan}, 0)); v.Decision.Limit != want {
			t.Errorf("plan %q: a limit of %d, want %d", plan, v.Decision.Limit, want)
		}
	}
	if v := decide(t, e, ask(request{"user": "bob", "plan": "pro"}, 0)); v.Decision.Limit != 30 {
		t.Errorf("another key has a limit of %d", v.Decision.Limit)
	}
}
