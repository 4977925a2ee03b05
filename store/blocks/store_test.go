package blocks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestConformance: without blocks, and for keys that are not busy, nothing changes.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(*testing.T) store.Store { return New(memory.New(), Options{}) },
	})
}

// in runs a test in a bubble, with one limit.
func in(t *testing.T, limit headgate.Limit, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newBench(t, limit)) })
}

func hourly(n int64) headgate.Limit {
	return headgate.LimitOf(headgate.PerHour(n).WithAlgorithm(store.FixedWindow).Rule().InBlocks(quick))
}

// TestWindowAdmitsExactlyItsLimit: 64 callers of two processes, until all are refused.
func TestWindowAdmitsExactlyItsLimit(t *testing.T) {
	in(t, hourly(100_000), func(b *bench) {
		other := New(b.remote, Options{Keys: 64})
		defer func() { _ = other.Close() }()
		var mu sync.Mutex
		admitted := 0
		var callers sync.WaitGroup
		for i := range 64 {
			db := [...]*Store{b.store, other}[i%2]
			callers.Go(func() {
				mine := 0
				for refusals := 0; refusals < 50; {
					d, err := store.Execute(context.Background(), db, b.op(store.KindTake, 1))
					switch {
					case err != nil:
						t.Error(err)
						return
					case d.Allowed:
						mine++
					default:
						refusals++
						time.Sleep(time.Millisecond)
					}
				}
				mu.Lock()
				admitted += mine
				mu.Unlock()
			})
		}
		callers.Wait()
		calls := b.remote.calls(store.KindTake) + b.remote.calls(store.KindDraw) + b.remote.calls(store.KindRefund)
		if admitted != 100_000 {
			t.Errorf("admitted %d of 100000", admitted)
		}
		if t.Logf("%d calls", calls); calls > 100_000/20 {
			t.Errorf("%d calls, want at most a twentieth", calls)
		}
	})
}

// TestColdKeysPassThrough: the first requests of a beat go to the store.
func TestColdKeysPassThrough(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		for range 100 {
			b.do(store.KindTake, 1)
			time.Sleep(20 * time.Millisecond)
		}
		if got := b.remote.calls(store.KindDraw); got != 0 || b.shared() != 900 {
			t.Errorf("%d draws, %d left", got, b.shared())
		}
	})
}

// TestIdleBlocksGoBack: what is not used returns to the store after two beats, and a key
// that is no longer busy leaves the table.
func TestIdleBlocksGoBack(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		if b.shared() == 1000-taken {
			t.Fatal("nothing is held")
		}
		time.Sleep(400 * time.Millisecond)
		if b.held() != 0 || b.shared() != 1000-taken {
			t.Errorf("%d held, %d left, want %d", b.held(), b.shared(), 1000-taken)
		}
		time.Sleep(time.Second)
		if s := b.store.Stats()[0]; s.Keys != 0 || s.Returned == 0 || s.Drawn != s.Admitted+s.Returned {
			t.Errorf("%+v", s)
		}
	})
}

// TestCloseReturnsAll: what SIGTERM does.
func TestCloseReturnsAll(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		if left := b.shared(); left != 1000-taken {
			t.Errorf("%d left, want %d", left, 1000-taken)
		}
		if b.remote.calls(store.KindRefund) != 1 {
			t.Errorf("%d calls to return all", b.remote.calls(store.KindRefund))
		}
	})
}

// TestCloseDoesNotWaitForEver: a store that does not answer keeps nobody.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		b.remote.slow(time.Hour)
		began := time.Now()
		_ = b.store.Close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
		time.Sleep(3 * time.Hour)
	})
}

// TestStoreDownBlocksCarry: while the store does not answer, a busy key is decided from
// what is held, for at most a block's age.
func TestStoreDownBlocksCarry(t *testing.T) {
	in(t, hourly(1_000_000), func(b *bench) {
		for range 5000 {
			b.do(store.KindTake, 1)
		}
		b.remote.fail(store.ErrUnavailable)
		began, carried := time.Now(), 0
		for {
			d, err := store.Execute(b.Context(), b.store, b.op(store.KindTake, 1))
			if err != nil {
				if !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
				break
			}
			if !d.Allowed {
				t.Fatalf("%+v", d)
			}
			carried++
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); carried == 0 || took > time.Second {
			t.Errorf("%d requests in %s without the store", carried, took)
		}
	})
}

// TestBlockEndsWithItsAge: a process that was stopped for longer than that must not use
// what it held (SIGSTOP, a pause of the machine).
func TestBlockEndsWithItsAge(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		l := b.line()
		var d store.Decision
		if late := b.store.now() + l.rule.Age; l.spend(late, 1, &d) {
			t.Errorf("spent after its age: %+v", d)
		}
	})
}

func (b *bench) line() *line {
	op := b.op(store.KindTake, 1)
	return b.store.table.find(b.store.table.hash(&op), &op)
}

// TestReturnedBlocksAreNotCountedTwice: the return of a second block must not give more
// than it still counts for, although the first return emptied the bucket in between.
func TestReturnedBlocksAreNotCountedTwice(t *testing.T) {
	limit := headgate.LimitOf(headgate.PerSecond(10).WithBurst(100).Rule().InBlocks(store.Blocks{MaxAge: 10 * time.Second, MaxOver: 1}))
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, limit)
		var lines [2]*line
		for i := range lines {
			op := b.op(store.KindDraw, 20)
			l := newLine(&op, 1, new(counters))
			l.size = 20
			d, _ := l.begin(b.store.now(), 0, 0)
			op = l.draw(d.want)
			answer, err := store.Execute(t.Context(), b.remote.Store, op)
			if err != nil {
				t.Fatal(err)
			}
			l.finish(d, b.store.now(), answer, nil)
			lines[i] = l
		}
		back := func(l *line) {
			l.end(b.store.now())
			b.store.refundLeft(t.Context(), l.refunds())
		}
		time.Sleep(time.Second)
		back(lines[0])
		time.Sleep(2 * time.Second) // the bucket is full again
		if b.do(store.KindCharge, 50); b.shared() != 50 {
			t.Fatalf("%d left", b.shared())
		}
		if back(lines[1]); b.shared() != 50 {
			t.Errorf("%d left, after 50 of 100 were taken just now", b.shared())
		}
	})
}

