package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// The algorithms rank as they should, and the strict ones allow no more than the limit in any
// window.
func TestRanking(t *testing.T) {
	sum := map[string]*Result{}
	for _, p := range Profiles(8, 2, 100) {
		for _, s := range Subjects(100, time.Minute) {
			r, err := Run(t.Context(), s, p, func() *memory.Store { return memory.New() })
			if err != nil {
				t.Fatal(err)
			}
			if s.Name == "sliding_buckets 60 strict" || s.Name == "sliding_log" {
				if r.Most > 100 || r.Allowed > 0 || r.AllAllowed > 0 {
					t.Errorf("%s, %s: %d in a window, %+v", p.Name, s.Name, r.Most, r)
				}
			}
			if s.Name == "sliding_log" && (r.Denied > 0 || r.AllRefused > 0) {
				t.Errorf("%s: the log is not exact: %+v", p.Name, r)
			}
			if sum[s.Name] == nil {
				sum[s.Name] = &Result{}
			}
			sum[s.Name].AllAllowed += r.AllAllowed
			sum[s.Name].Requests += r.Requests
		}
	}
	names := []string{
		"fixed_window", "sliding_window", "sliding_buckets 60 lenient", "sliding_buckets 60 weighted", "sliding_buckets 60 strict",
	}
	for i, name := range names[1:] {
		if before, r := sum[names[i]], sum[name]; r.AllAllowed >= before.AllAllowed {
			t.Errorf("%s allows %d of %d wrongly, %s %d", name, r.AllAllowed, r.Requests, names[i], before.AllAllowed)
		}
	}
}

// As docs/internals/accuracy.md says of the weighted edge: if every request counts, it errs in the
// caller's favour because it rounds down, less so with more requests per sub-window.
func TestWeightedRoundsDown(t *testing.T) {
	ratio := func(limit int64) float64 {
		const requests = 40_000
		keys := int(8_000 / limit)
		rnd := rand.New(rand.NewPCG(2, 6))
		p := Profile{Name: "Poisson, at the limit", Keys: keys, Requests: make([]Request, requests)}
		at := 1_795_262_400e6
		for i := range p.Requests {
			at += rnd.ExpFloat64() * 60e6 / float64(limit*int64(keys))
			p.Requests[i] = Request{At: int64(at), Key: rnd.IntN(keys)}
		}
		s := Subject{Name: "weighted", Window: true, Limit: headgate.Per(limit, time.Minute).
			WithAlgorithm(headgate.SlidingBuckets).WithBuckets(store.DefaultBuckets, headgate.EdgeWeighted)}
		r, err := Run(t.Context(), s, p, func() *memory.Store { return memory.New() })
		if err != nil || r.AllAllowed+r.AllRefused < requests/1000 {
			t.Fatalf("%+v, %v", r, err)
		}
		return float64(r.AllAllowed) / float64(max(r.AllRefused, 1))
	}
	few, many := ratio(20), ratio(2_000)
	t.Logf("wrongly allowed for each wrongly refused: %.1f of 20, %.1f of 2,000", few, many)
	if few < 10 || many > few/4 {
		t.Errorf("wrongly allowed for each wrongly refused: %.1f of 20, %.1f of 2,000", few, many)
	}
}
