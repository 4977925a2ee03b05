package timeline_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/observe/timeline"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// sample is a request after a time.
func sample(after time.Duration, refused bool, remaining int64) *timeline.Sample {
	s := &timeline.Sample{At: begin.Add(after).UnixMicro(), Refused: refused, Remaining: remaining, Limit: 10}
	if !refused {
		s.Cost = 2
	}
	return s
}

func TestTimelineTrace(t *testing.T) {
	b, ann := timeline.New(), timeline.ID{Scope: "api/login", Key: "ann"}
	b.Add(ann.Scope, ann.Key, sample(0, false, 9)) // nobody follows it yet
	if started, err := b.Follow(ann, begin); !started || err != nil || !b.Follows() {
		t.Fatal(started, err)
	}
	for _, s := range []*timeline.Sample{
		sample(0, false, 4), sample(time.Millisecond, false, 2), sample(900*time.Millisecond, true, 1),
		sample(3*time.Second, true, timeline.Unknown), sample(3*time.Second, false, 7), sample(2*time.Second, false, 5),
	} {
		b.Add(ann.Scope, ann.Key, s)
	}
	b.Add("api/other", ann.Key, sample(0, false, 0))
	b.Add(ann.Scope, "bob", sample(0, false, 0))
	first := begin.Unix()
	want := timeline.Timeline{Since: first, Limit: 10, Seconds: []timeline.Second{
		{T: first, Allowed: 2, Refused: 1, Cost: 4, Low: 1},
		{T: first + 2, Allowed: 1, Cost: 2, Low: 5},
		{T: first + 3, Allowed: 1, Refused: 1, Cost: 2, Low: 7},
	}}
	got, ok := b.Read(ann, 0, begin.Add(4*time.Second))
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v %s", ok, diff)
	}
	if got, _ := b.Read(ann, first+3, begin.Add(4*time.Second)); len(got.Seconds) != 1 || got.Seconds[0].T != first+3 {
		t.Errorf("%+v", got)
	}
	// After an hour the first second is gone, also without another request.
	if got, _ := b.Read(ann, 0, begin.Add(time.Hour)); len(got.Seconds) != 2 || got.Seconds[0].T != first+2 {
		t.Errorf("%+v", got)
	}
	b.Add(ann.Scope, ann.Key, sample(time.Hour+2*time.Second, false, 3))
	b.Add(ann.Scope, ann.Key, sample(time.Second, false, 1)) // too late for the hour
	if got, _ := b.Read(ann, 0, begin.Add(time.Hour+2*time.Second)); len(got.Seconds) != 2 || got.Seconds[1].Low != 3 {
		t.Errorf("%+v", got)
	}
	if !b.Stop(ann) || b.Stop(ann) || b.Follows() {
		t.Error("it is still followed")
	}
	if _, ok := b.Read(ann, 0, begin); ok {
		t.Error("it can still be read")
	}
}

