package regions

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// tick is an interval of a Store whose exchange was not started.
func (s *Store) tick(ctx context.Context) {
	s.asker.tick(ctx)
	for _, c := range s.couriers {
		c.tick(ctx)
	}
}

// post is an Exchange in this process: the streams of all regions.
type post struct {
	streams map[string][]store.Message
	down    map[string]error // of regions that cannot be reached
	late    time.Duration    // how long a message takes to be read
	most    int              // how many are read at a time, if that is limited
	seen    map[string]map[string]time.Time
}

type postOf struct {
	*post
	name     string
	identity string // of the region's store; empty if it is not known
}

// mute is a postOf that cannot publish.
type mute struct{ postOf }

var errMute = errors.New("mute")

func (mute) Publish(context.Context, []byte) error { return errMute }

// A region that cannot publish says so in every interval, and never that all is well in
// between: that would be two lines in the log each time.
func TestWhatCannotBePublishedIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		w := newWorld(t, "eu", "us")
		s, err := newStore(w.counts["eu"], Options{Name: "eu", Others: []string{"us"}, Exchange: mute{postOf{w.post, "eu", ""}}, OnError: func(region string, err error) {
			if region == "eu" {
				told = append(told, err)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.stores["eu"] = s
		w.takeAll("eu", perMinute)
		w.ticks(4)
		for i, err := range told {
			if !errors.Is(err, errMute) {
				t.Errorf("interval %d: told %v", i, err)
			}
		}
		if len(told) != 4 {
			t.Errorf("told %d times in 4 intervals", len(told))
		}
	})
}

func (p postOf) Lead(context.Context, time.Duration) (store.Leadership, error) {
	return store.Leadership{Leads: true, Now: time.Now(), Seen: p.seen[p.name], Identity: p.identity}, nil
}

func (p postOf) Saw(_ context.Context, region string, upTo time.Time) error {
	if p.seen[p.name] == nil {
		p.seen[p.name] = map[string]time.Time{}
	}
	p.seen[p.name][region] = upTo
	return nil
}

func (p postOf) Publish(_ context.Context, data []byte) error {
	p.streams[p.name] = append(p.streams[p.name], store.Message{ID: strconv.Itoa(len(p.streams[p.name]) + 1), At: time.Now(), Data: data})
	return nil
}

func (p postOf) Read(_ context.Context, region, after string) (store.Messages, error) {
	if err := p.down[region]; err != nil {
		return store.Messages{}, err
	}
	first, _ := strconv.Atoi(after)
	b := store.Messages{Now: time.Now()}
	for _, m := range p.streams[region][first:] {
		if p.most > 0 && len(b.Messages) == p.most {
			b.More = true
			break
		}
		if b.Now.Sub(m.At) >= p.late {
			b.Messages = append(b.Messages, m)
		}
	}
	return b, nil
}

// world is some regions in a bubble of testing/synctest.
type world struct {
	*testing.T
	post   *post
	stores map[string]*Store
	counts map[string]*memory.Store
	names  []string
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{T: t, post: &post{streams: map[string][]store.Message{}, down: map[string]error{}, seen: map[string]map[string]time.Time{}}, stores: map[string]*Store{}, counts: map[string]*memory.Store{}, names: names}
	for i, name := range names {
		others := append(append([]string{}, names[:i]...), names[i+1:]...)
		w.counts[name] = memory.New(memory.WithClock(time.Now))
		s, err := newStore(w.counts[name], Options{Name: name, Others: others, Exchange: postOf{w.post, name, "3w5e11264sg-" + name}})
		if err != nil {
			t.Fatal(err)
		}
		w.stores[name] = s
	}
	return w
}

func op(limit headgate.Limit, cost int64) store.Op {
	return store.Op{Key: "k", Scope: "api/rule", Rule: limit.Rule(), Cost: cost}
}

func (w *world) take(region string, limit headgate.Limit, cost int64) store.Decision {
	w.Helper()
	d, err := store.Execute(w.Context(), w.stores[region], op(limit, cost))
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// takeAll takes one by one until it is refused.
func (w *world) takeAll(region string, limit headgate.Limit) (taken int) {
	w.Helper()
	for w.take(region, limit, 1).Allowed {
		taken++
	}
	return taken
}

// ticks lets all regions exchange messages n times, an interval apart.
func (w *world) ticks(n int) {
	for range n {
		for _, name := range w.names {
			w.stores[name].tick(w.Context())
		}
		time.Sleep(DefaultInterval)
	}
}

// left is what a region's store has left.
func (w *world) left(region string, limit headgate.Limit) int64 {
	w.Helper()
	peek := op(w.stores[region].parts.of(limit), 1)
	peek.Kind = store.KindPeek
	d, err := store.Execute(w.Context(), w.counts[region], peek)
	if err != nil {
		w.Fatal(err)
	}
	return d.Remaining
}

var perMinute = headgate.LimitOf(headgate.PerMinute(100).WithAlgorithm(store.FixedWindow).Rule().InRegions(store.Regions{}))

func TestEachRegionHasItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us", "ap")
		for name, part := range map[string]int{"ap": 33, "eu": 33, "us": 34} {
			if got := w.takeAll(name, perMinute); got != part {
				t.Errorf("%s admits %d, want %d", name, got, part)
			}
		}
		d := w.take("eu", perMinute, 1)
		if d.Limit != 100 || d.RetryAfter != time.Minute {
			t.Errorf("refusal %+v: want the whole limit, and the end of the window", d)
		}
	})
}

