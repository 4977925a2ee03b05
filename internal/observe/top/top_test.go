package top

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"
)

// truth counts exactly.
type truth map[string]int64

// feed counts a stream in both.
func feed(s *sketch, stream func(yield func(string) bool)) truth {
	exact := truth{}
	for key := range stream {
		exact[key]++
		s.add(key, maphash.String(s.seed, key), 1)
	}
	return exact
}

// streams are difficult inputs for a sketch.
func streams(k int) map[string]func(yield func(string) bool) {
	const n = 50_000
	rotating := func(keys int) func(func(string) bool) {
		return func(yield func(string) bool) {
			for i := range n {
				if !yield(fmt.Sprint(i % keys)) {
					return
				}
			}
		}
	}
	zipf := func(s float64) func(func(string) bool) {
		return func(yield func(string) bool) {
			z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), s, 1, 1_000_000)
			for range n {
				if !yield(fmt.Sprint(z.Uint64())) {
					return
				}
			}
		}
	}
	return map[string]func(func(string) bool){
		"few keys":      rotating(k),
		"one too many":  rotating(k + 1),
		"all different": rotating(n),
		"zipf 1.05":     zipf(1.05),
		"zipf 1.5":      zipf(1.5),
		"a hot key last": func(yield func(string) bool) {
			for i := range n {
				key := fmt.Sprint(i)
				if i > n*9/10 {
					key = "hot"
				}
				if !yield(key) {
					return
				}
			}
		},
		"a hot key between newcomers": func(yield func(string) bool) {
			for i := range n {
				key := fmt.Sprint(i)
				if i%20 == 0 {
					key = "hot"
				}
				if !yield(key) {
					return
				}
			}
		},
	}
}

func TestCountsAreAsWrongAsTheySayAndNoMore(t *testing.T) {
	for _, k := range []int{1, 2, 16, Counters} {
		for name, stream := range streams(k) {
			t.Run(fmt.Sprintf("%d counters, %s", k, name), func(t *testing.T) {
				s := newSketch(k, maphash.MakeSeed())
				exact := feed(s, stream)
				if len(s.slots) > k {
					t.Fatalf("%d slots, want at most %d", len(s.slots), k)
				}
				most := s.total / int64(k)
				there := map[string]bool{}
				for i := range s.slots {
					v := &s.slots[i]
					there[string(v.key)] = true
					real := exact[string(v.key)]
					if v.count < real || v.count-v.error > real || v.error > most {
						t.Errorf("%s: %d, of which %d may be wrong; want %d, and at most %d wrong", v.key, v.count, v.error, real, most)
					}
					if place, ok := s.find(string(v.key), v.hash); !ok || int(s.index[place]) != i+1 {
						t.Errorf("%s is not found", v.key)
					}
				}
				for key, real := range exact {
					if !there[key] && (real > most || real > s.bound()) {
						t.Errorf("%s occurred %d times of %d and is missing (bound %d)", key, real, s.total, s.bound())
					}
					if len(exact) <= k && !there[key] {
						t.Errorf("%s is missing", key)
					}
				}
			})
		}
	}
}

func TestFewKeysAreCountedExactly(t *testing.T) {
	tr := NewTracker()
	for i := range 1000 {
		tr.Add(fmt.Sprint(i%Counters), start, 1, i%Counters < 3)
	}
	for by, want := range map[By]int{Active: Counters, Refused: 3} {
		got := tr.Top(by, start, 1000)
		if len(got.Keys) != want {
			t.Errorf("%s: %d keys, want %d", by, len(got.Keys), want)
		}
		var sum int64
		for _, c := range got.Keys {
			sum += c.Count
			if c.Error != 0 || c.Count != 16 && c.Count != 15 {
				t.Errorf("%s: %+v", by, c)
			}
		}
		if sum != got.Total {
			t.Errorf("%s: the counts add up to %d of %d", by, sum, got.Total)
		}
	}
}

