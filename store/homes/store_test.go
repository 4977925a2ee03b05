package homes_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/homes"
	"github.com/headgate/headgate/store/memory"
)

// at is the time of all ops.
const at = 1_767_225_600_000_000

// region is the store of a region. It counts calls and can fail.
type region struct {
	store.Store

	mu    sync.Mutex
	calls int
	ops   []store.Op // of the last call
	down  error
	hold  chan struct{} // calls wait until it is closed
}

func newRegion() *region { return &region{Store: memory.New()} }

func (r *region) note(ops ...store.Op) error {
	r.mu.Lock()
	r.calls++
	r.ops = append([]store.Op(nil), ops...)
	hold, down := r.hold, r.down
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return down
}

func (r *region) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		if err := r.note(ops...); err != nil {
			return err
		}
		return store.ExecuteAll(ctx, r.Store, ops, out, mode)
	})
}

// asked returns how many calls there were since the last time.
func (r *region) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.calls
	r.calls = 0
	return n
}

// world is a store in the region us, for which eu and ap count some limits.
type world struct {
	*testing.T
	us, eu, ap *region
	store      *homes.Store
}

func newWorld(t *testing.T, partial bool) *world {
	t.Helper()
	w := &world{T: t, us: newRegion(), eu: newRegion(), ap: newRegion()}
	var err error
	w.store, err = homes.New(w.us, homes.Options{Region: "us", Homes: map[string]store.Store{"eu": w.eu, "ap": w.ap}, Partial: partial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

func home(name string, l headgate.Limit) headgate.Limit {
	return headgate.LimitOf(l.Rule().InRegions(store.Regions{Home: name}))
}

func take(l headgate.Limit) store.Op { return store.Op{Key: "k", Rule: l.Rule(), Cost: 1, At: at} }

// left returns what an op's key has left in a region.
func (w *world) left(r *region, op store.Op) int64 {
	w.Helper()
	op.Kind = store.KindPeek
	d, err := store.Execute(w.Context(), r.Store, op)
	if err != nil {
		w.Fatal(err)
	}
	return d.Remaining
}

func (w *world) do(mode store.Mode, ops ...store.Op) ([]store.Decision, error) {
	out := make([]store.Decision, len(ops))
	return out, store.ExecuteAll(w.Context(), w.store, ops, out, mode)
}

// A limit is counted in its home, and all others here; for every kind of op.
func TestOpsGoHome(t *testing.T) {
	w := newWorld(t, false)
	limit := headgate.PerDay(10).WithAlgorithm(store.SlidingLog)
	for _, c := range []struct {
		limit headgate.Limit
		to    *region
	}{
		{limit, w.us},
		{home("us", limit), w.us},
		{home("eu", limit), w.eu},
		{home("ap", limit), w.ap},
		{home("eu", headgate.Concurrent(3)), w.eu},
		{home("eu", headgate.PerHour(4).WithAlgorithm(store.LeakyBucket)), w.eu},
		{home("eu", headgate.Unlimited()), w.us},
		{headgate.LimitOf(headgate.PerDay(9).Rule().InRegions(store.Regions{})), w.us},
	} {
		for kind := store.KindTake; kind <= store.KindDraw; kind++ {
			op := store.Op{Key: "k", Rule: c.limit.Rule(), Cost: 1, At: at, Kind: kind, Duration: time.Second}
			if _, err := store.Execute(t.Context(), w.store, op); err != nil || c.to.asked() != 1 {
				t.Errorf("%s of %s: %v, or asked elsewhere", kind, c.limit, err)
			}
			if err := store.ExecuteAll(t.Context(), w.store, []store.Op{op, op}, make([]store.Decision, 2), store.AllOrNothing); err != nil || c.to.asked() != 1 {
				t.Errorf("%s of %s in Do: %v, or asked elsewhere", kind, c.limit, err)
			}
		}
		if _, err := store.KeyTimes(t.Context(), w.store, take(c.limit)); !errors.Is(err, store.ErrNoKeyTimes) || c.to.asked() != 1 {
			t.Errorf("the times of a key: %v, or asked elsewhere", err)
		}
		if n := w.us.asked() + w.eu.asked() + w.ap.asked(); n > 0 {
			t.Errorf("%s: %d calls elsewhere", c.limit, n)
		}
	}
}

// If one region refuses, the others give back what they took, and answer as Peek does.
func TestAllOrNothingInSeveralRegions(t *testing.T) {
	w := newWorld(t, false)
	here := take(headgate.PerDay(10).WithAlgorithm(store.FixedWindow))
	there, far := take(home("eu", headgate.PerDay(2).WithAlgorithm(store.SlidingLog))), take(home("ap", headgate.PerDay(5)))
	slot := take(headgate.Concurrent(3))
	for i, want := range []struct {
		allowed             bool
		here, eu, ap, slots int64
	}{{true, 9, 1, 4, 2}, {true, 8, 0, 3, 1}, {false, 8, 0, 3, 1}} {
		out, err := w.do(store.AllOrNothing, here, there, far, slot)
		if err != nil {
			t.Fatal(err)
		}
		if all := out[0].Allowed && out[1].Allowed && out[2].Allowed && out[3].Allowed; all != want.allowed || !out[0].Allowed {
			t.Errorf("request %d: %v", i, out)
		}
		if out[0].Remaining != want.here || out[1].Remaining != want.eu || out[2].Remaining != want.ap || out[3].Remaining != want.slots {
			t.Errorf("request %d: %d, %d, %d and %d remain, want %+v", i, out[0].Remaining, out[1].Remaining, out[2].Remaining, out[3].Remaining, want)
		}
		if got := w.left(w.us, here); got != want.here {
			t.Errorf("request %d: %d left here", i, got)
		}
		if got := w.left(w.ap, far); got != want.ap {
			t.Errorf("request %d: %d left in ap", i, got)
		}
		if got := w.left(w.us, slot); got != want.slots {
			t.Errorf("request %d: %d slots left", i, got)
		}
		if !want.allowed && (out[0].Granted != 0 || out[2].Granted != 0 || out[3].Lease != 0) {
			t.Errorf("request %d: something is granted: %v", i, out)
		}
	}
}

// A value that a refused request has shown here stays: another request has passed with
// it at no cost, so without it more values would pass than the limit.
func TestValuesOfRefusedRequestsStay(t *testing.T) {
	w := newWorld(t, false)
	shown, refuses := take(headgate.PerDay(2).WithAlgorithm(store.Distinct)), take(home("eu", headgate.PerDay(0)))
	admitted := 0
	for member := range uint64(5) {
		shown.Member = 1 + member
		b := store.Batch{
			Ops: []store.Op{shown, refuses, shown}, Out: make([]store.Decision, 3),
			Groups: []store.Group{{Ops: 2, Mode: store.AllOrNothing}, {Ops: 1, Mode: store.AllOrNothing}},
		}
		w.store.Do(t.Context(), &b)
		if b.Groups[0].Err != nil || b.Groups[1].Err != nil || b.Out[1].Allowed || b.Out[0].Granted != 0 {
			t.Fatalf("%+v, %+v", b.Groups, b.Out)
		}
		if b.Out[2].Allowed {
			admitted++
		}
	}
	if admitted != 2 {
		t.Errorf("%d values were admitted, want 2", admitted)
	}
}

// Requests that other regions refuse leave a queue as it was, whatever they are and in
// whichever region it is: a place in the middle could not be given back.
func TestRefusedRequestsFillNoQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, false)
		queue := headgate.PerMinute(60).WithAlgorithm(store.LeakyBucket).WithBurst(100)
		in := rapid.SampledFrom([]string{"us", "eu"}).Draw(rt, "queue in")
		line := take(home(in, queue))
		other := take(home(rapid.SampledFrom([]string{"us", "eu", "ap"}).Draw(rt, "other in"), headgate.PerDay(9).WithAlgorithm(store.FixedWindow)))
		none := take(home(rapid.SampledFrom([]string{"us", "eu", "ap"}).Draw(rt, "refused in"), headgate.PerDay(0)))
		for range rapid.IntRange(1, 5).Draw(rt, "batches") {
			b := new(store.Batch)
			for range rapid.IntRange(1, 9).Draw(rt, "requests") {
				line.Cost = rapid.Int64Range(1, 3).Draw(rt, "cost")
				ops := rapid.Permutation([]store.Op{line, other, none}).Draw(rt, "ops")
				b.Ops, b.Groups = append(b.Ops, ops...), append(b.Groups, store.Group{Ops: 3, Mode: store.AllOrNothing})
			}
			b.Out = make([]store.Decision, len(b.Ops))
			w.store.Do(t.Context(), b)
			for i, op := range b.Ops {
				if d := &b.Out[i]; d.Allowed != (op.Rule != none.Rule) || d.Granted != 0 || b.Groups[i/3].Err != nil {
					rt.Fatalf("op %d: %+v, %v", i, d, b.Groups[i/3].Err)
				}
			}
		}
		line.Cost = 1
		if d, err := store.Execute(t.Context(), w.store, line); err != nil || d.Delay != 0 || d.Remaining != 99 {
			rt.Errorf("the next one: %+v, %v", d, err)
		}
	})
}

