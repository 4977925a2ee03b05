package metrics_test

import (
	"testing"

	"github.com/headgate/headgate/internal/observe/top"
)

// listedUsersWith returns rules that deny some users.
func listedUsersWith(denied string) string {
	return `
domain: api
allow: {user: ann}
deny: {user: [` + denied + `]}
limits:
  - {name: r, rate: 9/hour}
---
domain: api
deny: {mode: shadow, user: bob}
`
}

// Lists have counts of their own, also after a reload; no key is a label.
func TestListsAreCounted(t *testing.T) {
	f := newFixture(t, listedUsersWith("eve"))
	for _, user := range []string{"ann", "ann", "eve", "bob", "zoe", "eve", "eve"} {
		f.ask(t, "/", user)
	}
	f.reload(t, listedUsersWith("eve, mallory"))
	f.ask(t, "/", "mallory")
	got := f.gathered(t)
	for name, want := range map[string]float64{
		"list_decisions_total user api allow enforce": 2,
		"list_decisions_total user api deny enforce":  4,
		"list_decisions_total user api deny shadow":   1,
		"decisions_total api allowed r":               2,
		"decisions_total api refused r":               0,
		"requests_total api allowed":                  3,
		"requests_total api refused":                  4,
		"requests_total api shadow_refused":           1,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	for _, name := range []string{"decisions_total api refused deny user", "banned_total api deny user", "decisions_total api refused (other)"} {
		if n, ok := got[name]; ok {
			t.Errorf("%s is %v: a list is no rule", name, n)
		}
	}
	lists := f.Rules().Lists()
	for i, hits := range []uint64{2, 4, 1} {
		if l := lists[i]; f.observer.ListHits(l) != hits {
			t.Errorf("%s, %s: %d hits, want %d", l.Rule().Name, l.Mode, f.observer.ListHits(l), hits)
		}
	}
	keys, ok := f.observer.Top(lists[1].Rule(), top.Refused, f.now, 5)
	if !ok || len(keys.Keys) == 0 || keys.Keys[0].Key != "\x03eve" || keys.Keys[0].Count != 3 {
		t.Errorf("the most refused keys of the list: %+v", keys)
	}
	shown, tick := map[string]uint64{}, f.observer.Tick(f.now)
	for i := range tick.Rules {
		shown[tick.Rules[i].Rule] = tick.Rules[i].Sum()
	}
	if shown["deny user"] != 5 || shown["allow user"] != 2 || shown["r"] != 2 {
		t.Errorf("live views show %v", shown)
	}
}
