package memory

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// BenchmarkLists is a decision for one of 10,000 users whose windows are full, each in
// turn: every take lets an older one leave, or finds a full window.
func BenchmarkLists(b *testing.B) {
	const users = 10_000
	for _, limit := range []headgate.Limit{
		headgate.Per(500, 24*time.Hour).WithAlgorithm(store.SlidingBuckets),
		headgate.Per(500, 24*time.Hour).WithAlgorithm(store.SlidingLog),
		headgate.Per(50, time.Minute).WithAlgorithm(store.SlidingLog),
	} {
		for _, refused := range []bool{false, true} {
			name := limit.Algorithm().String() + "/" + limit.Period().String()
			if refused {
				name += "/refused"
			}
			b.Run(name, func(b *testing.B) { benchLists(b, limit, users, refused) })
		}
	}
}

func benchLists(b *testing.B, limit headgate.Limit, users int, refused bool) {
	s := New()
	ctx := context.Background()
	gap := limit.Rule().Period / limit.N()
	keys := make([]string, users)
	var buf [32]byte
	for i := range keys {
		keys[i] = string(key(buf[:], uint64(i)))
	}
	now := int64(t0)
	turn := func(i int) bool {
		d, err := store.Execute(ctx, s, store.Op{Key: keys[i], Rule: limit.Rule(), Cost: 1, At: now})
		if err != nil {
			b.Fatal(err)
		}
		return d.Allowed
	}
	for range limit.N() + limit.N()/4 { // the lists have stopped growing
		now += gap
		for i := range keys {
			turn(i)
		}
	}
	// In another order than they came in: else the processor fetches the next list early.
	rand.New(rand.NewPCG(1, 2)).Shuffle(users, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	i, denied, n := 0, 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if i++; i == users {
			i = 0
			if !refused {
				now += gap
			}
		}
		if !turn(i) {
			denied++
		}
		n++
	}
	b.ReportMetric(float64(s.Stats().Bytes)/float64(users), "B/key")
	if limit.Algorithm() == store.SlidingLog && n > 2*users && (denied > n/2) != refused {
		b.Fatalf("%d of %d refused", denied, n)
	}
}
