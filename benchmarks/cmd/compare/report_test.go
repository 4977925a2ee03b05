package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/benchmarks/measure"
	"github.com/headgate/headgate/benchmarks/subject"
	"github.com/headgate/headgate/benchmarks/workload"
)

// fixture has one round in which every rival takes 100 ns and 100 bytes, on
// one core and on two, and ours takes ns and bytes.
func fixture(ns, bytes float64) map[string][]sample {
	samples := make(map[string][]sample)
	for _, l := range subject.All() {
		s := sample{Library: l.Name, Memory: measure.Memory{BytesPerKey: 100}}
		for range workload.All(1000) {
			s.Speeds = append(s.Speeds, measure.Speed{NsPerOp: 100})
		}
		if l.Name == subject.Ours {
			s.Memory.BytesPerKey = bytes
			for i, w := range workload.All(1000) {
				s.Speeds[i].NsPerOp = ns / float64(w.Cores)
			}
		}
		samples[l.Name] = append(samples[l.Name], s)
	}
	return samples
}

func TestGoals(t *testing.T) {
	for _, test := range []struct {
		name      string
		ns, bytes float64
		missed    int
	}{
		{"all met", 40, 50, 0},
		{"too slow with many keys on one core", 41, 50, 2},
		{"too slow everywhere on one core", 66, 50, 4},
		{"too slow everywhere", 200, 50, 8},
		{"too large", 40, 51, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReport(options{rounds: 1, keys: 1000}, fixture(test.ns, test.bytes))
			if got := r.missed(); got != test.missed {
				t.Errorf("%d goals missed, want %d: %+v", got, test.missed, r.Goals)
			}
			if len(r.Goals) != 10 {
				t.Errorf("%d goals, want 10: hot, denied, uniform and zipf on one core and two, memory, scaling", len(r.Goals))
			}
			var b strings.Builder
			if err := r.markdown(&b); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(b.String(), "| FAIL |"); got != test.missed {
				t.Errorf("the table says FAIL %d times, want %d:\n%s", got, test.missed, b.String())
			}
		})
	}
}

// The best rival must be a product, not the yardstick.
func TestTheFloorIsNoRival(t *testing.T) {
	samples := fixture(40, 50)
	samples["floor"][0].Memory.BytesPerKey = 1
	for _, g := range newReport(options{rounds: 1, keys: 1000}, samples).Goals {
		if g.Rival == "floor" || !g.Met {
			t.Errorf("%+v", g)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 2}, spread{2, 1, 9}},
		{[]float64{4, 1, 2, 9}, spread{3, 1, 9}},
	} {
		if got := spreadOf(test.values); got != test.want {
			t.Errorf("spread of %v is %v, want %v", test.values, got, test.want)
		}
	}
}