// A region with all the traffic gets all the tokens, and then nobody has any.
func TestTokensGoWhereTheyAreWanted(t *testing.T) {
	for _, limit := range []headgate.Limit{
		perMinute,
		headgate.LimitOf(headgate.PerCalendar(100, store.Hour, nil).Rule().InRegions(store.Regions{})),
		headgate.LimitOf(headgate.PerMinute(100).WithAlgorithm(store.SlidingWindow).Rule().InRegions(store.Regions{})),
		headgate.LimitOf(headgate.PerMinute(100).WithAlgorithm(store.SlidingBuckets).Rule().InRegions(store.Regions{})),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "eu", "us", "ap")
				taken := 0
				for range 25 {
					taken += w.takeAll("eu", limit)
					w.ticks(1)
				}
				if taken != 100 {
					t.Errorf("eu was admitted %d times in 5 s, want 100", taken)
				}
				for _, name := range w.names {
					if left := w.left(name, limit); left != 0 {
						t.Errorf("%s has %d left, want 0", name, left)
					}
				}
			})
		})
	}
}

// Of a bucket, what drains on the way is not given: full buckets of 50 and 50, which
// refill 5 per second. us gives 44 of its 50, and eu reads that a second later: 5 of them
// have drained.
func TestBucketGivesWhatHasNotDrained(t *testing.T) {
	for _, c := range []struct {
		slack float64
		want  int64
	}{{0, 39}, {0.05, 41}, {0.5, 44}} { // with 0.05, half a second does not count
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.LimitOf(headgate.PerSecond(10).WithBurst(100).Rule().InRegions(store.Regions{Slack: c.slack}))
			w := newWorld(t, "eu", "us")
			w.takeAll("eu", limit)
			w.stores["eu"].tick(t.Context())
			// Only us is asked, for much more.
			w.stores["us"].tick(t.Context())
			if given := 50 - w.left("us", limit); given != 44 {
				t.Fatalf("us gave %d, want 44", given)
			}
			time.Sleep(time.Second)
			before := w.left("eu", limit)
			w.stores["eu"].tick(t.Context())
			if got := w.left("eu", limit) - before; got != c.want {
				t.Errorf("slack %v: %d of 44 arrived, want %d", c.slack, got, c.want)
			}
		})
	}
}

// Nothing is sent for keys that do not run low, and nothing any more for those that no
// longer have requests.
func TestQuietKeysSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		for range 10 {
			w.take("eu", perMinute, 1)
			w.ticks(1)
		}
		if n := len(w.post.streams["eu"]); n != 0 {
			t.Errorf("%d messages for a key with 40 of 50 left", n)
		}
		w.takeAll("eu", perMinute)
		w.ticks(30)
		sent := len(w.post.streams["eu"]) + len(w.post.streams["us"])
		w.ticks(100)
		if after := len(w.post.streams["eu"]) + len(w.post.streams["us"]); after != sent || sent == 0 {
			t.Errorf("%d messages, and %d later: want no more", sent, after)
		}
	})
}

// In a partition each region has its part, and what it was given before. Afterwards they
// share again.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		cut := errors.New("cut")
		w.post.down["us"], w.post.down["eu"] = cut, cut
		taken := 0
		for range 10 {
			taken += w.takeAll("eu", perMinute)
			w.ticks(1)
		}
		if taken != 50 {
			t.Errorf("eu was admitted %d in a partition, want its 50", taken)
		}
		clear(w.post.down)
		for range 20 {
			taken += w.takeAll("eu", perMinute)
			w.ticks(1)
		}
		taken += w.takeAll("us", perMinute)
		if taken != 100 {
			t.Errorf("%d were admitted in all, want 100", taken)
		}
	})
}

