package memory_test

import (
	"strconv"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// The memory that a store takes for WithMaxKeys holds so many keys, at any size: each
// shard's table may be of any state of growth.
func TestMaxKeysHaveRoom(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10_000, 100_000, 150_000, 300_000, 400_000} {
		// Shards fill unevenly, so a store of n keys evicts a few before.
		s := memory.New(memory.WithMaxKeys(n+n/8), memory.WithMaxBytes(memory.BytesFor(n+n/8)))
		l := headgate.New(s)
		for i := range n {
			if d, err := l.Allow(t.Context(), strconv.Itoa(i), headgate.PerDay(5)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		if got := s.Stats(); got.Keys != int64(n) || got.Evicted > 0 {
			t.Errorf("%d keys: %+v", n, got)
		}
	}
}

// Without WithMaxBytes, the memory follows the keys above the default.
func TestDefaultBytesFollowKeys(t *testing.T) {
	t.Parallel()
	for keys, want := range map[int]int64{0: memory.DefaultMaxBytes, 1_000_000: memory.DefaultMaxBytes, 10_000_000: memory.BytesFor(10_000_000), 1 << 62: 1<<63 - 1} {
		for _, none := range []bool{false, true} {
			options := []memory.Option{memory.WithMaxKeys(keys)}
			if none {
				options = append(options, memory.WithMaxBytes(0))
			}
			if got := memory.MaxBytesOf(options...); got != want {
				t.Errorf("%d keys: %d bytes, want %d", keys, got, want)
			}
		}
	}
	if got := memory.MaxBytesOf(memory.WithMaxBytes(1<<20), memory.WithMaxKeys(10_000_000)); got != 1<<20 {
		t.Errorf("%d bytes, but 1 MiB was asked for", got)
	}
}
