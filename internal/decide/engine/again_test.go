package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// A refused request may pass later, when all its limits allow it: those active now,
// with the current bans and overrides.
func TestAgain(t *testing.T) {
	rs := parse(t, excepted)
	e := engine.New(memory.New(), rs)
	claims := []engine.Claim{{Rule: "user", Key: key("ann"), Cost: 2}, {Rule: "team", Key: key("red"), Cost: 1}, {Rule: "gone", Key: key("x"), Cost: 1}, {Rule: "seen", Key: key("x"), Cost: 1}}
	for _, row := range []struct {
		second  float64
		ban     float64 // of the team, end time
		allowed bool
		retry   time.Duration
	}{
		{0, 0, true, 0},
		{1, 0, false, 3599 * time.Second}, // only 1 is left
		{3600, 0, true, 0},
		{7200, 7300, false, 100 * time.Second},
		{7300, 7300, true, 0},
	} {
		var list []engine.Exception
		if row.ban > 0 {
			list = append(list, banned(rs, "team", "red", row.ban))
		}
		e.SetExceptions(engine.NewExceptions(list, at(row.second)))
		v, err := e.Again(context.Background(), "api", claims, at(row.second))
		if err != nil || v.Allowed != row.allowed || v.Decision.RetryAfter != row.retry && !row.allowed {
			t.Errorf("at %v: %v, %+v, %v", row.second, v.Allowed, v.Decision, err)
		}
		if n := len(v.Results()); n > 2 {
			t.Errorf("%d limits were asked, also such as are not in force", n)
		}
		v.Release()
	}
}

// Claims covers enforced limits, and is empty after Release.
func TestClaims(t *testing.T) {
	e := engine.New(memory.New(), parse(t, excepted))
	q := ask(request{"user": "ann", "team": "red", "seen": "x"}, 0)
	q.Cost = 2
	v := decide(t, e, q)
	claims := v.Claims()
	want := []engine.Claim{{Rule: "user", Key: key("ann"), Cost: 1}, {Rule: "team", Key: key("red"), Cost: 1}}
	if !slices.Equal(claims, want) {
		t.Errorf("%+v, want %+v", claims, want)
	}
	v.Release()
	if claims := v.Claims(); claims != nil {
		t.Errorf("after Release: %+v", claims)
	}
}

// A waiting request is asked what a new one of its key is asked: not by a rule that only observes
// the key now, and by none if an allow list has it.
func TestAgainAsANewOne(t *testing.T) {
	const limits = "limits:\n  - {name: user, key: [user], rate: 0/hour%s}\n  - {name: all, rate: 0/hour, percent: 0}\n"
	covered, passed := 0, 0
	for i := range 100 {
		user := fmt.Sprint("user ", i)
		claims := []engine.Claim{{Rule: "user", Key: key(user), Cost: 1}, {Rule: "all", Cost: 1}}
		for _, change := range []struct {
			rules string
			passes,
			may bool
		}{
			{"domain: api\n" + fmt.Sprintf(limits, ""), false, false},
			{"domain: api\n" + fmt.Sprintf(limits, ", percent: 0"), true, true},
			{"domain: api\n" + fmt.Sprintf(limits, ", percent: 30"), false, true},
			{"domain: api\n" + fmt.Sprintf(limits, ", mode: shadow"), true, true},
			{"domain: api\nallow: {user: [\"" + user + "\"]}\n" + fmt.Sprintf(limits, ""), true, true},
			{"domain: api\nallow: {user: [other]}\n" + fmt.Sprintf(limits, ""), false, false},
		} {
			e := engine.New(memory.New(), parse(t, change.rules))
			again, err := e.Again(t.Context(), "api", claims, at(0))
			if err != nil {
				t.Fatal(err)
			}
			v := decide(t, e, ask(request{"user": user}, 0))
			if v.Allowed != again.Allowed || change.passes && !v.Allowed || !change.may && v.Allowed {
				t.Errorf("%s: a new request of %q is allowed: %v, a waiting one: %v", change.rules, user, v.Allowed, again.Allowed)
			}
			if again.Allowed && len(again.Results()) != 0 {
				t.Errorf("%s: %d limits were asked", change.rules, len(again.Results()))
			}
			if !change.passes && change.may {
				if passed++; !v.Allowed {
					covered++
				}
			}
			v.Release()
			again.Release()
		}
	}
	if covered < 15 || covered > 45 {
		t.Errorf("30%% cover %d of %d keys", covered, passed)
	}
}