// A gift that is read again, by this process or another one, counts once.
func TestGiftCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		w.takeAll("eu", perMinute)
		w.ticks(2)
		had := w.left("eu", perMinute)
		if had == 0 {
			t.Fatal("nothing was given")
		}
		for range 5 {
			w.stores["eu"].couriers[0].after = ""
			w.stores["eu"].tick(t.Context())
		}
		if left := w.left("eu", perMinute); left != had {
			t.Errorf("%d left after reading again, had %d", left, had)
		}
	})
}

// A gift of a window that has ended is worth nothing.
func TestGiftEndsWithItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(59 * time.Second)))
		w.takeAll("eu", perMinute)
		w.stores["eu"].tick(t.Context())
		w.stores["us"].tick(t.Context())
		time.Sleep(2 * time.Second)
		taken := w.takeAll("eu", perMinute)
		w.stores["eu"].tick(t.Context())
		if taken += w.takeAll("eu", perMinute); taken != 50 {
			t.Errorf("%d in the next window, want 50", taken)
		}
	})
}

// Other limits, and limits in calls with others, are decided by the inner store.
// TestMessagesOfLaterReleases: what this release cannot read is counted, and stops nothing.
func TestMessagesOfLaterReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		us := postOf{w.post, "us", ""}
		for _, text := range []string{
			`{"v":2,"from":"us","gifts":[{"to":"eu","limit":0,"key":"aw==","n":5,"charged":1,"until":2}]}`,
			`{"v":1,"from":"us","later":{"a":[1]},"limits":[{"algorithm":"later","limit":5}],"wants":[{"limit":0,"key":"aw==","n":5,"later":1}]}`,
		} {
			if err := us.Publish(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		w.ticks(1)
		if is := w.stores["eu"].Stats()[0]; is.Skipped != 2 || is.Err != nil || is.Cut != 0 {
			t.Errorf("%+v: want two skipped, and no error", is)
		}
		if got := w.takeAll("eu", perMinute); got != 50 {
			t.Errorf("%d were admitted, want the part of 50", got)
		}
		w.ticks(4)
		if got := w.takeAll("eu", perMinute); got == 0 {
			t.Error("nothing is given any more")
		}
	})
}

// TestCostsMoreThanAPart: a request that can never pass here is told so.
func TestCostsMoreThanAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us", "ap")
		if d := w.take("eu", perMinute, 34); d.Allowed || d.Reason != store.ReasonTooLarge || d.Limit != 100 {
			t.Errorf("%+v: want too large for a part of 33", d)
		}
		if d := w.take("eu", perMinute, 33); !d.Allowed {
			t.Errorf("%+v: want all of the part", d)
		}
	})
}

func TestOtherLimitsAreUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "eu", "us")
		plain := headgate.PerMinute(10).WithAlgorithm(store.FixedWindow)
		ops := []store.Op{{Key: "a", Rule: plain.Rule(), Cost: 10}, op(perMinute, 50)}
		out := make([]store.Decision, 2)
		if err := store.ExecuteAll(t.Context(), w.stores["eu"], ops, out, store.AllOrNothing); err != nil {
			t.Fatal(err)
		}
		if !out[0].Allowed || !out[1].Allowed || out[0].Limit != 10 || out[1].Limit != 100 || out[1].Remaining != 0 {
			t.Errorf("%+v", out)
		}
		groups := []store.Group{{Ops: 1}, {Ops: 1}}
		w.stores["eu"].Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if groups[0].Err != nil || out[0].Allowed || out[1].Allowed || out[1].Limit != 100 {
			t.Errorf("%+v, %+v", groups, out)
		}
		if !ops[1].Rule.Equal(perMinute.Rule()) {
			t.Error("the caller's op was changed")
		}
	})
}

func TestOptions(t *testing.T) {
	ex := postOf{&post{}, "eu", ""}
	for _, o := range []Options{
		{Name: "eu", Others: []string{"us"}},
		{Name: "", Others: []string{"us"}, Exchange: ex},
		{Name: "eu", Others: []string{"eu"}, Exchange: ex},
		{Name: "eu", Others: []string{"us", "us"}, Exchange: ex},
		{Name: "eu", Exchange: ex},
	} {
		if _, err := New(memory.New(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := New(nil, Options{Name: "eu", Others: []string{"us"}, Exchange: ex}); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
}

// TestConformance: without limits in regions, a Store is what it wraps.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(t *testing.T) store.Store {
		t.Helper()
		s, err := newStore(memory.New(), Options{Name: "eu", Others: []string{"us"}, Exchange: postOf{&post{streams: map[string][]store.Message{}}, "eu", ""}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}
