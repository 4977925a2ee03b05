package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
)

// By is what keys are ranked by.
type By uint8

// The rankings.
const (
	Refused By = iota // how often a key was refused, or would have been
	Active            // how often it asked
)

// String returns the name that the API uses: refused or active.
func (b By) String() string { return enum.Name(b, "by", "refused", "active") }

// ParseBy is the inverse of [By.String]. It reports false for any other text.
func ParseBy(s string) (By, bool) { return enum.Parse(s, Active) }

// What is kept of a rule.
const (
	Counters = 64 // how many keys of a rule are counted at a time
	// Window is how long counts are added to before they are set aside; they
	// are told for as long again, and then forgotten. So what is told covers
	// the last one to two windows, and yesterday's offender is gone.
	Window = 5 * time.Minute
)

// Tracker counts the keys of one rule. Any number of goroutines may use it;
// they hold its lock for well below a microsecond.
type Tracker struct {
	mu          sync.Mutex
	seed        maphash.Seed
	window      int64      // which one it is, counted from the epoch
	now, before [2]*sketch // now and before are the counts of this window and of the one before, by ranking
}

// NewTracker returns a Tracker of Counters keys by each ranking.
func NewTracker() *Tracker {
	t := &Tracker{seed: maphash.MakeSeed()}
	for by := range t.now {
		t.now[by], t.before[by] = newSketch(Counters, t.seed), newSketch(Counters, t.seed)
	}
	return t
}

// Add counts a request of key at a time in microseconds since the epoch.
// weight is how many requests it stands for. Time that runs backwards counts
// as the latest there was.
func (t *Tracker) Add(key string, at, weight int64, refused bool) { //nolint:revive // what became of it, not how to do it
	key = key[:min(len(key), MaxKey)]
	hash := maphash.String(t.seed, key)
	t.mu.Lock()
	t.turn(at)
	if weight > 1 {
		t.now[Active].sampled += weight
	}
	t.now[Active].add(key, hash, weight)
	if refused {
		t.now[Refused].add(key, hash, weight)
	}
	t.mu.Unlock()
}

// turn begins a new window if it is time. It needs t.mu to be held.
func (t *Tracker) turn(at int64) {
	w := at / int64(Window/time.Microsecond)
	if w <= t.window {
		return
	}
	for by := range t.now {
		t.now[by], t.before[by] = t.before[by], t.now[by]
		t.now[by].reset()
		if w > t.window+1 {
			t.before[by].reset()
		}
	}
	t.window = w
}

// Idle reports whether nothing is left to tell at a time in microseconds.
func (t *Tracker) Idle(at int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	return t.now[Active].total == 0 && t.before[Active].total == 0
}

// Top is the most frequent keys of a rule.
type Top struct {
	Total int64 // how much was counted, of all keys
	Bound int64 // how often a key that is not among Keys, were they all asked for, may have occurred at most
	// Sampled is how much of Total, of both rankings, was not counted one by
	// one but by weight: while there were too many requests to look at each.
	Sampled int64
	Keys    []Count // in descending order
}

// Top returns the n most frequent keys at a time in microseconds.
func (t *Tracker) Top(by By, at int64, n int) Top {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	out := merge(t.now[by], t.before[by], n)
	out.Sampled = t.now[Active].sampled + t.before[Active].sampled
	return out
}

// merge returns the n most frequent keys of both. A key that only one of the two
// has may have occurred in the other as often as its bound: see P. K. Agarwal et
// al., "Mergeable Summaries" (PODS 2012).
func merge(now, before *sketch, n int) Top {
	out := Top{Total: now.total + before.total, Bound: now.bound() + before.bound()}
	for i := range now.slots {
		v := &now.slots[i]
		c := Count{string(v.key), v.count + before.bound(), v.error + before.bound()}
		if place, ok := before.find(c.Key, v.hash); ok {
			old := &before.slots[before.index[place]-1]
			c.Count, c.Error = v.count+old.count, v.error+old.error
		}
		out.Keys = append(out.Keys, c)
	}
	for i := range before.slots {
		v := &before.slots[i]
		if _, ok := now.find(string(v.key), v.hash); !ok {
			out.Keys = append(out.Keys, Count{string(v.key), v.count + now.bound(), v.error + now.bound()})
		}
	}
	out.Keys = first(out.Keys, n)
	return out
}

// first returns the n most frequent of list, in order.
func first(list []Count, n int) []Count {
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(n, len(list))]
}

// Counter counts keys since it was made, without windows. It is not safe for
// use by several goroutines at a time.
type Counter struct{ sketch *sketch }

// NewCounter returns a Counter of at most [Counters] keys.
func NewCounter() *Counter { return &Counter{newSketch(Counters, maphash.MakeSeed())} }

// Add counts a key, which may change afterwards.
func (c *Counter) Add(key string) {
	key = key[:min(len(key), MaxKey)]
	c.sketch.add(key, maphash.String(c.sketch.seed, key), 1)
}

// Top returns the n most frequent keys.
func (c *Counter) Top(n int) Top { return merge(c.sketch, newSketch(1, c.sketch.seed), n) }
