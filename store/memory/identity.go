package memory

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// identity is what a store keeps of (scope, key, mark) instead of the text: 81 bits of
// a keyed 128-bit hash. tag is never 0. The low bits of extra choose the shard.
type identity struct {
	tag   uint64
	extra uint64 // has extraBits bits
}

const extraBits = 17

// secret is the key of the hash, so that clients cannot make two keys collide. It is
// generated once per store and saved with snapshots.
type secret [6]uint64

func newSecret() secret {
	var b [8 * len(secret{})]byte
	// Read never returns an error; it ends the program instead.
	_, _ = rand.Read(b[:])
	var k secret
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// identify hashes scope, key and mark; see store.Op.Space. It folds words into two
// lanes with 64×64→128-bit multiplication, as wyhash does into one lane, so that 128
// bits instead of 64 are carried from word to word. The scope comes first, followed by
// its length; the key's length and the mark come last, so that no two triples are the
// same input.
func (k *secret) identify(scope, key string, mark uint64) identity {
	s, t := k[0], k[1]
	n := uint64(len(key))
	if scope == "" && n-8 <= 8 {
		// absorb, inlined for the most common lengths.
		a, b := word(key[:8]), word(key[n-8:])
		s, t = mix(a^k[2], b^s^n), mix(b^k[4], a^t^k[5])
	} else {
		if scope != "" {
			s, t = k.absorb(s, t, scope)
		}
		s, t = k.absorb(s, t, key)
	}
	hi, lo := bits.Mul64(s^k[2], t^k[3]^(n<<8^mark))
	tag := hi ^ lo ^ s
	low := hi + (lo^t)*k[4]
	return identity{tag: tag | isZero(tag), extra: low >> (64 - extraBits)}
}

// isZero returns 1 for 0, otherwise 0.
func isZero(x uint64) uint64 {
	if x == 0 {
		return 1
	}
	return 0
}

// absorb folds text and its length into the lanes.
func (k *secret) absorb(s, t uint64, text string) (uint64, uint64) {
	n := len(text)
	var a, b uint64
	switch {
	case n > 16:
		rest := text
		for len(rest) > 16 {
			a, b = word(rest[:8]), word(rest[8:16])
			s, t = mix(a^k[2], b^s), mix(b^k[4], a^t)
			rest = rest[16:]
		}
		// The last 16 bytes, some of which may already have been used: with the length
		// known, the text is still unique.
		a, b = word(text[n-16:n-8]), word(text[n-8:])
	case n >= 8:
		a, b = word(text[:8]), word(text[n-8:])
	case n >= 4:
		a, b = half(text[:4]), half(text[n-4:])
	case n > 0:
		a = uint64(text[0])<<16 | uint64(text[n>>1])<<8 | uint64(text[n-1])
	}
	return mix(a^k[2], b^s^uint64(n)), mix(b^k[4], a^t^k[5])
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// word and half read little-endian; the compiler turns each into one load.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func half(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
