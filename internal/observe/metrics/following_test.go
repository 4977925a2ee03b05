package metrics_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/observe/timeline"
)

const followedRules = "domain: api\nlimits: [{name: user, key: user, rate: 5/hour}]\n"

// following returns a fixture that follows the keys of users.
func following(t testing.TB, users ...string) (*fixture, *timeline.Book) {
	t.Helper()
	book := timeline.New()
	f := newFixture(t, followedRules, func(o *metrics.Options) { o.Timelines = book })
	for _, user := range users {
		if _, err := book.Follow(idOf(user), f.now); err != nil {
			t.Fatal(err)
		}
	}
	return f, book
}

func idOf(user string) timeline.ID {
	return timeline.ID{Scope: "api/user", Key: string(headgate.AppendKeyPart(nil, user))}
}

// Peeks and dry runs are no requests; all others are in the timeline of their key.
func TestFollowedRequests(t *testing.T) {
	f, book := following(t, "ann")
	for range 7 {
		f.ask(t, "/", "ann")
		f.ask(t, "/", "bob")
	}
	f.ask(t, "/", "ann", func(q *engine.Query) { q.Kind = headgate.Peek })
	f.ask(t, "/", "ann", func(q *engine.Query) { q.Cost = 0 })
	got, _ := book.Read(idOf("ann"), 0, f.now)
	want := timeline.Second{T: f.now.Unix(), Allowed: 5, Refused: 2, Cost: 5}
	if len(got.Seconds) != 1 || got.Seconds[0] != want || got.Limit != 5 {
		t.Errorf("%+v", got)
	}
}

// A followed key costs no allocation.
func TestFollowingAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	per := func(users ...string) float64 {
		f, _ := following(t, users...)
		return testing.AllocsPerRun(1000, func() { f.ask(t, "/", "ann") })
	}
	if without, with := per(), per("ann", "bob"); with > without {
		t.Errorf("%v allocations without, %v with", without, with)
	}
}

// BenchmarkFollowing is a decision in memory while no key, another and its own are
// followed.
func BenchmarkFollowing(b *testing.B) {
	for name, users := range map[string][]string{"none": nil, "other": {"bob"}, "own": {"ann"}} {
		b.Run(name, func(b *testing.B) {
			f, _ := following(b, users...)
			b.ReportAllocs()
			for b.Loop() {
				f.ask(b, "/", "ann")
			}
		})
	}
}
