package engine_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const withHeadroom = `
domain: api
priorities: {classes: [critical, default, sheddable], from: class}
limits:
  - {name: fleet, rate: 100/minute, headroom: {critical: 20%, default: 10%}}
  - {name: own, key: user, rate: 60/minute, algorithm: fixed_window}
`

// TestHeadroomIsForHigherClasses: each class passes until only what is kept for those above
// it is left. Who is refused for that has taken nothing of the other limits, and is told to
// come back in a few seconds, not at once.
func TestHeadroomIsForHigherClasses(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, withHeadroom))
	passed := func(class, user string) (n int, last engine.Verdict) {
		for {
			last = decide(t, e, ask(request{"class": class, "user": user}, 0))
			if !last.Allowed {
				return n, last
			}
			n++
		}
	}
	for _, row := range []struct {
		class, user string
		passed      int
		reason      store.Reason
		rule        string
	}{
		{"sheddable", "ann", 60, store.ReasonLimited, "own"}, // 429: her own limit
		{"sheddable", "bob", 10, store.ReasonHeadroom, "fleet"},
		{"none", "bob", 10, store.ReasonHeadroom, "fleet"},
		{"critical", "bob", 20, store.ReasonLimited, "fleet"},
	} {
		n, v := passed(row.class, row.user)
		if n != row.passed || v.Decision.Reason != row.reason || v.Rule.Name != row.rule {
			t.Errorf("%d requests of %s passed, and then %s by %s; want %d, %s by %s", n, row.class, v.Decision.Reason, v.Rule.Name, row.passed, row.reason, row.rule)
		}
		if retry := v.Decision.RetryAfter; row.reason == store.ReasonHeadroom && (retry < time.Second || retry > 3*time.Second || retry%time.Second != 0) {
			t.Errorf("retry after %s", retry)
		}
	}
	// Bob has taken 40 of his own, and nothing for what was refused.
	x, err := e.Explain(context.Background(), engine.ExplainQuery{Domain: "api", Cost: 1, At: start, Parts: []rules.Request{request{"class": "sheddable", "user": "bob"}}})
	if err != nil {
		t.Fatal(err)
	}
	fleet, own := x.Parts[0].Rules[0], x.Parts[0].Rules[1]
	if own.Decision.Remaining != 20 || fleet.Rule.ClassText(fleet.Class) != "sheddable (class), leaves 30% to higher classes" {
		t.Errorf("%+v, class %s", own.Decision, fleet.Rule.ClassText(fleet.Class))
	}
}

// TestHeadroomOfAQueuedRequest: who decides again still knows the class.
func TestHeadroomOfAQueuedRequest(t *testing.T) {
	t.Parallel()
	e := engine.New(memory.New(), parse(t, withHeadroom))
	for i := range 80 {
		decide(t, e, ask(request{"class": "critical", "user": strconv.Itoa(i)}, 0))
	}
	for class, want := range map[string]bool{"sheddable": false, "critical": true} {
		v := decide(t, e, ask(request{"class": class, "user": "x"}, 0))
		again, err := e.Again(context.Background(), "api", v.Claims(), start)
		if err != nil || v.Allowed != want || again.Allowed != want {
			t.Errorf("%s: %t and again %t, %v; want %t", class, v.Allowed, again.Allowed, err, want)
		}
	}
}

// TestHeadroomOfTheFallback: while the store is away, a request that only had to leave room is
// told so, too.
func TestHeadroomOfTheFallback(t *testing.T) {
	t.Parallel()
	e := engine.New(broken{}, parse(t, `
domain: api
priorities: {classes: [critical, default], from: class}
limits: [{name: fleet, rate: 20/day, headroom: {critical: 50%}, on_store_error: local}]
`), engine.WithFallback(memory.New()))
	for i := range 22 {
		class, want := "default", store.ReasonFallback
		if i >= 11 {
			class = "critical"
		}
		switch i {
		case 10:
			want = store.ReasonHeadroom
		case 21:
			want = store.ReasonFallback
		}
		v, _ := e.Decide(t.Context(), ask(request{"class": class}, 0))
		if v.Decision.Reason != want || v.Allowed != (i != 10 && i != 21) {
			t.Errorf("request %d: allowed %t, %s, want %s", i, v.Allowed, v.Decision.Reason, want)
		}
		if shed := v.Decision.RetryAfter; i == 10 && (shed < time.Second || shed > 3*time.Second) {
			t.Errorf("try again in %s", shed)
		}
		v.Release()
	}
}

const softLowers = `
domain: api
priorities:
  classes: [critical, default, sheddable]
  rules:
    - {match: {path: /pay}, class: critical}
    - {soft: true, class: sheddable}
limits:
  - {name: fleet, rate: 20/day, headroom: {critical: 20%, default: 30%}}
  - {name: tokens, match: {path: [/chat, /pay]}, key: user, rate: 8/day, SOFT}
`

// TestSoftLowersTheClass: who is over a soft limit is shed first, unless a rule before says
// that the request is important. Nobody else pays a second call to the store.
func TestSoftLowersTheClass(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"soft: 25%", "on_limit: pass, soft: 25%"} {
		db := &counted{Store: memory.New()}
		e := engine.New(db, parse(t, strings.Replace(softLowers, "SOFT", how, 1)))
		for i, row := range []struct {
			path, user string
			n          int    // requests, all but the last of which pass
			passes     bool   // the last
			class      string // of the last
		}{
			{"/chat", "ann", 2, true, "default"},
			{"/chat", "ann", 5, true, "sheddable"}, // of fleet 13 are left, and 10 must be
			{"/none", "ann", 2, true, "default"},   // no soft limit here
			{"/chat", "bob", 1, true, "default"},
			{"/chat", "ann", 1, false, "sheddable"}, // ann is over her soft limit: shed
			{"/chat", "bob", 1, true, "default"},    // bob is not
			{"/none", "bob", 5, true, "default"},
			{"/none", "bob", 1, false, "default"},
			{"/pay", "ann", 1, true, "critical"}, // over it, but a rule before says otherwise
			{"/pay", "cid", 1, true, "critical"},
		} {
			for n := range row.n {
				before := db.calls
				v := decide(t, e, ask(request{"path": row.path, "user": row.user}, 0))
				fleet := v.Results()[0]
				if last := n == row.n-1; v.Allowed != (row.passes || !last) || last && fleet.Class() != row.class {
					t.Errorf("%s, row %d, request %d: allowed %t, class %s, %s", how, i, n, v.Allowed, fleet.Class(), v.Decision)
				}
				if calls := db.calls - before; calls != 1 && row.path != "/chat" && how == "soft: 25%" {
					t.Errorf("%s, row %d: %d calls to the store", how, i, calls)
				}
				v.Release()
			}
		}
		x, err := e.Explain(t.Context(), engine.ExplainQuery{Domain: "api", At: start, Cost: 1, Parts: []rules.Request{request{"path": "/chat", "user": "bob"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range x.Parts[0].Rules {
			if text := r.Rule.ClassText(r.Class); r.Rule.Name == "fleet" && text != "sheddable (over a soft limit), leaves 50% to higher classes" {
				t.Errorf("explained as %q", text)
			}
		}
	}
}
