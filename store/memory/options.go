package memory

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
)

// DefaultMaxBytes is what a store takes at most if [WithMaxBytes] does not say.
const DefaultMaxBytes = 256 << 20

const (
	defaultMaxKeys = 1_000_000
	// keysOfOneShard is the size up to which a store has a single shard and
	// evicts exactly. Beyond it one lock guards at most keysPerShard keys when
	// the store is full, and there are up to manyShards of them for stores that
	// are not: a lock's cache line goes to and fro between two cores that work on
	// different keys of one shard, so a few hundred busy keys should seldom meet.
	keysOfOneShard = 8192
	keysPerShard   = 1024
	manyShards     = 2048
	fewPerShard    = 32
	// leastBytes is the smallest bound of memory: with less hardly a key has a place.
	leastBytes = 1 << 16
	maxShards  = 1 << 14
	// bytesPerShard is what a shard must be able to have, for what it needs
	// beside its keys once it is full must not be more than they.
	bytesPerShard = 1 << 14
)

// Option configures a Store.
type Option func(*settings)

type settings struct {
	maxKeys  int64
	maxBytes int64
	clock    func() time.Time
	system   steady.System // what the store's own clock goes by
}

// WithMaxKeys bounds how many keys the store remembers, 1,000,000 by default, and if n
// is less than 1: a bound that nobody has set is not one of no keys, which would
// let everything pass. A few newcomers that found no place (at most 32 per shard)
// are remembered beside them.
func WithMaxKeys(n int) Option {
	return func(o *settings) {
		if o.maxKeys = int64(n); n < 1 {
			o.maxKeys = defaultMaxKeys
		}
	}
}

// WithMaxBytes bounds the memory of the store's tables and lists, 256 MiB by
// default, and if n is less than 1. Less than 64 KiB counts as 64 KiB, for a store
// without room for keys lets everything pass. A store has a fixed part that cannot be denied to it, 312 bytes for
// each shard: one up to 8192 keys, at most 2048 up to two million keys, and one
// for every 512 to 1024 keys beyond.
func WithMaxBytes(n int64) Option {
	return func(o *settings) {
		if o.maxBytes = max(n, leastBytes); n < 1 {
			o.maxBytes = DefaultMaxBytes
		}
	}
}

// WithClock replaces the store's own clock. It is asked once for every op that
// has no time of its own. The store's own never goes back and never runs away,
// whatever is done to the wall clock; one that does, such as time.Now, refuses
// keys for as long as it was set back.
func WithClock(now func() time.Time) Option {
	return func(o *settings) { o.clock = now }
}

// shards returns the number of shards, a power of two.
func (o *settings) shards() int {
	if o.maxKeys <= keysOfOneShard {
		return 1
	}
	least := max((o.maxKeys-1)/keysPerShard, min((o.maxKeys-1)/fewPerShard, manyShards-1))
	// Powers of two: the first that is enough, and the last that is not too many.
	enough, most := bits.Len64(uint64(least)), bits.Len64(uint64(o.maxBytes/bytesPerShard|1))-1
	return min(1<<min(enough, most), maxShards)
}
