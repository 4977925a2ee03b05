package top

import "hash/maphash"

// Counter counts keys since it was made, without windows. It is not safe for
// use by several goroutines at a time.
type Counter struct {
	seed   maphash.Seed
	sketch *sketch
}

// NewCounter returns a Counter of at most [Counters] keys.
func NewCounter() *Counter {
	seed := maphash.MakeSeed()
	return &Counter{seed, newSketch(Counters, seed)}
}

// Add counts a key, which may change afterwards.
func (c *Counter) Add(key string) {
	if len(key) > MaxKey {
		key = key[:MaxKey]
	}
	c.sketch.add(key, maphash.String(c.seed, key), 1)
}

// Top returns the n most frequent keys.
func (c *Counter) Top(n int) Top {
	s := c.sketch
	out := Top{Total: s.total, Bound: s.bound()}
	for i := range s.slots {
		v := &s.slots[i]
		out.Keys = append(out.Keys, Count{string(v.key), v.count, v.error})
	}
	out.Keys = first(out.Keys, n)
	return out
}
