package memory

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// hotKey is a hot bucket of key k, its identity and its rule.
func hotKey(s *Store, limit headgate.Limit) (*hot, identity, *store.Rule) {
	r := limit.Rule().AsBucket()
	scope, mark := r.Space()
	id := s.secret.identify(scope, "k", mark)
	return s.hints[s.shardIndex(id)].hot.Load(), id, r
}

// TestTicketsOfALaterGenerationHaveTheirOwnNumber: no two requests get the same Remaining.
func TestTicketsOfALaterGenerationHaveTheirOwnNumber(t *testing.T) {
	limit := headgate.PerHour(10)
	s := New(at(t0))
	s.busy("k", limit, t0, 1)
	c, _, r := hotKey(s, limit)
	word := c.tickets.Add(^uint64(0)) // the second request; it has looked at the generation before
	var second, third store.Decision
	if !c.take(r, t0, 1, 0, &third) {
		t.Fatal("the bucket is not open")
	}
	for _, state := range []string{"open", "closed"} {
		if c.exchange(word, r, t0, 1, &second); second.Remaining != 8 || third.Remaining != 7 {
			t.Errorf("%s: %d and %d remain, want 8 and 7", state, second.Remaining, third.Remaining)
		}
		if d, err := headgate.New(s).Peek(context.Background(), "k", limit); err != nil || d.Remaining != 7 {
			t.Errorf("%s: %d remain in the end, want 7 (%v)", state, d.Remaining, err)
		}
	}
}

// TestTicketOfADebtor: a ticket is an admission, also if a charge has emptied the bucket
// since and the generation is over.
func TestTicketOfADebtor(t *testing.T) {
	limit := headgate.PerHour(10)
	s := New()
	s.busy("k", limit, t0, 1)
	c, _, r := hotKey(s, limit)
	word := c.tickets.Add(^uint64(0))
	if _, err := store.Execute(context.Background(), s, store.Op{Key: "k", Rule: limit.Rule(), Cost: 100, Kind: store.KindCharge, At: t0}); err != nil {
		t.Fatal(err)
	}
	s.busy("k", limit, t0, 1)
	var d store.Decision
	if c.exchange(word, r, t0, 1, &d); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a ticket was counted, but the answer is %+v", d)
	}
}

