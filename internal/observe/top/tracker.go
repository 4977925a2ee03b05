package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
)

// By is the ranking of keys.
type By uint8

// The rankings.
const (
	Refused By = iota // refused requests, including those of shadow mode
	Active            // all requests
)

// String returns the name that the API uses: refused or active.
func (b By) String() string { return enum.Name(b, "by", "refused", "active") }

// ParseBy is the inverse of [By.String]. It reports false for any other text.
func ParseBy(s string) (By, bool) { return enum.Parse(s, Active) }

// What is kept per rule.
const (
	Counters = 64 // keys counted at a time
	// Window is the length of a window of counts. Results cover the current window and
	// the one before.
	Window = 5 * time.Minute
)

// Tracker counts the keys of one rule. It is safe for concurrent use; its lock is held
// for less than a microsecond.
type Tracker struct {
	mu          sync.Mutex
	seed        maphash.Seed
	window      int64      // number of the current window since the epoch
	now, before [2]*sketch // this window and the one before, by ranking
}

// NewTracker returns a Tracker of Counters keys by each ranking.
func NewTracker() *Tracker {
	t := &Tracker{seed: maphash.MakeSeed()}
	for by := range t.now {
		t.now[by], t.before[by] = newSketch(Counters, t.seed), newSketch(Counters, t.seed)
	}
	return t
}

// Add counts a request of key at a time in microseconds since the epoch. weight is how
// many requests it represents. An earlier time counts as the latest one.
func (t *Tracker) Add(key string, at, weight int64, refused bool) { //nolint:revive // a fact, not a mode
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

// turn starts a new window if it is time. t.mu must be held.
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

// Idle reports whether there are no counts at a time in microseconds.
func (t *Tracker) Idle(at int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(at)
	return t.now[Active].total == 0 && t.before[Active].total == 0
}

// Top is the most frequent keys of a rule.
type Top struct {
	Total int64 // requests of all keys
	Bound int64 // maximum count of a key that is not tracked
	// Sampled is the part of all requests that was counted by weight instead of one by
	// one, because there were too many.
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

// merge returns the n most frequent keys of both. A key that only one of them has may
// have occurred in the other up to its bound: see P. K. Agarwal et al., "Mergeable
// Summaries" (PODS 2012).
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

// Counter counts keys without windows. It is not safe for concurrent use.
type Counter struct{ sketch *sketch }

// NewCounter returns a Counter of at most [Counters] keys.
func NewCounter() *Counter { return &Counter{newSketch(Counters, maphash.MakeSeed())} }

// Add counts a key. Its memory may be reused afterwards.
func (c *Counter) Add(key string) {
	key = key[:min(len(key), MaxKey)]
	c.sketch.add(key, maphash.String(c.sketch.seed, key), 1)
}

// Top returns the n most frequent keys.
func (c *Counter) Top(n int) Top { return merge(c.sketch, newSketch(1, c.sketch.seed), n) }