// Requests that only other regions refuse count as refused nowhere, whatever comes together
// and in whichever region the limit is that counts refusals.
func TestOthersRefusalsAreNotCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, false)
		region := func(of string) string { return rapid.SampledFrom([]string{"us", "eu", "ap"}).Draw(rt, of+" in") }
		algorithm := rapid.SampledFrom([]headgate.Algorithm{store.FixedWindow, store.SlidingLog, store.SlidingWindow, store.SlidingBuckets}).Draw(rt, "algorithm")
		counting := take(home(region("counting"), headgate.PerHour(5).WithAlgorithm(algorithm).WithRefusalsCounted()))
		other := take(home(region("other"), headgate.PerDay(9).WithAlgorithm(store.FixedWindow)))
		none := take(home(region("refused"), headgate.PerDay(0)))
		for range rapid.IntRange(1, 5).Draw(rt, "batches") {
			b := new(store.Batch)
			for range rapid.IntRange(1, 9).Draw(rt, "requests") {
				counting.Cost = rapid.Int64Range(1, 3).Draw(rt, "cost")
				ops := rapid.Permutation([]store.Op{counting, other, none}).Draw(rt, "ops")
				b.Ops, b.Groups = append(b.Ops, ops...), append(b.Groups, store.Group{Ops: 3, Mode: store.AllOrNothing})
			}
			b.Out = make([]store.Decision, len(b.Ops))
			w.store.Do(t.Context(), b)
			for i, op := range b.Ops {
				if d := &b.Out[i]; op.Rule == counting.Rule && !d.Allowed || d.Granted != 0 || b.Groups[i/3].Err != nil {
					rt.Fatalf("op %d: %+v, %v", i, d, b.Groups[i/3].Err)
				}
			}
		}
		counting.Cost = 5
		if d, err := store.Execute(t.Context(), w.store, counting); err != nil || !d.Allowed {
			rt.Errorf("the next one: %+v, %v", d, err)
		}
	})
}

