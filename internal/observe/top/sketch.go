// Package top finds the keys that occur most often, in a fixed amount of
// memory, however many keys there are.
//
// It is the Space-Saving algorithm of A. Metwally, D. Agrawal and A. El Abbadi,
// "Efficient Computation of Frequent and Top-k Elements in Data Streams" (ICDT
// 2005), over two windows of time. With k counters and N counted, no count is
// wrong by more than N/k, every count says how wrong it may be, and every key
// that occurred more often than N/k is there. While there are at most k keys,
// counts are exact.
package top

import "hash/maphash"

// MaxKey is the longest key, in bytes, that is kept; of a longer one only the
// beginning is, so that a client cannot make the process keep whatever it
// likes to send.
const MaxKey = 1024

// Count is how often a key occurred.
type Count struct {
	Key          string
	Count, Error int64 // Count is never less than the truth, and more by at most Error
}

// sketch counts keys in a bounded number of slots. Its zero value is not
// ready: see newSketch.
type sketch struct {
	seed    maphash.Seed
	total   int64
	sampled int64 // how much of total came by weight
	// slots are those in use; they come as keys do, up to most.
	slots []slot
	most  int
	// index finds a slot by its key's hash: linear probing over twice as many
	// places as there are slots; 0 is none, otherwise the slot's place and one.
	index      []uint16
	mask       uint64
	least      int // a slot with the smallest count, if leastCount is its count
	leastCount int64
}

type slot struct {
	hash         uint64
	count, error int64
	key          []byte // its memory is used again
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

// add counts key n times. hash is that of the key.
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
	// The newcomer may have occurred before, as often as the one whose place
	// it takes at most.
	v.error = v.count
	v.count += n
	v.hash, v.key = hash, append(v.key[:0], key...)
	place, _ = s.find(key, hash)
	s.index[place] = uint16(i + 1)
}

// append takes a slot that nobody has yet.
func (s *sketch) append(key string, hash uint64, n int64) {
	if len(s.slots) < cap(s.slots) {
		s.slots = s.slots[:len(s.slots)+1]
	} else {
		s.slots = append(s.slots, slot{})
	}
	v := &s.slots[len(s.slots)-1]
	v.hash, v.count, v.error, v.key = hash, n, 0, append(v.key[:0], key...)
}

// find returns the place in the index of key, or the one where it belongs.
func (s *sketch) find(key string, hash uint64) (place uint64, found bool) {
	for place = hash & s.mask; s.index[place] != 0; place = (place + 1) & s.mask {
		if v := &s.slots[s.index[place]-1]; v.hash == hash && string(v.key) == key {
			return place, true
		}
	}
	return place, false
}

// remove takes slot i, whose key has that hash, out of the index, and moves
// those behind it up, so that every search still finds them.
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
	// Counts only grow, so a slot that still has what was the smallest count
	// has it now.
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
