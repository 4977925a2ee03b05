package algorithm

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors")

// The format of testdata/vectors/*.json; the README there explains it.
type (
	vectorFile struct {
		Algorithm string   `json:"algorithm"`
		Vectors   []vector `json:"vectors"`
	}
	vector struct {
		Name  string       `json:"name"`
		Steps []vectorStep `json:"steps"`
	}
	vectorStep struct {
		// Limit and Rule apply to this step and the following ones.
		Limit      *vectorLimit `json:"limit,omitempty"`
		Rule       *vectorRule  `json:"rule,omitempty"`
		AtUS       int64        `json:"at_us"`
		Kind       string       `json:"kind"`
		Cost       int64        `json:"cost"`
		DurationUS int64        `json:"duration_us,omitempty"`
		Lease      int64        `json:"lease,omitempty"`
		// Member is the value of a limit of distinct values. The step is executed Times
		// (or once), each time with the next member: 0x9E3779B97F4A7 more, modulo 2^52.
		// Everything else is that of the last one.
		Member uint64 `json:"member,omitempty"`
		Times  int    `json:"times,omitempty"`
		// Leave is how much of the limit a take or peek must leave, in millionths.
		Leave uint32 `json:"leave,omitempty"`
		// CountsUntilUS is that of the take that a refund returns.
		CountsUntilUS int64 `json:"counts_until_us,omitempty"`
		// Window is the calendar window of at_us. In the caller's own zone the ends of
		// the next two follow.
		Window  []int64     `json:"window,omitempty"`
		Want    vectorWant  `json:"want"`
		FreshAt int64       `json:"fresh_at_us"`
		Wrote   bool        `json:"wrote"`
		State   vectorState `json:"state"`
	}
	vectorLimit struct {
		Algorithm   string          `json:"algorithm"`
		Limit       int64           `json:"limit"`
		PeriodUS    int64           `json:"period_us"`
		Burst       int64           `json:"burst,omitempty"`
		DelayAfter  int64           `json:"delay_after,omitempty"`
		MaxWaitUS   int64           `json:"max_wait_us,omitempty"`
		RefillUS    int64           `json:"refill_every_us,omitempty"`
		Anchor      string          `json:"anchor,omitempty"`
		Calendar    *vectorCalendar `json:"calendar,omitempty"`
		Buckets     int             `json:"buckets,omitempty"`
		Edge        string          `json:"edge,omitempty"`
		CountDenied bool            `json:"count_denied,omitempty"`
	}
	vectorCalendar struct {
		Unit string `json:"unit"`
		Zone string `json:"zone"`
		Own  bool   `json:"own,omitempty"`
	}
	vectorRule struct {
		Limit    int64 `json:"limit"`
		Period   int64 `json:"period"`
		Burst    int64 `json:"burst,omitempty"`
		Token    int64 `json:"token,omitempty"`
		Leak     int64 `json:"leak"`
		Capacity int64 `json:"capacity,omitempty"`
		Free     int64 `json:"free,omitempty"`
		Late     int64 `json:"late,omitempty"`
		Tick     int64 `json:"tick,omitempty"`
		Buckets  int64 `json:"buckets,omitempty"`
	}
	vectorWant struct {
		Allowed      bool   `json:"allowed"`
		Reason       string `json:"reason"`
		Limit        int64  `json:"limit"`
		Remaining    int64  `json:"remaining"`
		Granted      int64  `json:"granted"`
		RetryAfterUS int64  `json:"retry_after_us"`
		ResetAfterUS int64  `json:"reset_after_us"`
		DelayUS      int64  `json:"delay_us"`
		Lease        int64  `json:"lease,omitempty"`

		CountsUntilUS int64 `json:"counts_until_us,omitempty"`
	}
	vectorState struct {
		V      []int64    `json:"v"`
		Log    [][2]int64 `json:"log,omitempty"`
		Counts [][2]int64 `json:"counts,omitempty"`
		// Values are those of a limit of distinct values, if they are few. Chance is how
		// likely another would change the registers, in parts of 2^52.
		Values []uint64 `json:"values,omitempty"`
		Chance uint64   `json:"chance,omitempty"`
		Credit int64    `json:"credit,omitempty"`
		Until  int64    `json:"until,omitempty"`
	}
)

