package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const hidden = `
domain: api
limits:
  - {name: all, rate: 5/minute, algorithm: fixed_window, anchor: first_request}
  - {name: secret, key: [user], rate: 2/minute, algorithm: fixed_window, anchor: first_request, on_limit: shadow_ban}
  - {name: user, key: [user], rate: 4/minute, algorithm: fixed_window, anchor: first_request}
  - {name: busy, key: [user], concurrency: 3}
  - {name: seen, key: [user], rate: 1/minute, algorithm: fixed_window, anchor: first_request, mode: shadow}
`

// step is one request and what its client sees of the answer.
type step struct {
	user    string
	kind    store.Kind
	outcome engine.Outcome
	rule    string // the one that refused; empty if none
	all     int64  // left of the limit shared by all users
	own     int64  // left of the limit that counts the user
}

func (s step) check(t *testing.T, e *engine.Engine, i int) {
	t.Helper()
	q := ask(user(s.user), float64(i)/1000)
	q.Kind = s.kind
	v := decide(t, e, q)
	defer v.Release()
	refused := ""
	if !v.Allowed {
		refused = v.Rule.Name
	}
	if v.Outcome() != s.outcome || refused != s.rule {
		t.Errorf("request %d: %s by %q, want %s by %q", i, v.Outcome(), refused, s.outcome, s.rule)
	}
	left := map[string]int64{}
	for _, r := range v.Results() {
		left[r.Rule.Name] = r.Decision.Remaining
	}
	if left["all"] != s.all || left["user"] != s.own {
		t.Errorf("request %d: %d and %d left of the limits that show, want %d and %d", i, left["all"], left["user"], s.all, s.own)
	}
	if busy := left["busy"]; s.outcome != engine.Refused && s.kind == store.KindTake && busy != 2 {
		t.Errorf("request %d: %d places left, want 2 as of every request by itself", i, busy)
	}
	if _, err := e.ReleaseLeases(t.Context(), v.Leases(nil), q.At); err != nil {
		t.Fatal(err)
	}
}

// A client that only a hidden rule has refused sees its other limits count, and is
// refused by them, as if the request had passed.
func TestHiddenRefusalCountsWhereItShows(t *testing.T) {
	e := engine.New(memory.New(), parse(t, hidden))
	for i, s := range []step{
		{"ann", store.KindTake, engine.Allowed, "", 4, 3},
		{"ann", store.KindTake, engine.ShadowRefused, "", 3, 2},
		{"ann", store.KindPeek, engine.ShadowBanned, "secret", 3, 2}, // takes nothing
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 2, 1},
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 1, 0},
		{"ann", store.KindTake, engine.Refused, "user", 1, 0}, // refused by a visible rule: nothing is charged
		{"bob", store.KindTake, engine.Allowed, "", 0, 3},
		{"bob", store.KindTake, engine.Refused, "all", 0, 3},
	} {
		s.check(t, e, i)
	}
}

// The same for a key banned by an operator, where the ban itself needs no store call.
func TestHiddenBanCountsWhereItShows(t *testing.T) {
	rs := parse(t, hidden)
	db := &downable{Store: memory.New()}
	e := engine.New(db, rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{banned(rs, "secret", "ann", 60)}, at(0)))
	for i, s := range []step{
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 4, 3},
		{"ann", store.KindPeek, engine.ShadowBanned, "secret", 4, 3},
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 3, 2},
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 2, 1},
		{"ann", store.KindTake, engine.ShadowBanned, "secret", 1, 0},
		{"ann", store.KindTake, engine.Refused, "user", 1, 0},
	} {
		s.check(t, e, i)
	}
	// The results are in the order of the rules, as for other requests.
	v := decide(t, e, ask(user("ann"), 61))
	var names []string
	for _, r := range v.Results() {
		names = append(names, r.Rule.Name)
	}
	if want := []string{"all", "secret", "user", "busy", "seen"}; !slices.Equal(names, want) {
		t.Errorf("after the ban: %v, want %v", names, want)
	}
	v.Release()
	v = decide(t, e, ask(user("ann"), 59))
	names = names[:0]
	for _, r := range v.Results() {
		names = append(names, r.Rule.Name)
	}
	if want := []string{"all", "secret", "user", "busy"}; !slices.Equal(names, want) {
		t.Errorf("under the ban: %v, want %v", names, want)
	}
	// Even if the store is down, the ban is active and hidden.
	db.fails = true
	v, err := e.Decide(t.Context(), ask(user("ann"), 1))
	if err == nil || v.Outcome() != engine.ShadowBanned {
		t.Errorf("store down: %s, %v", v.Outcome(), err)
	}
}

// A visible ban charges no other limits, even if there is a hidden one as well.
func TestToldBanChargesNobody(t *testing.T) {
	rs := parse(t, hidden)
	e := engine.New(memory.New(), rs)
	e.SetExceptions(engine.NewExceptions([]engine.Exception{
		banned(rs, "secret", "ann", 60), banned(rs, "user", "ann", 60),
	}, at(0)))
	for range 9 {
		v := decide(t, e, ask(user("ann"), 0))
		if v.Outcome() != engine.Refused || v.Rule.Name != "user" || v.Decision.RetryAfter != time.Minute || len(v.Results()) != 2 {
			t.Errorf("%s by %s, %d results", v.Outcome(), v.Rule.Name, len(v.Results()))
		}
		v.Release()
	}
	e.SetExceptions(nil)
	step{"ann", store.KindTake, engine.Allowed, "", 4, 3}.check(t, e, 0)
}
