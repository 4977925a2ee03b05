//go:build !race

package memory

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// These tests make millions of requests one after another: with the race detector they take
// minutes, and it has nothing to find.

// TestValuesSurviveARestart: a snapshot has the values, or the registers.
func TestValuesSurviveARestart(t *testing.T) {
	exact, measured := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct), headgate.PerDay(1_000_000).WithAlgorithm(store.Distinct)
	for _, c := range []struct {
		limit  headgate.Limit
		values int
	}{{exact, 1}, {exact, 5}, {exact, 4097}, {exact, 30_000}, {exact, 65_536}, {measured, 4096}, {measured, 4097}, {measured, 6000}} {
		limit, values := c.limit, c.values
		s := withValues(t, 2, values, limit)
		var file bytes.Buffer
		if err := s.Save(&file); err != nil {
			t.Fatal(err)
		}
		again := New(at(t0))
		if err := again.Load(&file); err != nil {
			t.Fatal(err)
		}
		for v := range values + 100 {
			op := store.Op{Key: "1", Rule: limit.Rule(), Cost: 1, Member: store.MemberOf([16]byte{1}, strconv.Itoa(v))}
			want, _ := store.Execute(t.Context(), s, op)
			if got, err := store.Execute(t.Context(), again, op); err != nil || got != want || v < values && got.Granted != 0 {
				t.Fatalf("%d values, value %d after the restart: %+v, %v, want %+v", values, v, got, err, want)
			}
		}
		checkShards(t, again)
	}
}

// TestBytesOfValues measures what docs/more/distinct.md states.
func TestBytesOfValues(t *testing.T) {
	exact, measured := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct), headgate.PerDay(1<<20).WithAlgorithm(store.Distinct)
	for _, c := range []struct {
		limit              headgate.Limit
		keys, values, most int
	}{
		{exact, 10_000, 1, 220},
		{exact, 10_000, 20, 365},
		{exact, 2000, 100, 1400},
		{exact, 200, 4096, 47_000},
		{exact, 20, 20_000, 190_000},
		{exact, 10, 65_536, 540_000},
		{measured, 200, 4097, 28_000},
		{measured, 200, 20_000, 28_000},
	} {
		s := withValues(t, c.keys, c.values, c.limit)
		each := s.Stats().Bytes / int64(c.keys)
		t.Logf("%d values: %d bytes a key", c.values, each)
		if each > int64(c.most) {
			t.Errorf("%d values: %d bytes a key, want at most %d", c.values, each, c.most)
		}
	}
}
