package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/homes"
	"github.com/headgate/headgate/store/memory"
)

const homeRules = `
domain: api
limits:
  - {name: here, key: [user], rate: 5/day, algorithm: fixed_window}
  - {name: slots, key: [user], concurrency: 9, match: {path: "/slots/**"}}
  - {name: watched, key: [user], mode: shadow, rate: 3/day, algorithm: fixed_window}
  - {name: open, key: [user], match: {path: "/**/open"}, rate: 3/day, algorithm: sliding_log, regions: {home: eu}}
  - {name: closed, key: [user], match: {path: "/**/closed"}, rate: 3/day, algorithm: sliding_log, regions: {home: eu}, on_store_error: deny}
  - {name: local, key: [user], match: {path: "/**/local"}, rate: 4/day, algorithm: sliding_log, regions: {home: eu}, on_store_error: {policy: local, share: 0.5}}
`

// home is an engine in us with rules that eu counts.
type home struct {
	*engine.Engine
	us, eu *counted
}

func atHome(t *testing.T) home {
	t.Helper()
	h := home{us: &counted{Store: memory.New()}, eu: &counted{Store: memory.New()}}
	store, err := homes.New(h.us, homes.Options{Region: "us", Homes: map[string]store.Store{"eu": h.eu}, Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	h.Engine = engine.New(store, parse(t, homeRules), engine.WithFallback(memory.New()), engine.WithSecret(shared))
	return h
}

// remaining returns what remains of a rule after a request.
func remaining(v *engine.Verdict, rule string) store.Decision {
	for _, r := range v.Results() {
		if r.Rule.Name == rule {
			return r.Decision
		}
	}
	return store.Decision{Remaining: -1}
}

// While a home is cut off, its rules answer as their on_store_error says, and all others
// count as ever; what these took for a request that is then refused is given back.
func TestAHomeIsCutOff(t *testing.T) {
	for path, rows := range map[string][]struct {
		allowed         bool
		here, slots     int64 // left
		watched, reason headgate.Reason
	}{
		"/slots/open":   {{true, 4, 8, headgate.ReasonOK, headgate.ReasonFailOpen}, {true, 3, 7, headgate.ReasonOK, headgate.ReasonFailOpen}, {true, 2, 6, headgate.ReasonOK, headgate.ReasonFailOpen}, {true, 1, 5, store.ReasonShadow, headgate.ReasonFailOpen}, {true, 0, 4, store.ReasonShadow, headgate.ReasonFailOpen}, {false, 0, 4, store.ReasonShadow, headgate.ReasonFailOpen}},
		"/slots/closed": {{false, 5, 9, headgate.ReasonOK, headgate.ReasonFailClosed}, {false, 5, 9, headgate.ReasonOK, headgate.ReasonFailClosed}},
		"/slots/local":  {{true, 4, 8, headgate.ReasonOK, headgate.ReasonFallback}, {true, 3, 7, headgate.ReasonOK, headgate.ReasonFallback}, {false, 3, 7, headgate.ReasonOK, headgate.ReasonFallback}, {false, 3, 7, headgate.ReasonOK, headgate.ReasonFallback}},
	} {
		h := atHome(t)
		h.eu.down = true
		for i, row := range rows {
			q := query1(path, 0)
			q.Endless = false
			v, err := h.Decide(t.Context(), q)
			if !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s: %v", path, err)
			}
			away := remaining(&v, path[len("/slots/"):])
			if v.Allowed != row.allowed || remaining(&v, "here").Remaining != row.here || remaining(&v, "slots").Remaining != row.slots || away.Reason != row.reason {
				t.Errorf("%s, request %d: %v, here %+v, slots %+v, there %+v", path, i, v.Allowed, remaining(&v, "here"), remaining(&v, "slots"), away)
			}
			if got := remaining(&v, "watched").Reason; row.allowed && got != row.watched {
				t.Errorf("%s, request %d: the rule that observes says %s, want %s", path, i, got, row.watched)
			}
			v.Release()
		}
		h.eu.down = false
		v := decide(t, h.Engine, query1(path, 1))
		last := rows[len(rows)-1]
		if got := remaining(&v, "here").Remaining; got != max(last.here-1, 0) {
			t.Errorf("%s, healed: %d left here", path, got)
		}
		v.Release()
	}
}

// A batch is answered as single requests are.
func TestABatchWhileAHomeIsCutOff(t *testing.T) {
	h := atHome(t)
	h.eu.down = true
	paths := []string{"/x/open", "/x/closed", "/x/local", "/x"}
	want := []bool{true, false, true, true}
	h.DecideBatch(t.Context(), len(paths), func(i int) engine.Query { return query1(paths[i], 0) }, func(i int, v *engine.Verdict, err error) {
		if v.Allowed != want[i] || (err == nil) != (i == 3) {
			t.Errorf("%s: %v, %v", paths[i], v.Allowed, err)
		}
	})
	h.eu.down = false
	v := decide(t, h.Engine, query1("/x", 0))
	if got := remaining(&v, "here").Remaining; got != 1 { // three passed, and this one
		t.Errorf("%d left here", got)
	}
}

// Reservations and costs that are known afterwards are settled where they were counted.
func TestReservationsAreSettledAtHome(t *testing.T) {
	h := atHome(t)
	for i := range 5 {
		v, token, err := h.Reserve(t.Context(), query1("/x/open", 0), engine.DefaultReservation)
		if err != nil || !v.Allowed {
			t.Fatalf("reservation %d: %v, %v", i, v.Allowed, err)
		}
		v.Release()
		if s, err := h.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != engine.Done || len(s.Lost) > 0 {
			t.Errorf("reservation %d: %+v, %v", i, s, err)
		}
		if s, err := h.Cancel(t.Context(), token, at(1)); err != nil || s.Ending != engine.Settled {
			t.Errorf("reservation %d, again: %+v, %v", i, s, err)
		}
	}
	v := decide(t, h.Engine, query1("/x/open", 3))
	if here, there := remaining(&v, "here").Remaining, remaining(&v, "open").Remaining; here != 4 || there != 2 {
		t.Errorf("%d and %d remain", here, there)
	}
	if err := h.Refund(t.Context(), &v, at(3)); err != nil {
		t.Error(err)
	}
	v.Release()
	v = decide(t, h.Engine, query1("/x/open", 3))
	if here, there := remaining(&v, "here").Remaining, remaining(&v, "open").Remaining; here != 4 || there != 2 {
		t.Errorf("%d and %d remain after Undo", here, there)
	}
}

// Two limits count one key, one of them in its home. Both are settled: in the home, in another region,
// and where there are no regions.
func TestBothAreSettledInTheHome(t *testing.T) {
	const limits = `
domain: api
limits:
  - {name: here, key: [user], rate: 1000/hour, algorithm: fixed_window}
  - {name: there, key: [user], rate: 1000/day, algorithm: fixed_window, regions: {home: eu}}
`
	for name, region := range map[string]string{"home": "eu", "elsewhere": "us", "no regions": ""} {
		t.Run(name, func(t *testing.T) {
			var counts store.Store = memory.New()
			if region != "" {
				others := map[string]store.Store{"eu": memory.New()}
				if region == "eu" {
					others = map[string]store.Store{"us": memory.New()}
				}
				s, err := homes.New(counts, homes.Options{Region: region, Homes: others, Partial: true})
				if err != nil {
					t.Fatal(err)
				}
				counts = s
			}
			e := engine.New(counts, parse(t, limits), engine.WithSecret(shared))
			used := int64(0)
			for i, cost := range []int64{300, 0, 20, 50} {
				q := query1("/x", 0)
				q.Cost = 20
				v, token, err := e.Reserve(t.Context(), q, time.Hour)
				if err != nil || !v.Allowed {
					t.Fatal(v.Decision, err)
				}
				v.Release()
				used += cost
				for again := range 2 {
					s, err := e.Commit(t.Context(), token, cost, at(1))
					if want := []engine.Ending{engine.Done, engine.Settled}[again]; err != nil || s.Ending != want || len(s.Lost) > 0 {
						t.Errorf("%d, %d: %+v, %v", i, again, s, err)
					}
				}
				q.Kind, q.Cost = store.KindPeek, 1
				v = decide(t, e, q)
				for _, r := range v.Results() {
					if got := 1000 - r.Decision.Remaining; got != used {
						t.Errorf("%d: %s has used %d, want %d", i, r.Rule.Name, got, used)
					}
				}
				v.Release()
			}
		})
	}
}
