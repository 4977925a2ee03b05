package regions

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// slow is a store that takes its time for a call, and ends at the caller's deadline.
type slow struct {
	store.Store
	takes   time.Duration
	refuses string // ops on this key fail
}

func (s *slow) Do(ctx context.Context, b *store.Batch) {
	var err error
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		switch {
		case err != nil:
			return err
		case ops[0].Key == s.refuses:
			return fmt.Errorf("fake: %w", store.ErrRefused)
		}
		return store.ExecuteAll(ctx, s.Store, ops, out, mode)
	})
}

// slowly makes a region's store slow for gifts.
func (w *world) slowly(region string, s slow) {
	s.Store = w.counts[region]
	w.stores[region].options.Counts = &s
}

// use takes all of some keys in a region.
func (w *world) use(region string, keys int) (allowed int) {
	w.Helper()
	for i := range keys {
		for {
			o := op(perMinute, 1)
			o.Key = "k" + strconv.Itoa(i)
			d, err := store.Execute(w.Context(), w.stores[region], o)
			if err != nil {
				w.Fatal(err)
			}
			if !d.Allowed {
				break
			}
			allowed++
		}
	}
	return allowed
}

// A message with many gifts reaches a store that takes a second for each call: a tick of
// two seconds continues where the one before had to stop.
func TestManyGiftsReachASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		w := newWorld(t, "eu", "us")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		w.use("eu", keys)
		w.stores["eu"].tick(t.Context())
		w.stores["us"].tick(t.Context())
		w.slowly("eu", slow{takes: time.Second})
		for range 10 {
			w.stores["eu"].tick(t.Context())
			time.Sleep(DefaultInterval)
		}
		given, is := w.stores["us"].Stats()[0].Given, w.stores["eu"].Stats()[0]
		if is.Received != given || given < keys || is.Skipped != 0 {
			t.Errorf("%d of %d tokens were received, %d skipped", is.Received, given, is.Skipped)
		}
		if got := w.use("eu", keys); int64(got) != given {
			t.Errorf("%d of %d given tokens were admitted", got, given)
		}
	})
}

// An op that the store refuses is left out and counted. Other keys in its message, and
// later messages, are not affected.
func TestOneBadKeyStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		w.use("eu", 10)
		w.slowly("us", slow{refuses: "k3"})
		w.slowly("eu", slow{refuses: "k7"})
		w.ticks(3)
		for i := range 10 {
			o := op(perMinute, 1)
			o.Key = "k" + strconv.Itoa(i)
			d, err := store.Execute(t.Context(), w.stores["eu"], o)
			if err != nil {
				t.Fatal(err)
			}
			if want := i != 3 && i != 7; d.Allowed != want {
				t.Errorf("k%d: %v, want %v", i, d.Allowed, want)
			}
		}
		w.ticks(120) // until the gift of k7 is too old
		if eu, us := w.stores["eu"].Stats()[0], w.stores["us"].Stats()[0]; eu.Skipped == 0 || us.Skipped == 0 || eu.Err != nil || us.Err != nil {
			t.Errorf("skipped: %+v, %+v", eu, us)
		}
	})
}

// A region that was away reads all that there is in one tick.
func TestABacklogIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.post.most = 3
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		for i := range 20 {
			o := op(perMinute, 50)
			o.Key = "k" + strconv.Itoa(i)
			if _, err := store.Execute(t.Context(), w.stores["eu"], o); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Execute(t.Context(), w.stores["eu"], o); err != nil {
				t.Fatal(err)
			}
			w.stores["eu"].asker.tick(t.Context())
		}
		if n := len(w.post.streams["eu"]); n < 20 {
			t.Fatalf("%d messages", n)
		}
		w.stores["us"].tick(t.Context())
		if w.stores["us"].couriers[0].after != strconv.Itoa(len(w.post.streams["eu"])) {
			t.Errorf("read up to %s of %d", w.stores["us"].couriers[0].after, len(w.post.streams["eu"]))
		}
	})
}

// A region whose clock is set back by an hour gives again at once.
func TestGivesAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.takeAll("eu", perMinute)
		w.ticks(2)
		us := w.stores["us"].couriers[0]
		if len(us.given) == 0 {
			t.Fatal("nothing was given")
		}
		for e := range us.given {
			us.given[e] += time.Hour.Microseconds() // as if it had been given before
		}
		before := us.counts.given.Load()
		for range 10 {
			w.takeAll("eu", perMinute)
			w.ticks(1)
		}
		if after := us.counts.given.Load(); after == before {
			t.Error("nothing was given any more")
		}
	})
}

// A gift for a window that has not begun here waits for it, and nothing waits for the gift.
func TestAnEarlyGiftStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		early := headgate.LimitOf(headgate.Per(100, 10*time.Second).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))
		next := time.Now().Truncate(10 * time.Second).Add(20 * time.Second)
		out := writer{}
		out.Gifts = []gift{{To: "eu", Scope: "api/rule", Limit: out.place(early), Key: []byte("early"), Tokens: 5, Charged: 1, Until: next.UnixMicro()}}
		now := time.Now().UnixMicro()
		out.Gifts = append(out.Gifts, gift{To: "eu", Scope: "api/rule", Limit: out.place(perMinute), Key: []byte("k"), Tokens: 7, Charged: now, Until: time.Now().Truncate(time.Minute).Add(time.Minute).UnixMicro()})
		w.takeAll("eu", perMinute)
		if err := w.stores["us"].asker.publish(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		w.stores["eu"].tick(t.Context())
		if left := w.left("eu", perMinute); left != 7 {
			t.Errorf("%d left, want the gift of 7", left)
		}
		if n := len(w.stores["eu"].couriers[0].arriving); n != 1 {
			t.Fatalf("%d gifts wait", n)
		}
		time.Sleep(time.Until(next.Add(-10 * time.Second)))
		w.stores["eu"].tick(t.Context())
		if is := w.stores["eu"].Stats()[0]; is.Received != 12 || is.Skipped != 0 {
			t.Errorf("%+v", is)
		}
	})
}
