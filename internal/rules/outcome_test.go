package rules_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// outcomes are the rules of testdata/good/outcomes.yaml.
func outcomes(t *testing.T) *rules.Ruleset {
	t.Helper()
	src, err := os.ReadFile("testdata/good/outcomes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(src))
}

func TestDelayBecomesAQueue(t *testing.T) {
	leaky := headgate.PerSecond(5).WithAlgorithm(headgate.LeakyBucket)
	set := outcomes(t)
	for name, want := range map[string]headgate.Limit{
		"wait": leaky.WithBurst(12).WithDelayAfter(8).WithMaxWait(700 * time.Millisecond),
		// Eight at once, and whom four fifths of a second serve.
		"wait-plainly": leaky.WithBurst(12).WithDelayAfter(8).WithMaxWait(800 * time.Millisecond),
		"queue":        leaky,
	} {
		r := set.Rule("outcomes", name)
		if !r.Limit.Equal(want) || r.OnLimit.Action != rules.Delay {
			t.Errorf("%s: %s, %s; want %s", name, r.Limit, r.OnLimit.Action, want)
		}
	}
	if r := set.Rule("outcomes", "wait"); r.OnLimit.Status != 503 || r.OnLimit.Jitter.Percent != 10 {
		t.Errorf("the refusals of a queue: %+v", r.OnLimit)
	}
}

func TestShadowBanIsA200(t *testing.T) {
	set := outcomes(t)
	r := set.Rule("outcomes", "quietly")
	if o := r.OnLimit; o.Action != rules.ShadowBan || o.Status != 200 {
		t.Errorf("%+v", o)
	}
	o := set.Rule("outcomes", "scrapers").OnLimit
	if o.Status != 202 || o.Body != `{"items":[]}` || o.ContentType != "application/json" || o.Headers["X-Backend"] != "eu-1" {
		t.Errorf("%+v", o)
	}
	if diff := cmp.Diff(rules.Latency{120 * time.Millisecond, 30 * time.Millisecond}, o.Latency); diff != "" {
		t.Error(diff)
	}
	if l := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 5/s, on_limit: {action: shadow_ban, latency: 1s +- 0.5s}}\n").Rules()[0].OnLimit.Latency; l.Spread != time.Second/2 {
		t.Errorf("in ASCII: %v", l)
	}
}

func TestJitterAndLatencyStayInBounds(t *testing.T) {
	least, most := func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }
	for _, row := range []struct {
		jitter     rules.Jitter
		exact      time.Duration
		atMost     time.Duration
		randomised bool
	}{
		{rules.Jitter{}, time.Hour, 0, false},
		{rules.Jitter{Percent: 10}, 0, 0, false},
		{rules.Jitter{Percent: 10}, 10 * time.Second, time.Second, true},
		{rules.Jitter{Percent: 100}, 1 << 62, 1 << 62, true},
		{rules.Jitter{Most: 5 * time.Second}, 0, 5 * time.Second, true},
	} {
		if got := row.jitter.Extra(row.exact, least); got != 0 {
			t.Errorf("%+v: at least %s, never less than exact", row.jitter, got)
		}
		if got := row.jitter.Extra(row.exact, most); got != row.atMost {
			t.Errorf("%+v of %s: at most %s, want %s", row.jitter, row.exact, got, row.atMost)
		}
	}
	l := rules.Latency{120 * time.Millisecond, 30 * time.Millisecond}
	if low, high := l.Pick(least), l.Pick(most); low != 90*time.Millisecond || high != 150*time.Millisecond {
		t.Errorf("from %s to %s", low, high)
	}
	if got := (rules.Latency{Base: time.Second}).Pick(most); got != time.Second {
		t.Errorf("without a spread: %s", got)
	}
}

func TestTierOfARequest(t *testing.T) {
	set := outcomes(t)
	for plan, want := range map[string]string{
		"":                    "per-key monthly/free",
		"header:X-Plan=free":  "per-key monthly/free",
		"header:X-Plan=PRO":   "per-key monthly/free",
		"header:X-Plan=":      "per-key monthly/free",
		"header:X-Plan=pro":   "per-key/pro monthly/pro",
		"header:X-Plan=gold":  "per-key/pro monthly/pro",
		"header:X-Plan=exact": "per-key/exact monthly/free",
		"header:X-Plan=staff": "per-key/staff monthly/free",
	} {
		if got := matched(set, "outcomes", request(t, "path=/v1/x header:X-Api-Key=k "+plan)); got != want {
			t.Errorf("%s: %s, want %s", plan, got, want)
		}
	}
}

// A tier has what it says, and else what its limit says. What belongs to
// another algorithm or another rate it does not inherit.
func TestTiersInherit(t *testing.T) {
	set := outcomes(t)
	for name, want := range map[string]headgate.Limit{
		"per-key":       headgate.PerMinute(10).WithBurst(20),
		"per-key/pro":   headgate.PerMinute(1000).WithBurst(20),
		"per-key/exact": headgate.PerMinute(60).WithAlgorithm(headgate.SlidingLog),
		"per-key/staff": headgate.Unlimited(),
		"monthly/free":  headgate.PerCalendar(1000, headgate.Month, time.UTC),
		"monthly/pro":   headgate.PerCalendar(100_000, headgate.Month, time.UTC),
	} {
		r := set.Rule("outcomes", name)
		if r == nil || !r.Limit.Equal(want) {
			t.Errorf("%s: %v, want %s", name, r, want)
			continue
		}
		base, tier, _ := strings.Cut(name, "/")
		if r.Scope != "outcomes/"+base || r.LimitName != base || r.Tier != tier || r.TierBy != (rules.Attribute{Kind: rules.Header, Name: "X-Plan"}) || len(r.Key) != 1 {
			t.Errorf("%s: scope %s, tier %q by %s, key %v", name, r.Scope, r.Tier, r.TierBy, r.Key)
		}
	}
	if got := set.Rule("outcomes", "per-key/exact").OnLimit.Status; got != 503 {
		t.Errorf("its own status: %d", got)
	}
}

func TestCostOfARequest(t *testing.T) {
	set := outcomes(t)
	const absent = "\x00"
	for text, want := range map[string]int64{
		absent: 10, "3": 3, "0": 2, "1": 2, "4000": 4000, "4001": 4000, "0007": 7,
		// What is not a number costs the maximum, so that clients gain nothing.
		"": 4000, "-1": 4000, "+1": 4000, "1 1": 4000, " 1": 2, "1.5": 4000, "1e3": 4000, "x": 4000, "0x1": 4000, "١": 4000,
		strings.Repeat("9", 5000): 4000, "18446744073709551617": 4000, strings.Repeat("0", 5000): 2,
	} {
		req := request(t, "path=/llm")
		if text != absent {
			req.attributes[rules.Attribute{rules.Header, "X-Tokens"}] = text
		}
		var m rules.Matches
		set.Match("outcomes", req, &m)
		if len(m.Checks) != 1 || m.Checks[0].Cost != want {
			t.Errorf("%.20q: %+v, want cost %d", text, m.Checks, want)
		}
	}
	// The default bounds: from 1 to what fits at all.
	r := parse(t, "domain: d\nlimits:\n  - {name: r, rate: 5/s, burst: 70, cost: {from: tokens}}\n").Rules()[0]
	if diff := cmp.Diff(&rules.CostFrom{rules.Attribute{rules.Other, "tokens"}, 1, 1, 70}, r.CostFrom); diff != "" {
		t.Error(diff)
	}
}