// start is the start of a window.
const start = 5_000_000 * int64(Window/time.Microsecond)

func TestYesterdaysOffenderFades(t *testing.T) {
	window := int64(Window / time.Microsecond)
	tr := NewTracker()
	for range 10 {
		tr.Add("old", start, 1, true)
	}
	tr.Add("new", start+window, 1, true)
	for _, row := range []struct {
		at   int64
		want string
	}{
		{start + window, "old:10 new:1 "},
		{start + 2*window - 1, "old:10 new:1 "},
		{start + 2*window, "new:1 "},
		{start + 3*window, ""},
	} {
		got := ""
		for _, c := range tr.Top(Refused, row.at, 10).Keys {
			got += fmt.Sprintf("%s:%d ", c.Key, c.Count)
		}
		if got != row.want {
			t.Errorf("after %d windows: %q, want %q", (row.at-start)/window, got, row.want)
		}
	}
	if !tr.Idle(start + 3*window) {
		t.Error("it is not idle")
	}
	tr.Add("again", start, 1, false) // the clock went backwards
	if got := tr.Top(Active, start+3*window, 10); len(got.Keys) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestTwoWindowsAddUp(t *testing.T) {
	window := int64(Window / time.Microsecond)
	exact := truth{}
	tr := NewTracker()
	z := rand.NewZipf(rand.New(rand.NewPCG(3, 4)), 1.1, 1, 100_000)
	for i := range int64(40_000) {
		key := fmt.Sprint(z.Uint64())
		exact[key]++
		tr.Add(key, start+i*window/20_000, 1, false)
	}
	got := tr.Top(Active, start+2*window-1, 1<<20)
	if got.Total != 40_000 || got.Bound > got.Total/Counters {
		t.Errorf("total %d, bound %d", got.Total, got.Bound)
	}
	there := map[string]bool{}
	for _, c := range got.Keys {
		there[c.Key] = true
		if real := exact[c.Key]; c.Count < real || c.Count-c.Error > real {
			t.Errorf("%+v, want %d", c, real)
		}
	}
	for key, real := range exact {
		if !there[key] && real > got.Bound {
			t.Errorf("%s occurred %d times and is missing (bound %d)", key, real, got.Bound)
		}
	}
}

func TestLongKeysAreCut(t *testing.T) {
	tr := NewTracker()
	tr.Add(string(make([]byte, 10*MaxKey)), start, 1, false)
	if got := tr.Top(Active, start, 1); len(got.Keys) != 1 || len(got.Keys[0].Key) != MaxKey {
		t.Errorf("got %d keys", len(got.Keys))
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	tr := NewTracker()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
		tr.Add(keys[i], start, 1, true)
	}
	i := 0
	if n := testing.AllocsPerRun(10_000, func() {
		tr.Add(keys[i%len(keys)], start, 1, true)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, stream := range streams(Counters) {
		b.Run(name, func(b *testing.B) {
			var keys []string
			for key := range stream {
				keys = append(keys, key)
			}
			tr := NewTracker()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tr.Add(keys[i%len(keys)], start, 1, false)
			}
		})
	}
}

func TestCounter(t *testing.T) {
	c := NewCounter()
	for i := range 10 {
		for range i {
			c.Add(fmt.Sprint("key-", i))
		}
	}
	got := c.Top(2)
	if got.Total != 45 || got.Bound != 0 || fmt.Sprint(got.Keys) != "[{key-9 9 0} {key-8 8 0}]" {
		t.Errorf("%+v", got)
	}
	for i := range 10 * Counters {
		c.Add(fmt.Sprint(i))
	}
	if got := c.Top(1000); len(got.Keys) != Counters || got.Total != 45+10*Counters || got.Bound == 0 {
		t.Errorf("%d keys of %d, others at most %d times", len(got.Keys), got.Total, got.Bound)
	}
}