// A request with a queue in this region, or a limit that counts refusals, peeks at it first;
// one with these in its only home asks no more often than others. Either takes once.
func TestQueuesTakeLast(t *testing.T) {
	queue, window := headgate.PerMinute(60).WithAlgorithm(store.LeakyBucket).WithBurst(9), headgate.PerDay(9).WithAlgorithm(store.FixedWindow)
	counting := window.WithRefusalsCounted()
	for _, c := range []struct {
		here, there headgate.Limit
		us, eu      int // calls
	}{
		{queue, window, 2, 1},
		{window, queue, 1, 1},
		{queue, queue, 2, 2},
		{window, window, 1, 1},
		{counting, window, 2, 1},
		{window, counting, 1, 1},
		{counting, counting, 2, 2},
		{counting, queue, 2, 2},
	} {
		w := newWorld(t, false)
		here, there := take(c.here), take(home("eu", c.there))
		for i := range int64(9) {
			out, err := w.do(store.AllOrNothing, here, there)
			if err != nil || !out[0].Allowed || !out[1].Allowed || out[0].Granted != 1 || out[1].Granted != 1 || out[0].Remaining != 8-i || out[1].Remaining != 8-i {
				t.Fatalf("%s and %s, request %d: %+v, %v", c.here, c.there, i, out, err)
			}
			if us, eu := w.us.asked(), w.eu.asked(); us != c.us || eu != c.eu {
				t.Errorf("%s and %s: %d calls here and %d there, want %d and %d", c.here, c.there, us, eu, c.us, c.eu)
			}
		}
		if out, err := w.do(store.AllOrNothing, here, there); err != nil || out[0].Allowed {
			t.Errorf("%s and %s: the tenth: %+v, %v", c.here, c.there, out, err)
		}
	}
}

