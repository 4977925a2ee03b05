// Package workload makes the streams of keys that every library is measured with: which keys,
// in what order and under what limit, and the premises that the answers must meet.
package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
	"unsafe"
)

// KeyLen is the length of every key's text: "user:" and seven hex digits.
const KeyLen = 12

// Limit is N per Period.
type Limit struct {
	N      int64
	Period time.Duration
}

// Spread is the distribution of requests over keys.
type Spread uint8

const (
	Hot     Spread = iota // a single key
	Own                   // a few keys per goroutine, shared with no other
	Uniform               // any key with equal chance
	Zipf                  // keys by popularity, the first of a million about every fifteenth time
)

const (
	// ownKeys is the number of keys of a goroutine under Own: enough for every shard, few
	// enough for its core's cache.
	ownKeys  = 512
	exponent = 1.01     // exponent of Zipf: the smallest that its generator takes, close to that of web clients
	seed     = 20261121 // the same keys in each run
)

// Workload is one row of the comparison.
type Workload struct {
	Name   string
	Spread Spread
	Limit  Limit
	Keys   int // number of keys; all are in the store before the clock starts
	// Fill is how much of its limit each key has used by then, so that it is still live when
	// requested again.
	Fill              int64
	Cores, Goroutines int  // GOMAXPROCS, and the number of concurrent goroutines
	Denied            bool // the limit refuses nearly everything
}

// All returns the rows, for a table of that many keys.
//
// The hot key has two goroutines per core: with one each, a mutex stays with the goroutine
// that has it and looks cheaper than it is. In the big table the limit is long, so that every
// key stays live: under 1000 a second, a limiter that drops fresh keys would have an empty
// table.
func All(keys int) []Workload {
	const month = 30 * 24 * time.Hour
	wide, narrow := Limit{1_000_000_000, time.Second}, Limit{100, time.Second}
	long := Limit{1_000_000_000, month}
	var all []Workload
	for cores := 1; cores <= 2; cores++ {
		workers := cores
		if cores > 1 {
			workers = 2 * cores
		}
		all = append(all,
			Workload{Name: "hot key, allowed", Spread: Hot, Limit: wide, Keys: 1, Cores: cores, Goroutines: workers},
			Workload{Name: "hot key, denied", Spread: Hot, Limit: narrow, Keys: 1, Cores: cores, Goroutines: workers, Denied: true},
			Workload{Name: "own keys", Spread: Own, Limit: long, Keys: ownKeys * cores, Fill: 1_000_000, Cores: cores, Goroutines: cores},
			Workload{Name: "many keys, uniform", Spread: Uniform, Limit: long, Keys: keys, Fill: 1_000_000, Cores: cores, Goroutines: cores},
			Workload{Name: "many keys, zipf", Spread: Zipf, Limit: long, Keys: keys, Fill: 1_000_000, Cores: cores, Goroutines: cores},
		)
	}
	return all
}

// Order returns the indices of the keys in the order in which worker requests them, repeated
// from the start at its end. Its length is a power of two.
func (w Workload) Order(worker int) []uint32 {
	random := rand.New(rand.NewPCG(seed, uint64(worker)))
	n, pick := orderLen(w.Keys), func(int) int { return 0 }
	switch w.Spread {
	case Hot:
		n = 1
	case Own:
		own := random.Perm(ownKeys)
		n, pick = ownKeys, func(i int) int { return worker*ownKeys + own[i] }
	case Uniform:
		pick = func(int) int { return random.IntN(w.Keys) }
	case Zipf:
		// Popularity must not follow the order of insertion, and it must be
		// the same for every worker.
		rank := rand.New(rand.NewPCG(seed, math.MaxUint64)).Perm(w.Keys)
		zipf := rand.NewZipf(random, exponent, 1, uint64(w.Keys-1))
		pick = func(int) int { return rank[zipf.Uint64()] }
	}
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(pick(i))
	}
	return order
}

// orderLen returns a power of two that is at least four times keys.
func orderLen(keys int) int {
	n := 1
	for n < 4*keys {
		n *= 2
	}
	return n
}

// Distinct returns the number of different keys in the first n of each order.
func (w Workload) Distinct(orders [][]uint32, n []int64) int {
	seen := make([]bool, w.Keys)
	distinct := 0
	for worker, order := range orders {
		for _, key := range order[:min(int64(len(order)), n[worker])] {
			if !seen[key] {
				seen[key] = true
				distinct++
			}
		}
	}
	return distinct
}

// CheckDistinct returns an error if ops requests touched too few keys for the row to measure
// what its name says.
func (w Workload) CheckDistinct(distinct int, ops int64) error {
	least := float64(w.Keys)
	switch w.Spread {
	case Hot:
	case Own:
		least = min(least, float64(ops))
	case Uniform:
		// n draws from k keys leave k·e^(-n/k) of them undrawn.
		least *= 0.98 * (1 - math.Exp(-float64(ops)/float64(w.Keys)))
	case Zipf:
		least = 0.05 * min(least, float64(ops))
	}
	if float64(distinct) < math.Floor(least) || distinct > w.Keys {
		return fmt.Errorf("%s: %d requests touched %d of %d keys, want at least %.0f", w.Name, ops, distinct, w.Keys, least)
	}
	return nil
}

// CheckShare returns an error unless nearly all (or, in a row of refusals, nearly none) of ops
// requests were allowed. Up to 5% may have failed with an error, because throttled's
// compare-and-swap gives up under contention.
func (w Workload) CheckShare(allowed, failed, ops int64) error {
	share, broken := float64(allowed)/float64(ops), float64(failed)/float64(ops)
	switch {
	case broken > 0.05:
		return fmt.Errorf("%s: %.1f%% of the requests failed", w.Name, 100*broken)
	case w.Denied && share >= 0.01:
		return fmt.Errorf("%s: %.2f%% were allowed, want less than 1%%", w.Name, 100*share)
	case !w.Denied && share+broken < 0.9999:
		return fmt.Errorf("%s: only %.2f%% were allowed, want all", w.Name, 100*share)
	}
	return nil
}

// Renderer writes the text of keys into one buffer, like a parser that returns parts of a
// request.
type Renderer struct {
	text [KeyLen]byte
}

// NewRenderer returns a Renderer.
func NewRenderer() *Renderer {
	r := &Renderer{}
	copy(r.text[:], "user:")
	return r
}

// Key returns the text of the key with that index. It is valid until the next call; clone it
// to keep it.
func (r *Renderer) Key(index uint32) string {
	const digits = "0123456789abcdef"
	for i := KeyLen - 1; i >= KeyLen-7; i-- {
		r.text[i] = digits[index&15]
		index >>= 4
	}
	// The safe form, string(r.text[:]), would allocate and so measure the allocator. The bytes
	// change only in the next call, when the limiter has answered and, with all keys in its
	// table, has kept nothing.
	return unsafe.String(&r.text[0], KeyLen)
}
