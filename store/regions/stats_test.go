package regions

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
)

// is returns what a region knows of the only other one.
func (w *world) is(region string) Stats { return w.stores[region].Stats()[0] }

// TestWhatIsGivenIsConfirmed: eu asks for 25, which us gives and eu confirms.
func TestWhatIsGivenIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.takeAll("eu", perMinute)
		w.stores["eu"].tick(t.Context()) // asks
		asked := w.stores["eu"].Asked()
		if asked != 50 {
			t.Errorf("%d asked for, want all 50 of the part", asked)
		}
		w.stores["us"].tick(t.Context()) // gives
		us := w.is("us")
		if us.Given == 0 || us.Unacknowledged != us.Given || us.Unconfirmed != 0 {
			t.Errorf("on the way: %+v", us)
		}
		time.Sleep(DefaultInterval)
		w.stores["eu"].tick(t.Context()) // receives, and says so
		if eu := w.is("eu"); eu.Received != us.Given || eu.Lag != DefaultInterval {
			t.Errorf("received: %+v, want %d with a lag of an interval", eu, us.Given)
		}
		if left := w.stores["eu"].Asked(); left != asked-us.Given {
			t.Errorf("%d of %d not answered after %d came", left, asked, us.Given)
		}
		w.stores["us"].tick(t.Context()) // reads that
		if us = w.is("us"); us.Unacknowledged != 0 || us.Unconfirmed != 0 || us.Given == 0 {
			t.Errorf("confirmed: %+v", us)
		}
		w.ticks(200)
		if us = w.is("us"); us.Unconfirmed != 0 || us.Unacknowledged != 0 {
			t.Errorf("half a minute later: %+v", us)
		}
	})
}

// TestWhatIsLostIsTold: a gift to a region that is cut off is on its way for half a
// minute, and then may be lost.
func TestWhatIsLostIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.takeAll("eu", perMinute)
		w.stores["eu"].tick(t.Context())
		w.post.down["us"] = errors.New("cut") // eu reads nothing any more
		w.stores["us"].tick(t.Context())
		given := w.is("us").Given
		for _, c := range []struct {
			after        time.Duration
			open, wasted int64
		}{{confirmFor - time.Second, given, 0}, {2 * time.Second, 0, given}, {time.Hour, 0, given}} {
			time.Sleep(c.after)
			w.stores["us"].tick(t.Context())
			if us := w.is("us"); given == 0 || us.Unacknowledged != c.open || us.Unconfirmed != c.wasted {
				t.Errorf("%s later: %+v, want %d on the way and %d unconfirmed", c.after, us, c.open, c.wasted)
			}
		}
	})
}

// TestCutIsTold: how long a region cannot be read, and no longer when it can.
func TestCutIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		if eu := w.is("eu"); eu.HasRead || eu.Cut != 0 {
			t.Errorf("at the start: %+v", eu)
		}
		cut := errors.New("cut")
		w.ticks(1)
		w.post.down["us"] = cut
		w.ticks(6)
		if eu := w.is("eu"); !eu.HasRead || eu.Read != 7*DefaultInterval || eu.Cut != 6*DefaultInterval || !errors.Is(eu.Err, cut) {
			t.Errorf("cut: %+v", eu)
		}
		clear(w.post.down)
		w.ticks(1)
		if eu := w.is("eu"); eu.Cut != 0 || eu.Err != nil || eu.Read != DefaultInterval {
			t.Errorf("healed: %+v", eu)
		}
	})
}

// TestProcessThatDoesNotActKnowsNothing: a process that no longer acts for its region
// tells nothing old.
func TestProcessThatDoesNotActKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.post.down["us"] = errors.New("cut")
		w.ticks(1)
		s := w.stores["eu"]
		s.asker.office.Store(nil)
		s.couriers[0].tick(t.Context())
		if eu := w.is("eu"); eu.Acts || eu.HasRead || eu.Cut != 0 || eu.Err != nil || eu.Lag != 0 {
			t.Errorf("%+v", eu)
		}
	})
}

// TestOwnStoreIsNoPeer: a region whose store is that of this one is found, at the start
// and later; the others are not suspected.
func TestOwnStoreIsNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		for _, name := range w.names {
			if err := w.stores[name].Verify(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.post.streams["us"] = nil
		own := aliased{postOf{w.post, "eu", ""}}
		s, err := newStore(w.counts["eu"], Options{Name: "eu", Others: []string{"us"}, Exchange: own})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context()); !errors.Is(err, ErrWrongStore) {
			t.Errorf("the own store: %v", err)
		}
		// If it is only found later, nothing is given to itself.
		w.stores["eu"] = s
		w.takeAll("eu", perMinute)
		w.ticks(3)
		if eu := w.is("eu"); !errors.Is(eu.Err, ErrWrongStore) || eu.Cut == 0 || eu.Given != 0 {
			t.Errorf("later: %+v", eu)
		}
		// A store that is down, or a region, is nothing wrong.
		for _, e := range []store.Exchange{mute{postOf{w.post, "eu", ""}}, own} {
			w.post.down["eu"] = errors.New("down")
			s.asker.options.Exchange = e
			if err := s.Verify(t.Context()); err != nil {
				t.Errorf("%T: %v", e, err)
			}
		}
	})
}

// aliased is a postOf that takes its own stream for every other one.
type aliased struct{ postOf }

func (a aliased) Read(ctx context.Context, _, after string) (store.Messages, error) {
	return a.postOf.Read(ctx, a.name, after)
}