// TestHotIsNotForKeysThatTakeTurns: once a bucket was hot, keys of its shard that are asked
// for now and then need no allocation.
func TestHotIsNotForKeysThatTakeTurns(t *testing.T) {
	limit := headgate.PerSecond(1_000_000)
	s := New(WithMaxKeys(100)) // one shard
	s.busy("k", limit, t0, 1)
	ctx, now := context.Background(), int64(t0)
	ask := func() {
		for _, key := range [...]string{"k", "other"} {
			now += 20
			if _, err := store.Execute(ctx, s, store.Op{Key: key, Rule: limit.Rule(), Cost: 1, At: now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("%v allocations in two requests", n)
	}
}

// TestHotIsOfOneLimitHoweverWritten: a limit that is made for each request is the same one.
func TestHotIsOfOneLimitHoweverWritten(t *testing.T) {
	s := New()
	s.busy("k", headgate.PerHour(1000), t0, 1)
	c, _, _ := hotKey(s, headgate.PerHour(1000))
	s.busy("k", headgate.PerHour(1000), t0, 1)
	if now, _, _ := hotKey(s, headgate.PerHour(1000)); now != c {
		t.Error("another bucket was opened")
	}
}

// TestHotIsGivenUpForOtherStates: a shard whose busy key cannot have a hot bucket, because
// it has credit for instance, does not try for ever.
func TestHotIsGivenUpForOtherStates(t *testing.T) {
	s := New(WithMaxKeys(100))
	limit := headgate.PerHour(10)
	ctx := context.Background()
	grant := store.Op{Key: "k", Rule: limit.Rule(), Cost: 1000, Kind: store.KindGrant, Duration: time.Hour, At: t0}
	if _, err := store.Execute(ctx, s, grant); err != nil {
		t.Fatal(err)
	}
	s.busy("k", limit, t0, 1)
	for range mostWasted + 2 {
		if _, err := store.Execute(ctx, s, store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, At: t0}); err != nil {
			t.Fatal(err)
		}
	}
	if c, _, _ := hotKey(s, limit); c != nil {
		t.Error("the shard still tries")
	}
}

// TestRefusedByAnotherLimit: requests that a hot bucket refuses leave a debt as it is, also
// if their limit pays it back sooner than the one that took.
func TestRefusedByAnotherLimit(t *testing.T) {
	const minute = int64(time.Minute / time.Microsecond)
	s := New(WithMaxKeys(100))
	slow := headgate.PerMinute(5).WithRefillEvery(20 * time.Second).WithName("n")
	fast := headgate.PerMinute(100).WithRefillEvery(20 * time.Second).WithName("n")
	ctx := context.Background()
	charge := store.Op{Key: "k", Rule: slow.Rule(), Cost: 400, Kind: store.KindCharge, At: t0}
	if _, err := store.Execute(ctx, s, charge); err != nil {
		t.Fatal(err)
	}
	if d := s.busy("k", fast, t0, 1); d.Allowed || d.ResetAfter > 10*time.Minute {
		t.Fatalf("%+v", d)
	}
	if c, _, _ := hotKey(s, fast); c == nil || c.seq.Load()&hotClosed != 0 {
		t.Fatal("the bucket is not hot")
	}
	s.Sweep(time.UnixMicro(t0 + 11*minute))
	peek := store.Op{Key: "k", Rule: slow.Rule(), Cost: 1, Kind: store.KindPeek, At: t0 + 11*minute}
	if d, err := store.Execute(ctx, s, peek); err != nil || d.Allowed {
		t.Errorf("the debt is forgotten: %+v (%v)", d, err)
	}
}

// TestMixedCosts: costs that take turns are paid in tickets, none under the shard's lock.
func TestMixedCosts(t *testing.T) {
	limit := headgate.PerHour(1_000_000)
	s := New()
	for _, n := range []int64{12, 8, 3} {
		s.busy("k", limit, t0, n)
	}
	c, _, r := hotKey(s, limit)
	if c.cost != 1 {
		t.Fatalf("a ticket costs %d, want 1", c.cost)
	}
	used := int64(23)
	for i := range int64(1000) {
		var d store.Decision
		n := i%40 + 1
		if used += n; !c.take(r, t0, n, 0, &d) || !d.Allowed || d.Remaining != 1_000_000-used {
			t.Fatalf("request %d of cost %d: %+v after %d", i, n, d, used)
		}
	}
	left := 1_000_000 - used
	var d store.Decision
	if !c.take(r, t0, left+1, 0, &d) || d.Allowed || d.Remaining != left {
		t.Errorf("more than what is left: %+v", d)
	}
	if !c.take(r, t0, left, 0, &d) || !d.Allowed || d.Remaining != 0 {
		t.Errorf("all that is left: %+v", d)
	}
	if got := s.busy("k", limit, t0, 1); got.Allowed {
		t.Errorf("more than the limit: %+v", got)
	}
}

// TestSeveralTicketsAreThere: a cost that fits because the bucket has drained since it was
// opened takes no more tickets than there are.
func TestSeveralTicketsAreThere(t *testing.T) {
	limit := headgate.PerSecond(10)
	s, exact := New(), New()
	for i, r := range []struct{ at, cost int64 }{{0, 1}, {0, 5}, {100_000, 5}, {100_000, 1}, {200_000, 2}, {200_000, 1}} {
		op := store.Op{Key: "k", Rule: limit.Rule(), Cost: r.cost, At: t0 + r.at}
		var got store.Decision
		if i == 0 {
			got = s.busy("k", limit, op.At, r.cost)
		} else {
			got, _ = store.Execute(context.Background(), s, op)
		}
		if want, _ := store.Execute(context.Background(), exact, op); got != want {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
}

// TestSeveralTicketsOfALaterGeneration: they are not taken, as the fields that the request
// has read are those of the one before.
func TestSeveralTicketsOfALaterGeneration(t *testing.T) {
	limit := headgate.PerHour(100)
	s := New()
	s.busy("k", limit, t0, 1)
	c, _, _ := hotKey(s, limit)
	seq, all := c.seq.Load(), algorithm.Bucket{Used: c.used.Load(), Last: c.last.Load(), Token: c.rule.Token}
	c.mu.Lock()
	c.open(c.close())
	c.mu.Unlock()
	var d store.Decision
	if c.takeSeveral(seq, all, t0, 2, &d) {
		t.Errorf("taken: %+v", d)
	}
}

// TestTicketOfAClosedBucket: the request that holds it does not open the bucket, also if
// its time is over: the table has it.
func TestTicketOfAClosedBucket(t *testing.T) {
	limit := headgate.PerSecond(10)
	s := New()
	s.busy("k", limit, t0, 1)
	c, _, r := hotKey(s, limit)
	word := c.tickets.Add(^uint64(0))
	op := store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, Kind: store.KindPeek, At: t0}
	if d, err := store.Execute(context.Background(), s, op); err != nil || d.Remaining != 8 {
		t.Fatalf("%+v (%v)", d, err)
	}
	var d store.Decision
	if c.exchange(word, r, t0+1_000_000, 1, &d); !d.Allowed || c.seq.Load()&hotClosed == 0 {
		t.Errorf("%+v, and the bucket is open", d)
	}
}

// TestHotDoesNotAllocate: neither with a ticket, nor when the bucket is opened again.
func TestHotDoesNotAllocate(t *testing.T) {
	limit := headgate.PerSecond(1_000_000)
	s := New()
	s.busy("k", limit, t0, 1)
	c, _, r := hotKey(s, limit)
	now := int64(t0)
	for name, take := range map[string]func(d *store.Decision) bool{
		"a ticket": func(d *store.Decision) bool { return c.take(r, t0, 1, 0, d) },
		"tickets":  func(d *store.Decision) bool { return c.take(r, t0, 3, 0, d) },
		"opening":  func(d *store.Decision) bool { now += 1000; return c.takeWaiting(r, now, 1, 0, d) },
	} {
		var d store.Decision
		allocations := testing.AllocsPerRun(100, func() {
			if !take(&d) || !d.Allowed {
				t.Errorf("%s: %+v", name, d)
			}
		})
		if allocations > 0 {
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}

// straggler is a request that has looked at a hot bucket, and takes its ticket later.
type straggler struct {
	c       *hot
	now     int64
	pending bool
}

// TestStragglers: requests that look at a bucket and are then overtaken by random others,
// which charge, reset and open it again, are counted exactly once. All other answers are
// those of a store without a hot bucket.
func TestStragglers(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	valid, late := 0, 0
	for run := range 300 {
		limit := []headgate.Limit{
			headgate.PerHour(30), headgate.PerSecond(100), headgate.PerSecond(1_000_000), headgate.PerHour(1_000_000),
		}[run%4]
		s, exact := New(WithMaxKeys(100)), New(WithMaxKeys(100))
		var late1 straggler
		now := int64(t0)
		for step := range 300 {
			now += []int64{0, 0, 1, 5, 1000, 1_000_000}[rng.IntN(6)]
			op := store.Op{Key: "k", Rule: limit.Rule(), Cost: 1, At: now}
			c, _, r := hotKey(s, limit)
			switch kind := rng.IntN(10); {
			case late1.pending && kind < 3:
				late1.pending = false
				word := late1.c.tickets.Add(^uint64(0))
				if word&ticketsValid == 0 {
					late++
					break // it goes on as if it had not looked
				}
				valid++
				var d store.Decision
				late1.c.exchange(word, r, late1.now, 1, &d)
				op.At = late1.now
				if want, _ := store.Execute(context.Background(), exact, op); !d.Allowed || !want.Allowed {
					t.Fatalf("run %d step %d: a ticket: got %+v, want %+v", run, step, d, want)
				}
			case !late1.pending && kind < 3:
				if c != nil && c.cost == 1 && c.seq.Load()&hotClosed == 0 && c.sure.Load() > 0 && now <= c.until.Load() {
					late1 = straggler{c, now, true}
				}
			case kind == 3:
				op.Kind = []store.Kind{store.KindPeek, store.KindRefund, store.KindCharge, store.KindReset, store.KindTakeUpTo}[rng.IntN(5)]
				op.Cost = rng.Int64N(40) + 1
				got, err := store.Execute(context.Background(), s, op)
				if want, _ := store.Execute(context.Background(), exact, op); err != nil || got != want {
					t.Fatalf("run %d step %d: %v of %d: got %+v, want %+v (%v)", run, step, op.Kind, op.Cost, got, want, err)
				}
			default:
				op.Cost = []int64{1, 1, 1, 1, 2, 7}[rng.IntN(6)]
				var got store.Decision
				if c == nil {
					got = s.busy("k", limit, now, op.Cost)
				} else {
					got, _ = store.Execute(context.Background(), s, op)
				}
				if want, _ := store.Execute(context.Background(), exact, op); got != want {
					t.Fatalf("run %d step %d: take %d: got %+v, want %+v", run, step, op.Cost, got, want)
				}
			}
		}
	}
	if valid < 500 || late < 500 {
		t.Errorf("%d tickets of stragglers and %d that were too late say little", valid, late)
	}
}

// TestMixedCostsAtOnce takes different costs at once, until all are refused, while somebody
// looks and takes what there is: exactly the limit passes.
func TestMixedCostsAtOnce(t *testing.T) {
	const burst = 3_000_017
	s := New(WithMaxKeys(100), at(t0))
	limit := headgate.PerHour(burst)
	ctx := context.Background()
	var taken, running atomic.Int64
	running.Store(4)
	var all sync.WaitGroup
	for i := range int64(4) {
		all.Go(func() {
			defer running.Add(-1)
			for j, refused := int64(0), 0; refused < 10; j++ {
				n := (i*j)%5*3 + 1
				if d := s.takeHot(limit, n); d.Allowed {
					taken.Add(n)
				} else {
					refused++
				}
			}
		})
	}
	all.Go(func() {
		for range 1000 {
			if running.Load() == 0 {
				return
			}
			if d, err := store.Execute(ctx, s, store.Op{Key: "k", Rule: limit.Rule(), Cost: 2, Kind: store.KindTakeUpTo}); err != nil {
				t.Error(err)
			} else {
				taken.Add(d.Granted)
			}
			_, _ = headgate.New(s).Peek(ctx, "k", limit)
		}
	})
	all.Wait()
	d, err := headgate.New(s).Peek(ctx, "k", limit)
	if err != nil || d.Remaining != burst-taken.Load() {
		t.Errorf("%d of %d taken, and %d remain (%v)", taken.Load(), burst, d.Remaining, err)
	}
}

// takeHot takes n from k, whose shard has a hot bucket.
func (s *Store) takeHot(limit headgate.Limit, n int64) (d store.Decision) {
	if c, _, _ := hotKey(s, limit); c == nil {
		return s.busy("k", limit, t0, n)
	}
	_, id, r := hotKey(s, limit)
	s.takeOne(id, r, t0, n, 0, &d)
	return d
}
