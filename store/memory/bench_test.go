package memory

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const million = 1_000_000

// key writes a 12-byte key into buf, like a parsed request with its own buffer.
func key(buf []byte, n uint64) []byte {
	buf = append(buf[:0], "user"...)
	return strconv.AppendUint(buf, 10_000_000+n, 10)
}

// BenchmarkHot is one key, always allowed, through Limiter.AllowN.
func BenchmarkHot(b *testing.B) {
	limiter := headgate.New(New())
	limit := headgate.PerSecond(1_000_000_000)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if d, err := limiter.AllowN(ctx, "user:1234567", limit, 1); err != nil || !d.Allowed {
			b.Fatal("refused", err)
		}
	}
}

// BenchmarkHotDenied is one key that is refused except 100 times a second.
func BenchmarkHotDenied(b *testing.B) {
	limiter := headgate.New(New())
	limit := headgate.PerSecond(100)
	ctx := context.Background()
	denied := 0
	n := 0
	for b.Loop() {
		if d, _ := limiter.AllowN(ctx, "user:1234567", limit, 1); !d.Allowed {
			denied++
		}
		n++
	}
	if n > 10_000 && denied < n*9/10 {
		b.Fatalf("%d of %d denied", denied, n)
	}
}

// BenchmarkHotParallelCosts is one key that all processors ask for, at different costs.
func BenchmarkHotParallelCosts(b *testing.B) {
	limiter := headgate.New(New())
	limit := headgate.PerSecond(1_000_000).WithBurst(1 << 36)
	ctx := context.Background()
	b.SetParallelism(2)
	b.RunParallel(func(more *testing.PB) {
		for n := int64(0); more.Next(); n++ {
			if d, _ := limiter.AllowN(ctx, "user:1234567", limit, n&3+1); !d.Allowed {
				b.Error("refused")
				return
			}
		}
	})
}

// BenchmarkHotParallel is one key that all processors ask for.
func BenchmarkHotParallel(b *testing.B) {
	for name, limit := range map[string]headgate.Limit{
		"drained": headgate.PerSecond(1_000_000_000),
		"allowed": headgate.PerSecond(1_000_000).WithBurst(1 << 36),
		"denied":  headgate.PerSecond(100),
	} {
		b.Run(name, func(b *testing.B) {
			limiter := headgate.New(New())
			ctx := context.Background()
			var passed atomic.Int64
			b.SetParallelism(2)
			b.RunParallel(func(more *testing.PB) {
				n := int64(0)
				for more.Next() {
					if d, _ := limiter.AllowN(ctx, "user:1234567", limit, 1); d.Allowed {
						n++
					}
				}
				passed.Add(n)
			})
			if share := float64(passed.Load()) / float64(b.N); b.N > 100_000 && (share < 0.999) != (name == "denied") {
				b.Fatalf("%.3f of the requests passed", share)
			}
		})
	}
}

func full(b *testing.B, n int) (*Store, *headgate.Limiter, headgate.Limit) {
	b.Helper()
	s := New(WithMaxKeys(n))
	limiter := headgate.New(s)
	limit := headgate.PerHour(1_000_000_000)
	var buf [32]byte
	for i := range uint64(n) {
		op := store.Op{Key: string(key(buf[:], i)), Rule: limit.Rule(), Kind: store.KindCharge, Cost: 900_000_000}
		if _, err := limiter.Caller().Do(context.Background(), op); err != nil {
			b.Fatal(err)
		}
	}
	t := s.Stats()
	if t.Keys != int64(n) || t.Evicted != 0 {
		b.Fatalf("%+v", t)
	}
	b.ReportMetric(float64(t.Bytes)/float64(n), "B/key")
	return s, limiter, limit
}

func benchKeys(b *testing.B, next func(*rand.Rand) func() uint64, parallel bool) {
	s, limiter, limit := full(b, million)
	ctx := context.Background()
	run := func(seed uint64, more func() bool) {
		draw := next(rand.New(rand.NewPCG(seed, 7)))
		var buf [32]byte
		for more() {
			k := key(buf[:], draw())
			if d, err := limiter.AllowN(ctx, view(k), limit, 1); err != nil || !d.Allowed {
				b.Error("refused", err)
				return
			}
		}
	}
	b.ResetTimer()
	if parallel {
		b.RunParallel(func(pb *testing.PB) { run(rand.Uint64(), pb.Next) })
	} else {
		run(1, b.Loop)
	}
	if t := s.Stats(); t.Keys != million {
		b.Fatalf("%+v", t)
	}
}