// Requests that race for the last places of a small queue leave no places in a large one
// that nobody uses, wherever the two are.
func TestRacesForASmallQueue(t *testing.T) {
	small, large := headgate.PerDay(30).WithAlgorithm(store.LeakyBucket).WithBurst(5), headgate.PerDay(1000).WithAlgorithm(store.LeakyBucket)
	for _, regions := range [][2]string{{"us", "eu"}, {"eu", "us"}, {"eu", "ap"}, {"ap", "eu"}} {
		w := newWorld(t, false)
		ops := []store.Op{take(home(regions[0], small)), take(home(regions[1], large))}
		var admitted atomic.Int64
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				for range 20 {
					out := make([]store.Decision, 2)
					if err := store.ExecuteAll(t.Context(), w.store, ops, out, store.AllOrNothing); err != nil {
						t.Error(err)
					}
					if out[0].Allowed && out[1].Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wait.Wait()
		ops[1].Kind = store.KindPeek
		d, err := store.Execute(t.Context(), w.store, ops[1])
		if used := 1000 - d.Remaining; err != nil || admitted.Load() != 5 || used != 5 {
			t.Errorf("%v: %d admitted, %d places used: %v", regions, admitted.Load(), used, err)
		}
	}
}

// A refusal that counts does so also where a queue is only peeked at.
func TestRefusalsCountBeforeAQueue(t *testing.T) {
	w := newWorld(t, false)
	line := take(headgate.PerMinute(60).WithAlgorithm(store.LeakyBucket).WithBurst(100))
	counting := take(headgate.PerDay(1).WithAlgorithm(store.SlidingLog).WithRefusalsCounted())
	there := take(home("eu", headgate.PerDay(9)))
	for i, want := range []time.Duration{0, 24 * time.Hour} {
		at := int64(at) + int64(i)*10*time.Hour.Microseconds()
		line.At, counting.At, there.At = at, at, at
		out, err := w.do(store.AllOrNothing, line, counting, there)
		if err != nil || out[1].RetryAfter != want || out[1].Allowed != (i == 0) || out[0].Granted != int64(1-i) {
			t.Errorf("request %d: %+v, %v", i, out, err)
		}
	}
}

// The own region is asked first: what it refuses takes nothing elsewhere, not even for a
// moment.
func TestRefusedHereTakesNothingThere(t *testing.T) {
	w := newWorld(t, false)
	here, there := take(headgate.PerDay(0)), take(home("eu", headgate.PerDay(2)))
	out, err := w.do(store.AllOrNothing, there, here)
	if err != nil || !out[0].Allowed || out[0].Remaining != 2 || out[0].Granted != 0 || out[1].Allowed {
		t.Errorf("%v, %v", out, err)
	}
	if n := w.eu.asked(); n != 1 || w.eu.ops[0].Kind != store.KindPeek {
		t.Errorf("eu was asked %d times, with %s", n, w.eu.ops[0].Kind)
	}
}

// What cannot be undone is refused before anything is written, as is an invalid op.
func TestWhatCannotBeUndone(t *testing.T) {
	w := newWorld(t, false)
	here, there := take(headgate.PerDay(9)), take(home("eu", headgate.PerDay(9)))
	for _, kind := range []store.Kind{store.KindRefund, store.KindGrant, store.KindReset, store.KindRelease, store.KindRenew, store.KindDraw} {
		there.Kind = kind
		if _, err := w.do(store.AllOrNothing, here, there); !errors.Is(err, store.ErrCrossSlot) || !strings.Contains(err.Error(), kind.String()) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	there.Kind, there.Cost = store.KindTake, -1
	for _, mode := range []store.Mode{store.AllOrNothing, store.Independent} {
		if _, err := w.do(mode, here, there); !errors.Is(err, store.ErrInvalidCost) {
			t.Errorf("an invalid op: %v", err)
		}
	}
	if n := w.us.asked() + w.eu.asked(); n != 0 {
		t.Errorf("%d calls", n)
	}
	if err := store.ExecuteAll(t.Context(), w.store, []store.Op{here, there}, nil, store.Independent); err == nil {
		t.Error("there is no room for decisions")
	}
}

var errDown = errors.Join(store.ErrUnavailable, errors.New("the cable is cut"))

// A home that does not answer: a call about several regions fails and gives back what it
// took, or says which ops failed.
func TestHomeIsCutOff(t *testing.T) {
	here, there, far := take(headgate.PerDay(9)), take(home("eu", headgate.PerDay(9))), take(home("ap", headgate.PerDay(9)))
	for _, partial := range []bool{false, true} {
		w := newWorld(t, partial)
		w.eu.down = errDown
		if d, err := store.Execute(t.Context(), w.store, here); err != nil || d.Remaining != 8 {
			t.Errorf("here: %v, %v", d, err)
		}
		if _, err := store.Execute(t.Context(), w.store, there); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("there: %v", err)
		}
		out, err := w.do(store.AllOrNothing, here, there, far)
		part, is := errors.AsType[*store.PartError](err)
		if !errors.Is(err, errDown) || is != partial {
			t.Errorf("partial %v: %v", partial, err)
		}
		for i, failed := range []bool{!partial, true, !partial} {
			if store.Failed(err, i) != failed {
				t.Errorf("partial %v: op %d failed: %v; %+v", partial, i, !failed, part)
			}
		}
		want := int64(8)
		if partial {
			if want = 7; !out[0].Allowed || out[0].Granted != 1 || !out[2].Allowed {
				t.Errorf("the rest: %v", out)
			}
		}
		if left := w.left(w.us, here); left != want {
			t.Errorf("partial %v: %d left here, want %d", partial, left, want)
		}
		if left := w.left(w.ap, far); left != want+1 {
			t.Errorf("partial %v: %d left in ap, want %d", partial, left, want+1)
		}
		if _, err = w.do(store.Independent, there, here); store.Failed(err, 1) == partial || !store.Failed(err, 0) {
			t.Errorf("partial %v, independent: %v", partial, err)
		}
	}
}

// A refusal gives back what others took, even if a home does not answer.
func TestCutOffAndRefused(t *testing.T) {
	w := newWorld(t, true)
	w.eu.down = errDown
	here, there, none := take(headgate.PerDay(9)), take(home("eu", headgate.PerDay(9))), take(home("ap", headgate.PerDay(0)))
	out, err := w.do(store.AllOrNothing, here, there, none)
	if !store.Failed(err, 1) || store.Failed(err, 0) || store.Failed(err, 2) || out[2].Allowed || out[0].Granted != 0 || w.left(w.us, here) != 9 {
		t.Errorf("%v, %v; %d left here", out, err, w.left(w.us, here))
	}
}

// A pipeline asks every region once, all of them at the same time, and answers each group.
func TestPipelineAsksEveryRegionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.eu.hold, w.ap.hold = make(chan struct{}), make(chan struct{})
		time.AfterFunc(time.Second, func() { close(w.eu.hold); close(w.ap.hold) })
		here, there, far := take(headgate.PerDay(9)), take(home("eu", headgate.PerDay(9))), take(home("ap", headgate.PerDay(9)))
		ops := []store.Op{here, there, here, there, far, take(home("mars", headgate.PerDay(9))), here}
		groups := []store.Group{{Ops: 1}, {Ops: 1}, {Ops: 3, Mode: store.AllOrNothing}, {Ops: 1}, {Ops: 1}}
		out, began := make([]store.Decision, len(ops)), time.Now()
		w.store.Do(t.Context(), &store.Batch{Ops: ops, Out: out, Groups: groups})
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %s", took)
		}
		for i := range groups {
			switch {
			case i == 3:
				if !errors.Is(groups[i].Err, store.ErrNotSent) || !strings.Contains(groups[i].Err.Error(), `"mars"`) {
					t.Errorf("an unknown home: %v", groups[i].Err)
				}
			case groups[i].Err != nil:
				t.Errorf("group %d: %v", i, groups[i].Err)
			}
		}
		for i, want := range []int64{8, 8, 7, 7, 8, 0, 6} {
			if i == 3 || i == 1 { // two calls at the same time
				continue
			}
			if out[i].Remaining != want {
				t.Errorf("op %d: %d remain, want %d", i, out[i].Remaining, want)
			}
		}
		if out[1].Remaining+out[3].Remaining != 15 {
			t.Errorf("%d and %d remain in eu", out[1].Remaining, out[3].Remaining)
		}
	})
}

