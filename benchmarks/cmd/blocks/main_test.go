package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestBlocks measures every row shortly: its premises hold, and a key in blocks needs few
// commands. It does not measure speed.
func TestBlocks(t *testing.T) {
	if _, err := exec.LookPath(cmp.Or(os.Getenv("HEADGATE_REDIS_BIN"), "redis-server")); err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), options{rounds: 1, long: quickTime, json: true}, &out); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for _, w := range allRows() {
		for _, store := range w.stores {
			if n := len(r.Samples[w.name][store]); n != 1 {
				t.Errorf("%s, %s: %d samples, want 1", w.name, store, n)
			}
		}
	}
	for store, want := range map[string][2]float64{inMemory: {0, 0}, exact: {0.99, 1.01}, inBlocks: {0, 0.1}} {
		if got := r.Samples["hot key, 16 callers"][store][0].Commands; got < want[0] || got > want[1] {
			t.Errorf("a hot key, %s: %v commands a decision, want %v", store, got, want)
		}
	}
}

// TestAims: every goal is about a row that exists and has the stores it compares.
func TestAims(t *testing.T) {
	for _, a := range aims() {
		i := slices.IndexFunc(allRows(), func(w row) bool { return w.name == a.row })
		if i < 0 {
			t.Errorf("no row %q", a.row)
			continue
		}
		if stores := allRows()[i].stores; a.versus != "" && !slices.Contains(stores, a.versus) || !slices.Contains(stores, inBlocks) {
			t.Errorf("%s: %s is not compared with %q", a.row, stores, a.versus)
		}
	}
}

// fixture has samples in which exact takes ten times as long as memory, and blocks ns.
func fixture(ns float64) map[string]map[string][]sample {
	all := make(map[string]map[string][]sample)
	for _, w := range allRows() {
		all[w.name] = make(map[string][]sample)
		for _, store := range w.stores {
			t := map[string]float64{inMemory: 10, exact: 2000, inBlocks: ns}[store]
			all[w.name][store] = []sample{{NsPerOp: t, PerSecond: 1e9 / t, Passed: 1e9 / t, Commands: t, ServerCPU: t, Share: 1, Expected: 10, Bound: 1}}
			all[w.name][store][0].P99 = 1
			if store == exact {
				all[w.name][store][0].P99 = 100
			}
		}
	}
	return all
}

func TestGoals(t *testing.T) {
	for _, test := range []struct {
		name   string
		ns     float64
		missed int
	}{
		{"all met", 10, 0},
		{"slower than memory, and more commands by Zipf's law", 16, 2},
		{"more commands and processor time than a fiftieth", 41, 6},
		{"more commands than a twentieth", 101, 8},
		{"as slow as exact", 2000, 8},
		{"slower than exact", 4000, 11},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReport(options{rounds: 1}, allRows(), fixture(test.ns))
			var b strings.Builder
			if err := r.markdown(&b); err != nil {
				t.Fatal(err)
			}
			if got := r.missed(); got != test.missed || strings.Count(b.String(), "| FAIL |") != test.missed {
				t.Errorf("%d goals missed, want %d:\n%s", got, test.missed, b.String())
			}
		})
	}
}
