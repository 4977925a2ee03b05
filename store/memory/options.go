package memory

import "time"

const (
	defaultMaxKeys  = 1_000_000
	defaultMaxBytes = 256 << 20
	// keysOfOneShard is the size up to which a store has a single shard and
	// evicts exactly. Beyond it one lock guards at most keysPerShard keys when
	// the store is full: few enough that two cores at work on different keys
	// seldom write to the same lock, whose cache line would go to and fro.
	keysOfOneShard = 8192
	keysPerShard   = 1024
	maxShards      = 1 << 14
)

// Option configures a Store.
type Option func(*settings)

type settings struct {
	maxKeys  int64
	maxBytes int64
	clock    func() time.Time
}

// MaxKeys bounds how many keys the store remembers, 1,000,000 by default; less
// than 1 counts as 1. A few newcomers that found no place (at most 32 per shard)
// are remembered beside them.
func MaxKeys(n int) Option {
	return func(o *settings) { o.maxKeys = max(int64(n), 1) }
}

// MaxBytes bounds the memory of the store's tables and lists, 256 MiB by
// default. A store has a small fixed part that cannot be denied to it, about
// 320 bytes for every 1024 of MaxKeys.
func MaxBytes(n int64) Option {
	return func(o *settings) { o.maxBytes = max(n, 0) }
}

// WithClock replaces the store's own clock. It is asked once for every op that
// has no time of its own.
func WithClock(now func() time.Time) Option {
	return func(o *settings) { o.clock = now }
}

// shards returns the number of shards, a power of two.
func (o *settings) shards() int {
	n := 1
	if o.maxKeys <= keysOfOneShard {
		return n
	}
	for int64(n)*keysPerShard < o.maxKeys && n < maxShards {
		n *= 2
	}
	return n
}
