package memory

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/store"
)

// TestIdentitiesDiffer compares names that are easily confused.
func TestIdentitiesDiffer(t *testing.T) {
	k := newSecret()
	seen := make(map[identity]string)
	note := func(scope, key string, a store.Algorithm) {
		t.Helper()
		id, name := k.identify(scope, key, uint64(a)), fmt.Sprintf("%.40q %.40q (%d, %d) %s", scope, key, len(scope), len(key), a)
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are the same", name, other)
		}
		if id != k.identify(strings.Clone(scope), strings.Clone(key), uint64(a)) {
			t.Errorf("%s is not the same twice", name)
		}
		seen[id] = name
	}
	text := strings.Repeat("\x00", 40) + strings.Repeat("abcdefgh", 1280)
	for n := range 70 {
		note("", text[:n], store.TokenBucket)                    // zeros, of every length
		note("", text[40:40+n+1], store.TokenBucket)             // every length
		note(text[40:40+n+1], "", store.TokenBucket)             // the same as a scope
		note(text[40:40+n+1], text[41+n:112], store.TokenBucket) // cut elsewhere
	}
	for n := range 64 {
		b := []byte(text[40:10280])
		b[n*160] ^= 1
		note("", string(b), store.TokenBucket) // one bit of 10 KiB
	}
	for _, a := range store.Algorithms() {
		note("a", "b", a)
	}
}

// TestIdentityAvalanche flips each bit of a key: about half of the hash's bits must
// change, each about equally often.
func TestIdentityAvalanche(t *testing.T) {
	k := newSecret()
	for _, size := range []int{3, 7, 12, 16, 17, 40} {
		const rounds = 400
		var flips [64 + extraBits]int
		n := 0
		for round := range rounds {
			key := []byte(fmt.Sprintf("%0*d", size, round))
			base := k.identify("", string(key), uint64(store.TokenBucket))
			for bit := range 8 * size {
				key[bit/8] ^= 1 << (bit % 8)
				id := k.identify("", string(key), uint64(store.TokenBucket))
				key[bit/8] ^= 1 << (bit % 8)
				n++
				for i := range flips {
					changed := (base.tag ^ id.tag) >> i
					if i >= 64 {
						changed = (base.extra ^ id.extra) >> (i - 64)
					}
					flips[i] += int(changed & 1)
				}
			}
		}
		for i, f := range flips {
			if share := float64(f) / float64(n); math.Abs(share-0.5) > 0.05 {
				t.Errorf("keys of %d: bit %d follows in %.3f of the flips", size, i, share)
			}
		}
	}
}

// TestShardsFillEvenly counts sequential keys per shard and per part of a table.
func TestShardsFillEvenly(t *testing.T) {
	k := newSecret()
	const keys, cells = 1 << 18, 256
	var shards, homes [cells]int
	for i := range keys {
		id := k.identify("", fmt.Sprintf("user:%08d", i), uint64(store.TokenBucket))
		shards[id.extra%cells]++
		home, _ := bits.Mul64(id.tag, cells)
		homes[home]++
	}
	for name, counts := range map[string][cells]int{"shards": shards, "homes": homes} {
		chi := 0.0
		for _, n := range counts {
			d := float64(n) - keys/cells
			chi += d * d / (keys / cells)
		}
		// 255 degrees of freedom: mean 255, deviation 22.6; five of these.
		if chi > 255+5*22.6 {
			t.Errorf("%s: chi² = %.0f", name, chi)
		}
	}
}

func TestSqueeze(t *testing.T) {
	for _, mantissa := range []int{6, 18, 28, 39} {
		for shift := range 54 {
			for _, off := range []int64{-1, 0, 1, 12345} {
				d := max(int64(1)<<shift+off, 0)
				if d >= 1<<53 || bits.Len64(uint64(d)) > mantissa+63 {
					continue
				}
				down, slack := stretch(squeezeDown(uint64(d), mantissa), mantissa), d>>(mantissa-1)
				if down > d || down < d-slack {
					t.Fatalf("%d in %d bits: %d", d, mantissa, down)
				}
			}
		}
	}
}

func TestShorten(t *testing.T) {
	check := func(d int64) {
		t.Helper()
		f := shorten(d)
		if up, slack := lengthen(f), d>>18; up < d || up > d+slack || f > freshMask {
			t.Fatalf("%d in 24 bits is %#x, %d", d, f, up)
		}
	}
	for shift := range 54 {
		for _, off := range []int64{-2, -1, 0, 1, 12345} {
			if d := int64(1)<<shift + off; d >= 0 && d < 1<<53 {
				check(d)
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		check(rng.Int64N(1<<53) >> rng.IntN(53))
	}
}