// TestOtherLimitIsAnotherBlock: after an override or a reload the key has another limit,
// and what the old one holds is given back.
func TestOtherLimitIsAnotherBlock(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		taken := b.heat()
		b.limit = hourly(500)
		for range 20 {
			if d := b.do(store.KindTake, 1); d.Limit != 500 {
				t.Fatalf("%+v", d)
			}
			taken++
		}
		time.Sleep(time.Second)
		if b.shared() != 500-taken {
			t.Errorf("%d left, want %d", b.shared(), 500-taken)
		}
	})
}

// TestEqualLimitsShareBlocks: a limit that is built again for each request is the same.
func TestEqualLimitsShareBlocks(t *testing.T) {
	in(t, hourly(1000), func(b *bench) {
		b.heat()
		draws := b.remote.calls(store.KindDraw)
		b.limit = hourly(1000)
		if b.do(store.KindTake, 1); b.remote.calls(store.KindDraw) != draws || b.store.Stats()[0].Keys != 1 {
			t.Error("it has blocks of its own")
		}
	})
}

// TestHotPathDoesNotAllocate: a decision from a block.
func TestHotPathDoesNotAllocate(t *testing.T) {
	limit := headgate.LimitOf(headgate.PerHour(1 << 40).WithAlgorithm(store.FixedWindow).Rule().InBlocks(store.Blocks{MaxAge: time.Minute}))
	s := New(memory.New(), Options{})
	defer func() { _ = s.Close() }()
	limiter := headgate.New(s)
	allow := func() {
		if d, err := limiter.Allow(t.Context(), "k", limit); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	for range 10_000 {
		allow()
	}
	if n := testing.AllocsPerRun(10_000, allow); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestManyKeys: more busy keys than the table has space for are decided by the store.
func TestManyKeys(t *testing.T) {
	s := New(memory.New(), Options{Keys: 4})
	defer func() { _ = s.Close() }()
	limit := hourly(1000)
	for i := range 40 {
		key := fmt.Sprint("key ", i)
		for range 50 {
			if d, err := store.Execute(t.Context(), s, store.Op{Key: key, Rule: limit.Rule(), Cost: 1}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
	}
	if stats := s.Stats()[0]; stats.Keys > 4 {
		t.Errorf("%+v", stats)
	}
}

// TestSaturatedKeyIsDrawnInBeats: a bucket that is asked for eight times its rate is not
// drawn token by token, and loses nothing by that.
func TestSaturatedKeyIsDrawnInBeats(t *testing.T) {
	limit := headgate.LimitOf(headgate.PerSecond(10_000).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.05}))
	in(t, limit, func(b *bench) {
		const seconds = 5
		var admitted, refused atomic.Int64
		var callers sync.WaitGroup
		end := time.Now().Add(seconds * time.Second)
		for range 8 {
			callers.Go(func() {
				for time.Now().Before(end) {
					if d := b.do(store.KindTake, 1); d.Allowed {
						admitted.Add(1)
					} else {
						refused.Add(1)
						if d.RetryAfter <= 0 || d.RetryAfter > 50*time.Millisecond {
							t.Errorf("%+v", d)
						}
					}
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		callers.Wait()
		calls := b.remote.calls(store.KindDraw) + b.remote.calls(store.KindTake)
		t.Logf("admitted %d, refused %d, %d calls", admitted.Load(), refused.Load(), calls)
		most := int64(10_000*(seconds+1)) + limit.Rule().BlockOver()
		if n := admitted.Load(); n > most || n < (most-limit.Rule().BlockOver())*98/100 {
			t.Errorf("admitted %d, want nearly %d", n, most)
		}
		if all := admitted.Load() + refused.Load(); int64(calls) > all/100 {
			t.Errorf("%d calls for %d requests", calls, all)
		}
	})
}

// TestBusyKeysWithOneCounter: two keys that share a counter both become busy.
func TestBusyKeysWithOneCounter(t *testing.T) {
	table := newTable(4)
	for range hotAfter - 1 {
		table.warm(1<<63|1, 7)
	}
	if n := table.warm(1<<63|2, 7); n != hotAfter {
		t.Errorf("%d", n)
	}
	if n := table.warm(1<<63|1, 8); n != 1 {
		t.Errorf("%d in the next beat", n)
	}
}

// inBlocks puts every limit into blocks that can be.
type inBlocks struct{ *Store }

func blocked(op store.Op) store.Op {
	if l := headgate.LimitOf(op.Rule.InBlocks(quick)); l.Rule().Valid() {
		op.Rule = l.Rule()
	}
	return op
}

func (s inBlocks) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		ops = slices.Clone(ops)
		for i := range ops {
			ops[i] = blocked(ops[i])
		}
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// TestConformanceOfColdKeys: a limit in blocks answers as without them, in every field,
// for keys without a block: here, the table has no space for any.
func TestConformanceOfColdKeys(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(*testing.T) store.Store {
			s := New(memory.New(), Options{Keys: 1})
			other := &line{}
			for i := range s.table.sets[0].lines {
				s.table.sets[0].lines[i].Store(other)
			}
			return inBlocks{s}
		},
	})
}
