package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// returning tests refunds to a store that holds 500 keys.
type returning struct {
	t     *testing.T
	store *memory.Store
	now   time.Duration
	limit headgate.Limit
}

func (r *returning) do(op headgate.Op) headgate.Decision {
	r.t.Helper()
	op.At = 1_800_000_000_000_000 + int64(r.now/time.Microsecond)
	d, err := r.store.Take(r.t.Context(), op)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// take takes everything the key has, and returns the last decision.
func (r *returning) take() (last headgate.Decision, n int) {
	r.t.Helper()
	for {
		d := r.do(headgate.Op{Key: "k", Limit: r.limit, Cost: 1})
		if !d.Allowed {
			return last, n
		}
		last, n = d, n+1
	}
}

// flood adds new keys that are in debt for the given time.
func (r *returning) flood(debt time.Duration) {
	r.t.Helper()
	for i := range 2000 {
		r.do(headgate.Op{Key: fmt.Sprint("flood", r.now, i), Limit: headgate.Per(1, debt), Cost: 1})
	}
}

// giveBack refunds n of a take with the given age, alone or together with others, and
// returns how many more requests then pass.
func (r *returning) giveBack(n int64, d headgate.Decision, age time.Duration, together bool) int {
	r.t.Helper()
	op := headgate.Op{Key: "k", Limit: r.limit, Cost: n, Kind: headgate.Refund, Duration: d.ResetAfter - age, Age: age}
	if together {
		op.At = 1_800_000_000_000_000 + int64(r.now/time.Microsecond)
		if err := r.store.Do(r.t.Context(), []headgate.Op{op}, make([]headgate.Decision, 1), headgate.AllOrNothing); err != nil {
			r.t.Fatal(err)
		}
	} else {
		r.do(op)
	}
	_, passed := r.take()
	return passed
}

// A take of a key that a full store had to evict is not refunded: the refund would come
// off what others have taken since.
func TestGivenBackAfterAFlood(t *testing.T) {
	ten := headgate.Per(10, 10*time.Minute)
	for _, limit := range []headgate.Limit{
		ten, ten.Using(headgate.LeakyBucket), ten.Using(headgate.FixedWindow), ten.Using(headgate.SlidingLog),
		ten.Using(headgate.SlidingWindow), ten.Using(headgate.SlidingBuckets),
	} {
		for _, row := range []struct {
			debt     time.Duration // of the flood's keys; 0: no flood
			together bool
			want     int
		}{{0, false, 10}, {time.Minute, false, 10}, {2 * time.Hour, false, 0}, {2 * time.Hour, true, 0}} {
			r := &returning{t: t, store: memory.New(memory.WithMaxKeys(500)), limit: limit}
			taken, n := r.take()
			if n != 10 {
				t.Fatalf("%s: %d passed", limit, n)
			}
			r.now += time.Second
			if row.debt > 0 {
				r.flood(row.debt)
			}
			r.now += time.Second
			_, again := r.take() // a bucket has not refilled by a whole one
			if lost := row.debt > time.Hour; lost != (again == 10) {
				t.Fatalf("%s, %s: %d passed after the flood", limit, row.debt, again)
			}
			got := r.giveBack(10, taken, r.now, row.together)
			if want := row.want; got != want && got != want-1 { // a bucket has drained a little
				t.Errorf("%s, %s: %d passed after 10 were given back, want %d", limit, row.debt, got, want)
			}
			// Takes made after the loss are refunded as usual.
			r.now += 30 * time.Minute
			taken, _ = r.take()
			r.now += 2 * time.Second
			if got := r.giveBack(10, taken, 2*time.Second, row.together); got < 9 {
				t.Errorf("%s, %s: %d passed when 10 were given back after the flood", limit, row.debt, got)
			}
		}
	}
}

// A key is also known to be evicted if a part of it was refunded before.
func TestGivenBackInPartsAfterAFlood(t *testing.T) {
	r := &returning{t: t, store: memory.New(memory.WithMaxKeys(500)), limit: headgate.PerHour(10)}
	first := r.do(headgate.Op{Key: "k", Limit: r.limit, Cost: 5})
	second := r.do(headgate.Op{Key: "k", Limit: r.limit, Cost: 5})
	r.now = 20 * time.Second
	r.do(headgate.Op{Key: "k", Limit: r.limit, Cost: 5, Kind: headgate.Refund, Duration: first.ResetAfter - r.now, Age: r.now})
	r.flood(40 * time.Minute)
	if _, n := r.take(); n != 10 {
		t.Fatalf("%d passed", n)
	}
	if n := r.giveBack(5, second, r.now, false); n != 0 {
		t.Errorf("%d passed after 5 were given back that nobody knew of", n)
	}
}
