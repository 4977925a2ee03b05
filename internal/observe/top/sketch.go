// Package top finds the keys that occur most often, in a fixed amount of
// memory, however many keys there are.
//
// It uses the Space-Saving algorithm of A. Metwally, D. Agrawal and A. El Abbadi,
// "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT
// 2005), over two windows of time. With k counters and N counted, no count is off by
// more than N/k, each count has its maximum error, and every key that occurred more
// often than N/k is found. Up to k keys, counts are exact.
package top

import "hash/maphash"

// MaxKey is how many bytes of a key are kept, which limits the memory that clients can
// use.
const MaxKey = 1024

// Count is how often a key occurred.
type Count struct {
	Key          string
	Count, Error int64 // the true count is between Count-Error and Count
}

// sketch counts keys in a fixed number of slots. Make it with newSketch.
type sketch struct {
	seed    maphash.Seed
	total   int64
	sampled int64 // the part of total that was counted by weight
	// slots are those in use, up to most.
	slots []slot
	most  int
	// index finds a slot by its key's hash, with linear probing over twice as many
	// entries as slots. 0 is empty, otherwise the entry is the slot's index plus one.
	index      []uint16
	mask       uint64
	least      int // a slot with the smallest count, if leastCount is its count
	leastCount int64
}

type slot struct {
	hash         uint64
	count, error int64
	key          []byte // its memory is reused
}

// newSketch returns a sketch of at most k counters, 1 ≤ k ≤ 16384.
func newSketch(k int, seed maphash.Seed) *sketch {
	size := 4
	for size < 2*k {
		size *= 2
	}
	return &sketch{seed: seed, most: k, index: make([]uint16, size), mask: uint64(size - 1)}
}

// reset forgets everything and keeps the memory.
func (s *sketch) reset() {
	clear(s.index)
	s.slots, s.total, s.sampled, s.least, s.leastCount = s.slots[:0], 0, 0, 0, 0
}

// add counts key n times. hash is the key's hash.
func (s *sketch) add(key string, hash uint64, n int64) {
	s.total += n
	place, found := s.find(key, hash)
	if found {
		s.slots[s.index[place]-1].count += n
		return
	}
	if len(s.slots) < s.most {
		s.append(key, hash, n)
		s.index[place] = uint16(len(s.slots))
		return
	}
	i := s.smallest()
	v := &s.slots[i]
	s.remove(v.hash, i)
	// The new key may have occurred before, at most as often as the one that it
	// replaces.
	v.error = v.count
	v.count += n
	v.hash, v.key = hash, append(v.key[:0], key...)
	place, _ = s.find(key, hash)
	s.index[place] = uint16(i + 1)
}

// append uses a new slot.
func (s *sketch) append(key string, hash uint64, n int64) {
	if len(s.slots) < cap(s.slots) {
		s.slots = s.slots[:len(s.slots)+1]
	} else {
		s.slots = append(s.slots, slot{})
	}
	v := &s.slots[len(s.slots)-1]
	v.hash, v.count, v.error, v.key = hash, n, 0, append(v.key[:0], key...)
}

// find returns the position of key in the index, or where to insert it.
func (s *sketch) find(key string, hash uint64) (place uint64, found bool) {
	for place = hash & s.mask; s.index[place] != 0; place = (place + 1) & s.mask {
		if v := &s.slots[s.index[place]-1]; v.hash == hash && string(v.key) == key {
			return place, true
		}
	}
	return place, false
}

// remove removes slot i from the index and moves later entries up, so that searches
// still find them. hash is the hash of the slot's key.
func (s *sketch) remove(hash uint64, i int) {
	place := hash & s.mask
	for int(s.index[place]) != i+1 {
		place = (place + 1) & s.mask
	}
	for next := (place + 1) & s.mask; s.index[next] != 0; next = (next + 1) & s.mask {
		home := s.slots[s.index[next]-1].hash & s.mask
		if (next-home)&s.mask >= (next-place)&s.mask {
			s.index[place], place = s.index[next], next
		}
	}
	s.index[place] = 0
}

// smallest returns a slot with the smallest count. There is at least one.
func (s *sketch) smallest() int {
	// Counts only grow, so a slot that still has the last smallest count is a smallest
	// one.
	for i := s.least; i < len(s.slots); i++ {
		if s.slots[i].count == s.leastCount {
			s.least = i
			return i
		}
	}
	s.least, s.leastCount = 0, s.slots[0].count
	for i := range s.slots {
		if c := s.slots[i].count; c < s.leastCount {
			s.least, s.leastCount = i, c
		}
	}
	return s.least
}

// bound returns how often a key that is not in s may have occurred.
func (s *sketch) bound() int64 {
	if len(s.slots) < s.most {
		return 0
	}
	return s.slots[s.smallest()].count
}
