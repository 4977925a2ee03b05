package warning

import (
	"sync"
	"sync/atomic"
)

// MaxKey is how many bytes of a key are kept.
const MaxKey = 512

// The size of suspects.
const (
	fifths = 5   // parts of Settings.KeyRefused.For
	sets   = 128 // a key can be in any of the ways of one set
	ways   = 4
	// filterBits is the size of the filter that spares most allowed requests the lock.
	filterBits = 8192
)

// suspects counts the requests of the keys of one rule that have been refused lately: up
// to 512, those with the most refusals. Keys are told apart by 64-bit hashes with a secret
// seed, so that nobody can choose keys that collide.
type suspects struct {
	filter [filterBits / 64]atomic.Uint64 // has the bit of each slot in use

	mu    sync.Mutex
	fifth int // the current one
	slots [sets * ways]suspect
}

// suspect is the counts of one key.
type suspect struct {
	hash     uint64
	refusals uint32 // in all fifths; 0 if the slot is free
	refused  [fifths]uint32
	allowed  [fifths]uint32
	cut      bool
	text     []byte // its memory is reused
}

// add counts a request. It never waits: if the lock is taken, the request is not counted,
// whether allowed or refused.
func (s *suspects) add(key string, hash uint64, refused bool) { //nolint:revive // a fact, not a mode
	word, bit := &s.filter[hash%filterBits/64], uint64(1)<<(hash%64)
	if !refused && word.Load()&bit == 0 {
		return
	}
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	v := s.find(hash)
	switch {
	case v == nil && !refused:
		return
	case v == nil:
		v = s.least(hash)
		*v = suspect{hash: hash, text: append(v.text[:0], key[:min(len(key), MaxKey)]...), cut: len(key) > MaxKey}
		word.Or(bit)
		fallthrough
	case refused:
		v.refused[s.fifth]++
		v.refusals++
	default:
		v.allowed[s.fifth]++
	}
}

// set returns the slots that may have a key. The low bits of its hash choose its bit in
// the filter, the high ones its set.
func (s *suspects) set(hash uint64) []suspect {
	first := int(hash>>32%sets) * ways
	return s.slots[first : first+ways]
}

func (s *suspects) find(hash uint64) *suspect {
	set := s.set(hash)
	for i := range set {
		if set[i].hash == hash && set[i].refusals > 0 {
			return &set[i]
		}
	}
	return nil
}

// least returns the slot with the fewest refusals.
func (s *suspects) least(hash uint64) *suspect {
	set := s.set(hash)
	v := &set[0]
	for i := range set {
		if set[i].refusals < v.refusals {
			v = &set[i]
		}
	}
	return v
}

// turn calls seen for each key with refusals in every fifth of the time, and starts the
// next fifth.
func (s *suspects) turn(seen func(v *suspect, allowed, refused int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := (s.fifth + 1) % fifths
	for i := range s.filter {
		s.filter[i].Store(0)
	}
	for i := range s.slots {
		v := &s.slots[i]
		if v.refusals == 0 {
			continue
		}
		allowed, always := int64(0), true
		for f := range fifths {
			allowed += int64(v.allowed[f])
			always = always && v.refused[f] > 0
		}
		if always {
			seen(v, allowed, int64(v.refusals))
		}
		v.refusals -= v.refused[next]
		v.refused[next], v.allowed[next] = 0, 0
		if v.refusals > 0 {
			s.filter[v.hash%filterBits/64].Or(1 << (v.hash % 64))
		}
	}
	s.fifth = next
}
