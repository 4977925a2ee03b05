package rules_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

func TestConcurrency(t *testing.T) {
	for options, want := range map[string]headgate.Limit{
		"concurrency: 20":                 headgate.Concurrent(20),
		"concurrency: 0":                  headgate.Concurrent(0),
		"concurrency: 20, lease: 1m30s":   headgate.Concurrent(20).WithLease(90 * time.Second),
		"concurrency: 1_000, lease: 10ms": headgate.Concurrent(1000).WithLease(10 * time.Millisecond),
	} {
		set := parse(t, "domain: d\nlimits:\n  - {name: r, "+options+"}\n")
		if got := set.Rules()[0]; !got.Limit.Equal(want) || !got.Concurrent() || !set.HasConcurrent() {
			t.Errorf("%s: %v, want %v", options, got.Limit, want)
		}
	}
	if parse(t, "domain: d\nlimits:\n  - {name: r, rate: 5/s}\n").HasConcurrent() {
		t.Error("a rate is taken for a concurrency limit")
	}
}

// TestConcurrencyInTiers: a tier replaces the limit it inherits by one of
// another sort.
func TestConcurrencyInTiers(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - name: exports
    concurrency: 2
    lease: 30s
    tiers:
      by: "header:X-Plan"
      pro: {concurrency: 20}
      metered: {rate: 100/hour, algorithm: sliding_window}
`)
	for name, want := range map[string]headgate.Limit{
		"exports":         headgate.Concurrent(2).WithLease(30 * time.Second),
		"exports/pro":     headgate.Concurrent(20).WithLease(30 * time.Second),
		"exports/metered": headgate.PerHour(100).WithAlgorithm(headgate.SlidingWindow),
	} {
		r := set.Rule("d", name)
		if r == nil || !r.Limit.Equal(want) {
			t.Errorf("%s: %+v, want %s", name, r, want)
		}
	}
}

func TestCostAfter(t *testing.T) {
	set := parse(t, `
domain: d
limits:
  - {name: tokens, rate: 10_000/hour, cost: {estimate: 500, from_response: x-tokens-used, on_error: cancel}}
  - {name: plain, rate: 10/hour, cost: {from_response: X-Cost}}
  - {name: largest, rate: 10/hour, cost: {from_response: X-Cost, on_abort: largest}}
  - {name: estimate, rate: 10/hour, cost: {from_response: X-Cost, on_abort: estimate}}
  - {name: number, rate: 10/hour, cost: {from_response: X-Cost, on_abort: 2_000}}
`)
	r := set.Rule("d", "tokens")
	if r.Cost != 500 || r.CostFrom != nil || *r.CostAfter != (rules.CostAfter{Header: "X-Tokens-Used", CancelErrors: true}) {
		t.Errorf("%+v %+v", r, r.CostAfter)
	}
	if r := set.Rule("d", "plain"); r.Cost != 1 || *r.CostAfter != (rules.CostAfter{Header: "X-Cost"}) {
		t.Errorf("%+v %+v", r, r.CostAfter)
	}
	for name, want := range map[string][2]int64{"largest": {7, 9}, "plain": {7, 9}, "estimate": {7, 7}, "number": {2000, 2000}} {
		c := set.Rule("d", name).CostAfter
		if small, large := c.OnAbort(7, 5), c.OnAbort(7, 9); small != want[0] || large != want[1] {
			t.Errorf("%s: %d and %d, want %v", name, small, large, want)
		}
	}
	for text, want := range map[string]int64{
		"0": 0, "812": 812, " 7 ": 7, "1099511627776": 1 << 40,
		"": -1, "-1": -1, "1.5": -1, "many": -1, "1099511627777": -1, "99999999999999999999999": -1,
	} {
		got, ok := r.CostAfter.Cost(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}
