package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/base/steady"
)

// DefaultMaxBytes is the maximum memory of a store unless [WithMaxBytes] sets it, or
// [WithMaxKeys] asks for more keys than it holds, about six million.
const DefaultMaxBytes = 256 << 20

const (
	defaultMaxKeys = 1_000_000
	// keysOfOneShard is the size up to which a store has a single shard and evicts
	// exactly. Above it, a lock guards at most keysPerShard keys of a full store. There
	// are up to manyShards of them even when fewer would do, so that busy keys seldom share
	// a lock: its cache line moves between the cores that use it. Each costs 344 bytes, and
	// keys with lists take more if there are few in a shard: with 2048, two cores that use
	// keys of their own are 1.3 to 1.6 times as fast as one, with 4096 1.6 to 1.7, with 8192
	// 1.8 to 1.9, but then 10,000 keys of one value each take 290 bytes, not 157 or 214.
	keysOfOneShard = 8192
	keysPerShard   = 1024
	manyShards     = 4096
	fewPerShard    = 32
	// leastBytes is the smallest memory limit: less would hardly hold a key.
	leastBytes = 1 << 16
	// bytesPerKey is enough for a key without a list, in tables at any state of growth.
	bytesPerKey = 44
	maxShards   = 1 << 14
	// bytesPerShard is the least memory per shard, so that the fixed part of a full
	// shard is not larger than its keys.
	bytesPerShard = 1 << 14
)

// Option configures a Store.
type Option func(*settings)

type settings struct {
	maxKeys  int64
	maxBytes int64 // 0 for the default
	clock    func() time.Time
	system   steady.System // what the store's own clock uses
	keyTimes bool
}

// WithMaxKeys limits the number of keys that the store remembers. The default, also if
// n is less than 1, is 1,000,000. Up to 32 new keys per shard that found no space are
// remembered in addition. Unless WithMaxBytes is used, the store may use 44 bytes for each
// of n keys, if that is more than DefaultMaxBytes.
func WithMaxKeys(n int) Option {
	return func(o *settings) {
		if o.maxKeys = int64(n); n < 1 {
			o.maxKeys = defaultMaxKeys
		}
	}
}

// WithMaxBytes limits the memory of the store's tables and lists. The default, also if
// n is less than 1, is 256 MiB, or more for more than six million keys; the minimum is 64 KiB. There is a
// fixed part of 344 bytes per shard: one shard up to 8192 keys, at most 4096 up to four million keys, and
// one for every 512 to 1024 keys above.
func WithMaxBytes(n int64) Option {
	return func(o *settings) {
		if o.maxBytes = max(n, leastBytes); n < 1 {
			o.maxBytes = 0
		}
	}
}

// WithClock replaces the store's own clock. It is called once for every op without a
// time. The store's own clock never goes back, whatever happens to the wall clock; with
// one that does, such as time.Now, keys are refused for as long as it was set back.
func WithClock(now func() time.Time) Option {
	return func(o *settings) { o.clock = now }
}

// WithKeyTimes lets the store record when each key is created and changed, for
// [Store.KeyTimes]. It takes 64 bytes more per key, which count towards WithMaxBytes, and
// some time for each request that changes a key. Snapshots do not contain the times.
func WithKeyTimes() Option { return func(o *settings) { o.keyTimes = true } }

// bytes returns the maximum memory.
func (o *settings) bytes() int64 {
	if o.maxBytes > 0 {
		return o.maxBytes
	}
	if o.maxKeys > math.MaxInt64/bytesPerKey {
		return math.MaxInt64
	}
	return max(DefaultMaxBytes, o.maxKeys*bytesPerKey)
}

// shards returns the number of shards, a power of two.
func (o *settings) shards() int {
	if o.maxKeys <= keysOfOneShard {
		return 1
	}
	least := max((o.maxKeys-1)/keysPerShard, min((o.maxKeys-1)/fewPerShard, manyShards-1))
	// Powers of two: the first that is enough, and the last that is not too many.
	enough, most := bits.Len64(uint64(least)), bits.Len64(uint64(o.bytes()/bytesPerShard|1))-1
	return min(1<<min(enough, most), maxShards)
}