const vectorFolder = "testdata/vectors"

// TestVectors runs the vectors that other implementations also run. With -update it
// writes them again, and also checks each answer with the oracle.
func TestVectors(t *testing.T) {
	for _, a := range append(everyAlgorithm(), store.Distinct) {
		t.Run(a.String(), func(t *testing.T) {
			name := filepath.Join(vectorFolder, a.String()+".json")
			if *update {
				writeVectors(t, name, makeVectors(t, a))
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var file vectorFile
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&file); err != nil {
				t.Fatal(err)
			}
			steps := 0
			for _, v := range file.Vectors {
				runVector(t, &v)
				steps += len(v.Steps)
			}
			t.Logf("%d steps", steps)
		})
	}
}

// runVector reads a vector as another implementation would: the limit and the expected
// answers come only from its JSON.
func runVector(t *testing.T, v *vector) {
	t.Helper()
	var s State
	var limit headgate.Limit
	for i, step := range v.Steps {
		if step.Limit != nil {
			limit = limitOf(t, step.Limit)
			if rule := ruleOf(&limit); rule != *step.Rule {
				t.Fatalf("%s, step %d: %s compiles to %+v, want %+v", v.Name, i, limit, rule, *step.Rule)
			}
		}
		req := Request{
			Kind: kindOf(t, step.Kind), Cost: step.Cost, Duration: micros(step.DurationUS), Lease: step.Lease, CountsUntil: step.CountsUntilUS,
			Member: step.Member, Leave: (&store.Op{Rule: limit.Rule(), Leave: step.Leave}).Kept(),
		}
		got := vectorStep{
			Limit: step.Limit, Rule: step.Rule, AtUS: step.AtUS, Kind: step.Kind, Cost: step.Cost,
			DurationUS: step.DurationUS, Lease: step.Lease, CountsUntilUS: step.CountsUntilUS, Member: step.Member, Times: step.Times, Leave: step.Leave, Window: windowOf(&limit, step.AtUS),
		}
		res := Step(limit.Rule(), &s, step.AtUS, req)
		for range step.Times - 1 {
			req.Member = nextMember(req.Member)
			res = Step(limit.Rule(), &s, step.AtUS, req)
		}
		got.fill(limit.Rule(), res, &s)
		if g, w := encode(t, got), encode(t, step); g != w {
			t.Fatalf("%s, step %d:\n got %s\nwant %s", v.Name, i, g, w)
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (v *vectorStep) fill(r *store.Rule, res Result, s *State) {
	retry := int64(res.RetryAfter / time.Microsecond)
	if res.RetryAfter == store.Never {
		retry = -1
	}
	v.Want = vectorWant{
		Allowed: res.Allowed, Reason: res.Reason.String(), Limit: res.Limit, Remaining: res.Remaining, Granted: res.Granted,
		RetryAfterUS: retry, ResetAfterUS: int64(res.ResetAfter / time.Microsecond), DelayUS: int64(res.Delay / time.Microsecond),
		Lease: res.Lease, CountsUntilUS: res.CountsUntil,
	}
	v.FreshAt, v.Wrote = res.FreshAt, res.Wrote
	v.State = vectorState{V: slices.Clone(s.V[:]), Credit: s.Credit, Until: s.Until}
	switch r.Algorithm {
	case store.SlidingLog, store.Concurrency:
		v.State.V = nil
		if r.Algorithm == store.Concurrency {
			v.State.V = []int64{s.V[2]}
		}
		for c, end := s.first(r.Algorithm), s.end(r.Algorithm); c.i < end; {
			count, next := s.entry(r.Algorithm, c)
			v.State.Log = append(v.State.Log, [2]int64{c.at, count})
			c = next
		}
	case store.SlidingBuckets:
		v.State.V[3] = 0 // how the counters are packed is not part of the state
		for j := max(s.V[0]-s.counters()+1, 0); j <= s.V[0]; j++ {
			if count := s.count(j); count > 0 {
				v.State.Counts = append(v.State.Counts, [2]int64{j, count})
			}
		}
	case store.Distinct:
		const few = 32
		switch {
		case s.isEstimated():
			v.State.Chance = s.Words[0]
		case len(s.Words) <= few:
			v.State.Values = slices.Clone(s.Words)
		}
	case store.TokenBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow:
	}
	v.State.V = slices.Clone(v.State.V)
}

func limitOf(t *testing.T, v *vectorLimit) headgate.Limit {
	t.Helper()
	a, ok := store.ParseAlgorithm(v.Algorithm)
	for _, other := range [...]store.Algorithm{store.Concurrency, store.Distinct} {
		if v.Algorithm == other.String() {
			a, ok = other, true
		}
	}
	if !ok {
		t.Fatalf("algorithm %q", v.Algorithm)
	}
	l := headgate.Per(v.Limit, micros(v.PeriodUS)).WithAlgorithm(a)
	if v.Burst > 0 {
		l = l.WithBurst(v.Burst)
	}
	if v.DelayAfter > 0 {
		l = l.WithDelayAfter(v.DelayAfter)
	}
	if v.MaxWaitUS > 0 {
		l = l.WithMaxWait(micros(v.MaxWaitUS))
	}
	if v.RefillUS > 0 {
		l = l.WithRefillEvery(micros(v.RefillUS))
	}
	if v.Anchor == store.AnchorFirstRequest.String() {
		l = l.WithAnchor(store.AnchorFirstRequest)
	}
	if c := v.Calendar; c != nil {
		for u := store.Minute; u <= store.Year; u++ {
			if u.String() == c.Unit {
				l = headgate.PerCalendar(v.Limit, u, zone(c.Zone)).WithAlgorithm(a)
				if c.Own {
					l = l.WithZone(zone(c.Zone))
				}
			}
		}
	}
	if v.Buckets > 0 {
		for _, e := range []store.Edge{store.EdgeWeighted, store.EdgeLenient, store.EdgeStrict} {
			if e.String() == v.Edge {
				l = l.WithBuckets(v.Buckets, e)
			}
		}
	}
	if v.CountDenied {
		l = l.WithRefusalsCounted()
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

// specOf is the inverse of limitOf.
func specOf(l *headgate.Limit) *vectorLimit {
	r := l.Rule()
	v := &vectorLimit{Algorithm: r.Algorithm.String(), Limit: r.Limit, PeriodUS: r.Period, CountDenied: r.CountRefused}
	switch r.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		v.Burst, v.DelayAfter, v.MaxWaitUS, v.RefillUS = r.Burst, r.DelayAfter, r.MaxWait, r.RefillEvery
	case store.FixedWindow, store.Distinct:
		v.Anchor = r.Anchor.String()
		if r.Calendar != store.NoCalendar {
			v.Calendar = &vectorCalendar{r.Calendar.String(), r.Zone.String(), r.OwnZone}
		}
	case store.SlidingBuckets:
		v.Buckets, v.Edge = int(r.Buckets), r.Edge.String()
	case store.SlidingLog, store.SlidingWindow, store.Concurrency:
	}
	return v
}

func ruleOf(l *headgate.Limit) vectorRule {
	r := l.Rule()
	v := vectorRule{Limit: r.Limit, Period: r.Period, Leak: r.Leak, Token: r.Token, Capacity: r.Capacity, Tick: r.Tick, Buckets: int64(r.Buckets)}
	if r.Algorithm <= store.LeakyBucket {
		v.Burst, v.Free, v.Late = r.Burst, r.Free, r.Late
	}
	return v
}

func windowOf(l *headgate.Limit, at int64) []int64 {
	r := l.Rule()
	if r.Calendar == store.NoCalendar {
		return nil
	}
	start, end := CalendarWindow(r.Calendar, r.Zone, at)
	if !r.OwnZone {
		return []int64{start, end}
	}
	_, second := CalendarWindow(r.Calendar, r.Zone, end)
	_, third := CalendarWindow(r.Calendar, r.Zone, second)
	return []int64{start, end, second, third}
}

func kindOf(t *testing.T, name string) store.Kind {
	t.Helper()
	for k := store.KindTake; k <= store.KindDraw; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("kind %q", name)
	return 0
}

func vectorsOf(name string) string {
	base := filepath.Base(name)
	return base[:len(base)-len(".json")]
}