// The timeline of random requests is that of a list of them all.
func TestTimelineAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b, id := timeline.New(), timeline.ID{Scope: "s", Key: "k"}
	if _, err := b.Follow(id, begin); err != nil {
		t.Fatal(err)
	}
	want, now := map[int64]*timeline.Second{}, begin
	for range 20_000 {
		if r.IntN(3) == 0 {
			now = now.Add(time.Duration(r.Int64N(int64(5 * time.Second))))
		}
		s := &timeline.Sample{At: now.UnixMicro(), Refused: r.IntN(3) == 0, Cost: r.Int64N(5), Remaining: r.Int64N(20), Limit: 20}
		b.Add(id.Scope, id.Key, s)
		second := want[now.Unix()]
		if second == nil {
			second = &timeline.Second{T: now.Unix(), Low: s.Remaining}
			want[now.Unix()] = second
		}
		if s.Refused {
			second.Refused++
		} else {
			second.Allowed++
		}
		second.Cost += s.Cost
		second.Low = min(second.Low, s.Remaining)
		if r.IntN(500) > 0 {
			continue
		}
		got, _ := b.Read(id, 0, now)
		listed := 0
		for at := range want {
			if at > now.Unix()-timeline.Spans {
				listed++
			}
		}
		if len(got.Seconds) != listed {
			t.Fatalf("%d seconds, want %d", len(got.Seconds), listed)
		}
		for _, second := range got.Seconds {
			if diff := cmp.Diff(*want[second.T], second); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

func TestKeysGiveWay(t *testing.T) {
	b := timeline.New()
	id := func(i int) timeline.ID { return timeline.ID{Scope: "s", Key: fmt.Sprint(i)} }
	for i := range timeline.Most {
		if _, err := b.Follow(id(i), begin.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if started, err := b.Follow(id(3), begin.Add(time.Minute)); started || err != nil {
		t.Errorf("a key that is followed: %v, %v", started, err)
	}
	later := begin.Add(time.Hour)
	if _, err := b.Follow(id(99), later.Add(-time.Millisecond)); !errors.Is(err, timeline.ErrFull) || err.Error() != "16 keys are followed already: stop one first" {
		t.Errorf("%v", err)
	}
	b.Read(id(0), 0, later.Add(-time.Second))
	if _, err := b.Follow(id(99), later.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	list := b.List(begin)
	for _, f := range list {
		if f.ID == id(1) {
			t.Error("the key that was not looked at is still followed")
		}
	}
	if last := list[len(list)-1]; len(list) != timeline.Most || last.ID != id(99) || !last.Since.Equal(later.Add(time.Second)) {
		t.Errorf("%d, %+v", len(list), last)
	}
	if _, err := b.Follow(timeline.ID{Scope: "s", Key: strings.Repeat("k", 16<<10+1)}, later); err == nil {
		t.Error("a key of any length is kept")
	}
}

// A key that nobody has looked at for a day is no longer followed.
func TestForgottenKeyIsDropped(t *testing.T) {
	b, id := timeline.New(), timeline.ID{Scope: "s", Key: "k"}
	if _, err := b.Follow(id, begin); err != nil {
		t.Fatal(err)
	}
	b.Add("s", "k", sample(timeline.Lasts, false, 1))
	if !b.Follows() {
		t.Error("it was dropped too early")
	}
	b.Add("s", "k", sample(timeline.Lasts+time.Second, false, 1))
	if b.Follows() {
		t.Error("it is still followed")
	}
}

// The memory of all keys is what docs/timeline.md says.
// A key without requests is no longer followed either, once nobody has looked at it for a
// day: it is not listed, costs requests nothing, and has no timeline.
func TestForgottenKeyWithoutRequests(t *testing.T) {
	for name, forgets := range map[string]func(b *timeline.Book, now time.Time) bool{
		"list": func(b *timeline.Book, now time.Time) bool { return len(b.List(now)) == 0 },
		"read": func(b *timeline.Book, now time.Time) bool {
			_, ok := b.Read(timeline.ID{Scope: "s", Key: "k"}, 0, now)
			return !ok
		},
		"follow": func(b *timeline.Book, now time.Time) bool {
			ok, err := b.Follow(timeline.ID{Scope: "s", Key: "k"}, now)
			return ok && err == nil
		},
	} {
		b := timeline.New()
		if _, err := b.Follow(timeline.ID{Scope: "s", Key: "k"}, begin); err != nil {
			t.Fatal(err)
		}
		if len(b.List(begin.Add(timeline.Lasts))) != 1 {
			t.Errorf("%s: forgotten too early", name)
		}
		if !forgets(b, begin.Add(timeline.Lasts+time.Second)) || name != "follow" && b.Follows() {
			t.Errorf("%s: still followed", name)
		}
	}
}

func TestMemoryOfTimelines(t *testing.T) {
	book := reflect.TypeFor[timeline.Book]()
	lines, _ := book.FieldByName("lines")
	if each := lines.Type.Elem().Elem().Size(); each*timeline.Most > 1_400_000 {
		t.Errorf("%d bytes for each key", each)
	}
	if book.Size() > 64 {
		t.Errorf("%d bytes for none", book.Size())
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	b := timeline.New()
	if _, err := b.Follow(timeline.ID{Scope: "s", Key: "k"}, begin); err != nil {
		t.Fatal(err)
	}
	s, i := sample(0, false, 1), int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		i++
		s.At += 300_000
		b.Add("s", "k", s)
		b.Add("s", "other", s)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConcurrentTimelines(t *testing.T) {
	b, id := timeline.New(), timeline.ID{Scope: "s", Key: "k"}
	if _, err := b.Follow(id, begin); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			other := timeline.ID{Scope: "s", Key: fmt.Sprint(i)}
			for j := range 1000 {
				b.Add("s", "k", sample(time.Duration(j)*time.Millisecond, false, 1))
				if j%100 == 0 {
					_, _ = b.Follow(other, begin)
					b.Read(id, 0, begin)
					b.List(begin)
					b.Stop(other)
				}
			}
		})
	}
	group.Wait()
	if got, _ := b.Read(id, 0, begin.Add(time.Second)); len(got.Seconds) != 1 || got.Seconds[0].Allowed != 4000 {
		t.Errorf("%+v", got)
	}
}

// BenchmarkAdd is what a request pays for each limit: nothing followed, another key
// followed, its own key followed.
func BenchmarkAdd(b *testing.B) {
	for name, keys := range map[string][]string{"none": nil, "others": {"a", "b", "c"}, "its-own": {"k"}, "sixteen": strings.Split("k a b c d e f g h i j l m n o p", " ")} {
		b.Run(name, func(b *testing.B) {
			book := timeline.New()
			for _, key := range keys {
				if _, err := book.Follow(timeline.ID{Scope: "s", Key: key}, begin); err != nil {
					b.Fatal(err)
				}
			}
			s := sample(0, false, 1)
			b.ReportAllocs()
			for b.Loop() {
				if book.Follows() {
					book.Add("s", "k", s)
				}
			}
		})
	}
}
