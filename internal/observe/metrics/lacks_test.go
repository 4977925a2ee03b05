package metrics_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

const wrongName = `
domain: api
limits:
  - {name: wrong, match: {path: /a}, key: [user_id], rate: 1000000/minute}
  - {name: both, match: {path: /a}, key: [user, user_id], rate: 1000000/minute}
  - {name: right, match: {path: /a}, key: [user], rate: 1000000/minute}
  - {name: skip, match: {path: /a}, key: [user_id], key_missing: skip, rate: 1000000/minute}
`

// TestKeysThatNobodyHas: requests without a part of the key are counted. If all lack
// it, at any door, that is reported once per load of the rules.
func TestKeysThatNobodyHas(t *testing.T) {
	var told []string
	f := newFixture(t, wrongName, func(o *metrics.Options) {
		o.Lacking = func(r *rules.Rule, parts uint64) { told = append(told, fmt.Sprintf("%s %b", r.Name, parts)) }
	})
	missing := func(rule string) float64 { return f.gathered(t)["key_missing_total api "+rule] }
	for i := range metrics.LackingAfter - 1 {
		f.ask(t, "/a", fmt.Sprint("user-", i), func(q *engine.Query) { q.Door = engine.Door(i) % engine.Doors })
	}
	f.ask(t, "/a", "") // the last one that counts; the first ones had a user
	f.ask(t, "/b", "")
	if fmt.Sprint(told) != "[wrong 1 both 10]" {
		t.Errorf("told of %v", told)
	}
	for rule, want := range map[string]float64{"wrong": metrics.LackingAfter, "both": metrics.LackingAfter, "right": 1, "skip": 0} {
		if n := missing(rule); n != want {
			t.Errorf("%s: %v missing, want %v", rule, n, want)
		}
	}
	for range 3 * metrics.LackingAfter {
		f.ask(t, "/a", "")
	}
	if len(told) != 2 {
		t.Errorf("told again: %v", told)
	}
	f.reload(t, wrongName)
	for range metrics.LackingAfter {
		f.ask(t, "/a", "")
	}
	if fmt.Sprint(told[2:]) != "[wrong 1 both 11 right 1]" {
		t.Errorf("after a reload: %v", told[2:])
	}
}

// Requests with a rate that is none are counted, those without one are not.
func TestInvalidRates(t *testing.T) {
	f := newFixture(t, `
domain: api
limits:
  - {name: each, match: {path: /a}, key: ["jwt:user"], rate: {from: "jwt:user", max: 9/day, default: 1/day}}
`)
	for _, user := range []string{"5/day", "5/dya", "", "50/day", "unlimited"} {
		f.ask(t, "/a", user)
	}
	if n := f.gathered(t)["invalid_rate_total api each"]; n != 2 {
		t.Errorf("%v requests with an invalid rate, want 2", n)
	}
}

// Requests that name a time zone that does not exist are counted, those that name none are
// not.
func TestUnknownTimeZones(t *testing.T) {
	f := newFixture(t, `
domain: api
limits:
  - {name: daily, match: {path: /a}, key: [user], rate: 9/day, algorithm: fixed_window, timezone: {from: user}}
`)
	for _, user := range []string{"Asia/Tokyo", "Asia/Atlantis", "", "UTC", "Local"} {
		f.ask(t, "/a", user)
	}
	if n := f.gathered(t)["unknown_timezone_total api daily"]; n != 2 {
		t.Errorf("%v requests with an unknown time zone, want 2", n)
	}
}
