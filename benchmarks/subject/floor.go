package subject

import (
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/benchmarks/workload"
)

// floor is a yardstick, not a product: a flat, pointer-free table of the key's 64-bit hash and
// the bucket's theoretical arrival time. It compares no keys, evicts nothing and cannot grow.
// It costs one cache miss, a hash, a clock reading and a compare-and-swap.
type floor struct {
	start     time.Time
	seed      maphash.Seed
	cells     []cell
	interval  int64
	tolerance int64
}

type cell struct {
	hash    atomic.Uint64
	arrival atomic.Int64 // nanoseconds since start
}

func newFloor(limit workload.Limit, keys int) (Subject, error) {
	size := 1024
	for size < 2*keys {
		size *= 2
	}
	interval := int64(limit.Period) / limit.N
	if interval == 0 {
		return nil, errors.New("floor: limit above one request per nanosecond")
	}
	return &floor{
		start: time.Now(), seed: maphash.MakeSeed(), cells: make([]cell, size),
		interval: interval, tolerance: interval * limit.N,
	}, nil
}

func (f *floor) Take(key string) Outcome { return f.Fill(key, 1) }

func (f *floor) Fill(key string, n int64) Outcome {
	now := int64(time.Since(f.start))
	c := f.find(maphash.String(f.seed, key) | 1)
	for {
		was := c.arrival.Load()
		next := max(was, now) + n*f.interval
		if next > now+f.tolerance {
			return Denied
		}
		if c.arrival.CompareAndSwap(was, next) {
			return Allowed
		}
	}
}

// find returns the cell of a hash other than 0. The table must not be full.
func (f *floor) find(hash uint64) *cell {
	mask := uint64(len(f.cells) - 1)
	for i := (hash >> 20) & mask; ; i = (i + 1) & mask {
		c := &f.cells[i]
		switch c.hash.Load() {
		case hash:
			return c
		case 0:
			if c.hash.CompareAndSwap(0, hash) || c.hash.Load() == hash {
				return c
			}
		}
	}
}

func (f *floor) Close() error { return nil }