func uniform(r *rand.Rand) func() uint64 { return func() uint64 { return r.Uint64N(million) } }

func zipf(r *rand.Rand) func() uint64 { return rand.NewZipf(r, 1.1, 1, million-1).Uint64 }

func BenchmarkUniform(b *testing.B)         { benchKeys(b, uniform, false) }
func BenchmarkUniformParallel(b *testing.B) { benchKeys(b, uniform, true) }
func BenchmarkZipf(b *testing.B)            { benchKeys(b, zipf, false) }

// BenchmarkFirstSeen is the cost of an unknown key while the store fills up to a
// million.
func BenchmarkFirstSeen(b *testing.B) {
	limit := headgate.PerHour(100)
	ctx := context.Background()
	var s *Store
	var limiter *headgate.Limiter
	var buf [32]byte
	i := uint64(million)
	for b.Loop() {
		if i == million {
			s = New()
			limiter = headgate.New(s)
			i = 0
		}
		if d, err := limiter.AllowN(ctx, view(key(buf[:], i)), limit, 1); err != nil || !d.Allowed {
			b.Fatal("refused", err)
		}
		i++
	}
	if n := s.Stats().Keys; n != int64(i) {
		b.Fatalf("%d keys, want %d", n, i)
	}
}

// BenchmarkFlood is a new key in a store full of larger debts, except for one.
func BenchmarkFlood(b *testing.B) {
	s := New(WithMaxKeys(100_000))
	limiter := headgate.New(s)
	limit := headgate.PerHour(100)
	ctx := context.Background()
	var buf [32]byte
	var i uint64
	for b.Loop() {
		if d, err := limiter.AllowN(ctx, view(key(buf[:], i)), limit, 1); err != nil || !d.Allowed {
			b.Fatal("refused", err)
		}
		i++
	}
	if n := s.Stats().Keys; n > 100_000 {
		b.Fatal(n)
	}
}

func BenchmarkClock(b *testing.B) {
	s := New()
	for b.Loop() {
		s.clock.now()
	}
}

func BenchmarkIdentify(b *testing.B) {
	s := New()
	for b.Loop() {
		s.secret.identify("", "user:1234567", uint64(store.TokenBucket))
	}
}

// view returns the content of b as a string without allocating. b must not be changed
// while the string is in use. A parser that owns its buffer would do the same.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// BenchmarkHotTake is BenchmarkHot without the Limiter; BenchmarkHotAt is also without
// the clock.
func BenchmarkHotTake(b *testing.B) { benchTake(b, 0) }

// BenchmarkHotTakeN is BenchmarkHotTake without the Op.
func BenchmarkHotTakeN(b *testing.B) {
	s := New()
	limit := headgate.PerSecond(1_000_000_000)
	ctx := context.Background()
	for b.Loop() {
		if d, err := s.TakeN(ctx, "user:1234567", limit.Rule(), 1); err != nil || !d.Allowed {
			b.Fatal("refused", err, d)
		}
	}
}

func BenchmarkHotAt(b *testing.B) { benchTake(b, t0) }

func benchTake(b *testing.B, at int64) {
	s := New()
	op := store.Op{Key: "user:1234567", Rule: headgate.PerSecond(1_000_000_000).Rule(), Cost: 1, At: at}
	ctx := context.Background()
	for b.Loop() {
		if d, err := store.Execute(ctx, s, op); err != nil || !d.Allowed {
			b.Fatal("refused", err, d)
		}
	}
}

// BenchmarkFair is a take of one of 1024 who share a bucket.
func BenchmarkFair(b *testing.B) {
	s, limit := New(), headgate.PerSecond(1_000_000).Rule()
	fair, err := store.NewFair(limit, 10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	shares := make([]store.Share, 1024)
	for i := range shares {
		shares[i] = store.Share{Fair: fair, Of: strconv.Itoa(i), Weight: 1}
	}
	op := store.Op{Key: "all", Scope: "shop/shared", Rule: limit, Cost: 1}
	ctx := context.Background()
	take := func(i int) {
		op.Share = &shares[i%len(shares)]
		if _, err := store.Execute(ctx, s, op); err != nil {
			b.Fatal(err)
		}
	}
	for i := range shares {
		take(i)
	}
	if n := testing.AllocsPerRun(100, func() { take(7) }); n > 0 {
		b.Errorf("%g allocations", n)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		take(i)
	}
}