// TestOptions: what New refuses.
func TestOptions(t *testing.T) {
	own, other := memory.New(), memory.New()
	var none *memory.Store
	for name, c := range map[string]struct {
		own store.Store
		o   homes.Options
	}{
		"no store":            {nil, homes.Options{Region: "us"}},
		"no region":           {own, homes.Options{}},
		"itself":              {own, homes.Options{Region: "us", Homes: map[string]store.Store{"us": other}}},
		"no name":             {own, homes.Options{Region: "us", Homes: map[string]store.Store{"": other}}},
		"no store of another": {own, homes.Options{Region: "us", Homes: map[string]store.Store{"eu": none}}},
	} {
		if _, err := homes.New(c.own, c.o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A home whose answer is not about its reach, such as that it cannot take two keys in one
// step, has no part that could be used: all is given back, also with Partial.
func TestAHomeCannotDoIt(t *testing.T) {
	for _, partial := range []bool{false, true} {
		w := newWorld(t, partial)
		w.eu.down = store.ErrCrossSlot
		here, there, far := take(headgate.PerDay(9)), take(home("eu", headgate.PerDay(9))), take(home("ap", headgate.PerDay(9)))
		if _, err := w.do(store.AllOrNothing, here, there, far); !errors.Is(err, store.ErrCrossSlot) || !store.Failed(err, 0) {
			t.Errorf("partial %v: %v", partial, err)
		}
		if own, away := w.left(w.us, here), w.left(w.ap, far); own != 9 || away != 9 {
			t.Errorf("partial %v: %d left here, %d in ap", partial, own, away)
		}
	}
}
