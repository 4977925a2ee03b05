package metrics_test

import (
	"testing"

	"github.com/headgate/headgate/internal/observe/metrics"
)

// TestShedIsCountedByClass: a request counts once, however many limits it had to leave.
func TestShedIsCountedByClass(t *testing.T) {
	f := newFixture(t, `
domain: api
priorities: {classes: [gold, default], rules: [{match: {path: /pay}, class: gold}]}
limits:
  - {name: a, rate: 100/minute, headroom: {gold: 98%}}
  - {name: b, rate: 100/minute, headroom: {gold: 98%}}
`)
	for range 5 {
		f.ask(t, "/x", "")
	}
	if got := f.gathered(t)["shed_total default headroom"]; got != 3 {
		t.Errorf("%v requests were shed, want 3", got)
	}
}

// TestUpstreamIsToldByClass: an upstream without a place for a request is counted as a reason of
// its own, and its classes are shown with their counts.
func TestUpstreamIsToldByClass(t *testing.T) {
	f := newFixture(t, "domain: api\nlimits: [{name: a, rate: 100/minute}]\n")
	if _, ok := f.observer.Upstream(); ok {
		t.Error("an upstream that nobody has set")
	}
	f.observer.SetUpstream(func() metrics.Upstream {
		return metrics.Upstream{InFlight: 7, Classes: []metrics.UpstreamClass{{Name: "gold", Limit: 10}, {Name: "default", Limit: 8}}}
	})
	for range 3 {
		f.observer.Unplaced("default")
	}
	u, _ := f.observer.Upstream()
	if u.InFlight != 7 || u.Classes[0].Shed != 0 || u.Classes[1].Shed != 3 || f.gathered(t)["shed_total default adaptive"] != 3 {
		t.Errorf("%+v, want 3 of the default class", u)
	}
}
