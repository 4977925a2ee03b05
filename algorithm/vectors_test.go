package algorithm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

var update = flag.Bool("update", false, "write testdata/vectors anew")

// The format of testdata/vectors/*.json, which its README explains.
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
		// Limit and Rule are those of this step and the ones after it.
		Limit      *vectorLimit `json:"limit,omitempty"`
		Rule       *vectorRule  `json:"rule,omitempty"`
		AtUS       int64        `json:"at_us"`
		Kind       string       `json:"kind"`
		Cost       int64        `json:"cost"`
		DurationUS int64        `json:"duration_us,omitempty"`
		Lease      int64        `json:"lease,omitempty"`
		// Window is the calendar window of at_us.
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
		Anchor      string          `json:"anchor,omitempty"`
		Calendar    *vectorCalendar `json:"calendar,omitempty"`
		Buckets     int             `json:"buckets,omitempty"`
		Edge        string          `json:"edge,omitempty"`
		CountDenied bool            `json:"count_denied,omitempty"`
	}
	vectorCalendar struct {
		Unit string `json:"unit"`
		Zone string `json:"zone"`
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
	}
	vectorState struct {
		V      []int64    `json:"v"`
		Log    [][2]int64 `json:"log,omitempty"`
		Counts [][2]int64 `json:"counts,omitempty"`
		Credit int64      `json:"credit,omitempty"`
		Until  int64      `json:"until,omitempty"`
	}
)

const vectorFolder = "testdata/vectors"

// TestVectors runs the vectors that other implementations run too. With
// -update it writes them anew; each answer is then also asked of the oracle.
func TestVectors(t *testing.T) {
	for _, a := range everyAlgorithm() {
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

// runVector reads a vector as another implementation would: nothing but its
// JSON says what the limit is and what is wanted.
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
		req := Request{Kind: kindOf(t, step.Kind), Cost: step.Cost, Duration: micros(step.DurationUS), Lease: step.Lease}
		got := vectorStep{
			Limit: step.Limit, Rule: step.Rule, AtUS: step.AtUS, Kind: step.Kind, Cost: step.Cost,
			DurationUS: step.DurationUS, Lease: step.Lease, Window: windowOf(&limit, step.AtUS),
		}
		got.fill(limit.Rule(), Step(limit.Rule(), &s, step.AtUS, req), &s)
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

func (v *vectorStep) fill(r *headgate.Rule, res Result, s *State) {
	retry := int64(res.RetryAfter / time.Microsecond)
	if res.RetryAfter == headgate.Never {
		retry = -1
	}
	v.Want = vectorWant{
		Allowed: res.Allowed, Reason: res.Reason.String(), Limit: res.Limit, Remaining: res.Remaining, Granted: res.Granted,
		RetryAfterUS: retry, ResetAfterUS: int64(res.ResetAfter / time.Microsecond), DelayUS: int64(res.Delay / time.Microsecond),
		Lease: res.Lease,
	}
	v.FreshAt, v.Wrote = res.FreshAt, res.Wrote
	v.State = vectorState{V: s.V[:], Credit: s.Credit, Until: s.Until}
	switch r.Algorithm {
	case headgate.SlidingLog, headgate.Concurrency:
		v.State.V = nil
		if r.Algorithm == headgate.Concurrency {
			v.State.V = []int64{s.V[2]}
		}
		for i := s.V[1]; i < int64(len(s.Words)); {
			at, count, next := logEntry(s.Words, i)
			v.State.Log = append(v.State.Log, [2]int64{at, count})
			i = next
		}
	case headgate.SlidingBuckets:
		for j := max(s.V[0]-int64(len(s.Words))+1, 0); j <= s.V[0] && len(s.Words) > 0; j++ {
			if count := s.count(j); count > 0 {
				v.State.Counts = append(v.State.Counts, [2]int64{j, count})
			}
		}
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow:
	}
	v.State.V = slices.Clone(v.State.V)
}

func limitOf(t *testing.T, v *vectorLimit) headgate.Limit {
	t.Helper()
	a, ok := headgate.ParseAlgorithm(v.Algorithm)
	if v.Algorithm == headgate.Concurrency.String() {
		a, ok = headgate.Concurrency, true
	}
	if !ok {
		t.Fatalf("algorithm %q", v.Algorithm)
	}
	l := headgate.Per(v.Limit, micros(v.PeriodUS)).Using(a)
	if v.Burst > 0 {
		l = l.Burst(v.Burst)
	}
	if v.DelayAfter > 0 {
		l = l.DelayAfter(v.DelayAfter)
	}
	if v.MaxWaitUS > 0 {
		l = l.MaxWait(micros(v.MaxWaitUS))
	}
	if v.Anchor == headgate.AnchorFirstRequest.String() {
		l = l.Anchored(headgate.AnchorFirstRequest)
	}
	if c := v.Calendar; c != nil {
		for u := headgate.Minute; u <= headgate.Year; u++ {
			if u.String() == c.Unit {
				l = headgate.PerCalendar(v.Limit, u, zone(c.Zone))
			}
		}
	}
	if v.Buckets > 0 {
		for _, e := range []headgate.Edge{headgate.EdgeWeighted, headgate.EdgeLenient, headgate.EdgeStrict} {
			if e.String() == v.Edge {
				l = l.Buckets(v.Buckets, e)
			}
		}
	}
	if v.CountDenied {
		l = l.CountingDenied()
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

// specOf is the inverse of limitOf.
func specOf(l *headgate.Limit) *vectorLimit {
	r := l.Rule()
	v := &vectorLimit{Algorithm: r.Algorithm.String(), Limit: r.Limit, PeriodUS: r.Period, CountDenied: r.CountDenied}
	switch r.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		v.Burst, v.DelayAfter, v.MaxWaitUS = r.Burst, r.DelayAfter, r.MaxWait
	case headgate.FixedWindow:
		v.Anchor = r.Anchor.String()
		if r.Calendar != headgate.NoCalendar {
			v.Calendar = &vectorCalendar{r.Calendar.String(), r.Zone.String()}
		}
	case headgate.SlidingBuckets:
		v.Buckets, v.Edge = int(r.Buckets), r.Edge.String()
	case headgate.SlidingLog, headgate.SlidingWindow, headgate.Concurrency:
	}
	return v
}

func ruleOf(l *headgate.Limit) vectorRule {
	r := l.Rule()
	v := vectorRule{Limit: r.Limit, Period: r.Period, Leak: r.Leak, Token: r.Token, Capacity: r.Capacity, Tick: r.Tick, Buckets: int64(r.Buckets)}
	if r.Algorithm <= headgate.LeakyBucket {
		v.Burst, v.Free, v.Late = r.Burst, r.Free, r.Late
	}
	return v
}

func windowOf(l *headgate.Limit, at int64) []int64 {
	r := l.Rule()
	if r.Calendar == headgate.NoCalendar {
		return nil
	}
	start, end := CalendarWindow(r.Calendar, r.Zone, at)
	return []int64{start, end}
}

func kindOf(t *testing.T, name string) headgate.Kind {
	t.Helper()
	for k := headgate.Take; k <= headgate.Renew; k++ {
		if k.String() == name {
			return k
		}
	}
	t.Fatalf("kind %q", name)
	return 0
}

// recorder makes a vector.
type recorder struct {
	*testing.T
	vector vector
	state  State
	oracle *oracle
	limit  headgate.Limit
	fresh  bool // the limit has not been written yet
}

func record(t *testing.T, name string, limit headgate.Limit) *recorder {
	t.Helper()
	return &recorder{T: t, vector: vector{Name: name}, oracle: newOracle(), limit: limit, fresh: true}
}

func (r *recorder) change(limit headgate.Limit) { r.limit, r.fresh = limit, true }

func (r *recorder) step(at int64, req Request) Result {
	r.Helper()
	v := vectorStep{
		AtUS: at, Kind: req.Kind.String(), Cost: req.Cost, DurationUS: int64(req.Duration / time.Microsecond),
		Lease: req.Lease, Window: windowOf(&r.limit, at),
	}
	if r.fresh {
		rule := ruleOf(&r.limit)
		v.Limit, v.Rule, r.fresh = specOf(&r.limit), &rule, false
	}
	got := Step(r.limit.Rule(), &r.state, at, req)
	want := r.oracle.step(r.limit.Rule(), at, req)
	if want.Wrote = got.Wrote; got != want {
		r.Fatalf("%s: the oracle says %s, not %s", r.vector.Name, show(want), show(got))
	}
	v.fill(r.limit.Rule(), got, &r.state)
	r.vector.Steps = append(r.vector.Steps, v)
	return got
}

// makeVectors makes those of one algorithm: the worked examples, a walk through
// every verb, each special limit, and random histories from a fixed seed.
func makeVectors(t *testing.T, a headgate.Algorithm) []vector {
	t.Helper()
	var all []vector
	for _, e := range examples() {
		if e.limit.Algorithm() != a {
			continue
		}
		r := record(t, "example: "+e.name, e.limit)
		for _, row := range e.rows {
			r.step(clock(t, row.at), Request{Kind: row.kind, Cost: row.cost})
		}
		all = append(all, r.vector)
	}
	for _, limit := range vectorLimits(a) {
		all = append(all, walk(t, limit))
	}
	all = append(all, corners(t, a)...)
	rng := rand.New(rand.NewPCG(20260101, uint64(a)))
	for i := range 16 {
		all = append(all, randomVector(t, rng, a, fmt.Sprintf("random history %d", i+1)))
	}
	return all
}

func vectorLimits(a headgate.Algorithm) []headgate.Limit {
	per := headgate.PerMinute(8).Using(a)
	limits := []headgate.Limit{per, headgate.PerSecond(0).Using(a)}
	switch a {
	case headgate.TokenBucket, headgate.LeakyBucket:
		year := 365 * 24 * time.Hour
		limits = append(limits, headgate.Per(3, 7*time.Millisecond).Using(a).Burst(2), headgate.Per(headgate.MaxLimit-1, year).Using(a))
		if a == headgate.LeakyBucket {
			limits = append(limits, per.DelayAfter(3), per.MaxWait(20*time.Second), per.Burst(12).DelayAfter(4).MaxWait(45*time.Second))
		}
	case headgate.FixedWindow:
		limits = append(
			limits, per.Anchored(headgate.AnchorFirstRequest), headgate.PerCalendar(8, headgate.Day, zone("Europe/Berlin")),
			headgate.PerCalendar(8, headgate.Month, time.UTC),
		)
	case headgate.SlidingLog:
		limits = append(limits, per.CountingDenied(), headgate.PerDay(5000).Using(a))
	case headgate.SlidingBuckets:
		limits = append(limits, per.Buckets(6, headgate.EdgeStrict), per.Buckets(7, headgate.EdgeLenient), per.Buckets(1, headgate.EdgeWeighted))
	case headgate.SlidingWindow:
		limits = append(limits, headgate.Per(headgate.MaxLimit, 365*24*time.Hour).Using(a))
	case headgate.Concurrency:
		limits = append(limits, headgate.Concurrent(1).Lease(time.Microsecond))
	}
	return limits
}

const huge = maxInteger // the largest cost that every language can read

// walk goes through every verb, in and out of debt, with refusals.
func walk(t *testing.T, limit headgate.Limit) vector {
	t.Helper()
	r := record(t, "every verb: "+limit.String(), limit)
	most, period := limit.Capacity(), limit.Rule().Period
	now := int64(t0) + 59*1_000_000
	pauses := []int64{0, 1, period / 8, 0, period / 2, period, 3 * period}
	for i, req := range []Request{
		{headgate.Peek, 1, 0, 0},
		{headgate.Take, 0, 0, 0},
		{headgate.Take, 1, 0, 0},
		{headgate.Take, most, 0, 0},
		{headgate.Take, most + 1, 0, 0},
		{headgate.TakeUpTo, most, 0, 0},
		{headgate.TakeUpTo, 1, 0, 0},
		{headgate.Take, 1, 0, 0},
		{headgate.Reserve, 1, micros(period), 0},
		{headgate.Reserve, 1, time.Microsecond, 0},
		{headgate.Refund, 1, micros(period / 2), 0},
		{headgate.Refund, most, time.Microsecond, 0},
		{headgate.Refund, 2, 0, 0},
		{headgate.Charge, 3, 0, 0},
		{headgate.Charge, most, 0, 0},
		{headgate.Take, 0, 0, 0},
		{headgate.Charge, 0, 0, 0},
		{headgate.Grant, 4, micros(2 * period), 0},
		{headgate.Grant, 1, micros(period), 0},
		{headgate.Grant, 1, 0, 0},
		{headgate.Take, 3, 0, 0},
		{headgate.Peek, most + 1, 0, 0},
		{headgate.Reserve, 2, micros(5 * period), 0},
		{headgate.TakeUpTo, huge, 0, 0},
		{headgate.Charge, huge, 0, 0},
		{headgate.Refund, huge, 0, 0},
		{headgate.Grant, huge, time.Hour, 0},
		{headgate.Take, huge, 0, 0},
		{headgate.Reset, 0, 0, 0},
		{headgate.Reset, 0, 0, 0},
		{headgate.Take, most, 0, 0},
	} {
		now += pauses[i%len(pauses)]
		res := r.step(now, req)
		if !res.Allowed && res.RetryAfter > 0 && res.RetryAfter < micros(maxTime-now) && i%3 == 0 {
			retry := int64(res.RetryAfter / time.Microsecond)
			r.step(now+retry-1, Request{Kind: headgate.Peek, Cost: req.Cost})
			r.step(now+retry, Request{Kind: headgate.Peek, Cost: req.Cost})
		}
	}
	r.step(now-period/3, Request{Kind: headgate.Take, Cost: 1}) // the clock goes back
	return r.vector
}

// corners are short traces of branches that the walk does not reach.
func corners(t *testing.T, a headgate.Algorithm) []vector {
	t.Helper()
	switch a {
	case headgate.LeakyBucket:
		r := record(t, "corner: credit that ends before its turn does not help", headgate.PerSecond(1).Using(a).Burst(3))
		r.step(t0, Request{headgate.Take, 3, 0, 0})
		r.step(t0, Request{headgate.Grant, 2, time.Second, 0})
		r.step(t0, Request{headgate.Reserve, 1, time.Second, 0})
		r.step(t0, Request{headgate.Reserve, 5, time.Second, 0})
		return []vector{r.vector}
	case headgate.TokenBucket:
		r := record(t, "corner: a refund of less than a tick writes nothing", headgate.Per(headgate.MaxLimit-1, 365*24*time.Hour))
		r.step(t0, Request{headgate.Take, 5, 0, 0})
		r.step(t0, Request{headgate.Refund, 5, time.Microsecond, 0})
		r.step(t0+1_000_000, Request{headgate.Refund, 5, time.Second, 0})
		q := record(t, "corner: usage outlives a limit of 0", headgate.PerMinute(8))
		q.step(t0, Request{headgate.Take, 5, 0, 0})
		q.change(headgate.PerMinute(0))
		q.step(t0, Request{headgate.Peek, 1, 0, 0})
		q.change(headgate.PerHour(8))
		q.step(t0, Request{headgate.Peek, 3, 0, 0})
		q.step(t0, Request{headgate.Take, 4, 0, 0})
		b := record(t, "corner: a booking waits for a debt at its limit", headgate.PerMinute(8))
		b.step(t0, Request{headgate.Charge, huge, 0, 0})
		b.step(t0, Request{headgate.Reserve, 1, micros(huge), 0})
		b.step(t0, Request{headgate.Reserve, 1, 0, 0})
		return []vector{r.vector, q.vector, b.vector}
	case headgate.SlidingLog:
		r := record(t, "corner: entries of 1023 and more, a log that is full", headgate.PerDay(5000).Using(a))
		r.step(t0, Request{headgate.Take, 1023, 0, 0})
		r.step(t0+1, Request{headgate.Take, 1022, 0, 0})
		r.step(t0+2, Request{headgate.Take, 2000, 0, 0})
		r.step(t0+2, Request{headgate.Refund, 1, 0, 0})
		r.step(t0+3, Request{headgate.Refund, 1, 24*time.Hour - 3*time.Microsecond, 0})
		r.step(t0+4, Request{headgate.Charge, huge, 0, 0})
		r.step(t0+5, Request{headgate.Charge, 7, 0, 0})
		r.step(t0+5, Request{headgate.Take, 1, 0, 0})
		return []vector{r.vector}
	case headgate.SlidingBuckets:
		r := record(t, "corner: a clock that goes back behind what has faded", headgate.PerMinute(6).Using(a).Buckets(6, headgate.EdgeWeighted))
		r.step(t0+5_000_000, Request{headgate.Take, 6, 0, 0})
		r.step(t0+69_000_000, Request{headgate.Charge, 1, 0, 0})
		r.step(t0+61_000_000, Request{headgate.Refund, 6, 0, 0})
		return []vector{r.vector}
	case headgate.Concurrency:
		return []vector{leases(t), longLeases(t)}
	case headgate.FixedWindow, headgate.SlidingWindow:
	}
	return nil
}

// leases is a life of leases: three in one microsecond, renewed and released in
// another order, twice, too late, and after the length of a lease has changed.
func leases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases end in any order, once each", headgate.Concurrent(3).Lease(time.Second))
	a := r.step(t0, Request{headgate.Take, 1, 0, 0}).Lease
	b := r.step(t0, Request{headgate.Take, 1, 0, 0}).Lease
	c := r.step(t0, Request{headgate.Take, 1, 0, 0}).Lease
	r.step(t0, Request{headgate.Take, 1, 0, 0})
	r.step(t0+10, Request{headgate.Release, 1, 0, b})
	r.step(t0+10, Request{headgate.Release, 1, 0, b})
	r.step(t0+20, Request{headgate.Renew, 0, 0, a})
	a = r.step(t0+20, Request{headgate.Renew, 1, 0, a}).Lease
	d := r.step(t0+20, Request{headgate.Take, 1, 0, 0}).Lease
	r.step(t0+1_000_001, Request{headgate.Renew, 1, 0, c})
	r.step(t0+1_000_002, Request{headgate.Renew, 1, 0, c})
	r.step(t0+1_000_002, Request{headgate.Release, 1, 0, c})
	r.step(t0+1_000_010, Request{headgate.Release, 1, 0, d})
	r.change(headgate.Concurrent(1).Lease(time.Minute))
	r.step(t0+1_000_010, Request{headgate.Take, 1, 0, 0})
	a = r.step(t0+1_000_020, Request{headgate.Renew, 1, 0, a}).Lease
	r.step(t0+5, Request{headgate.Release, 1, 0, a})
	r.step(t0+5, Request{headgate.Take, 1, 0, 0})
	return r.vector
}

// longLeases has leases of more than an entry's word holds.
func longLeases(t *testing.T) vector {
	t.Helper()
	r := record(t, "corner: leases of 1023 and more, in part", headgate.Concurrent(5000))
	a := r.step(t0, Request{headgate.Take, 1500, 0, 0}).Lease
	b := r.step(t0+1, Request{headgate.Take, 1022, 0, 0}).Lease
	c := r.step(t0+2, Request{headgate.Take, 2000, 0, 0}).Lease
	r.step(t0+3, Request{headgate.Release, 478, 0, a}) // 1022 are left, one word
	r.step(t0+4, Request{headgate.Release, 1, 0, c})
	r.step(t0+5, Request{headgate.Renew, 500, 0, a})
	r.step(t0+6, Request{headgate.Release, huge, 0, b})
	r.step(t0+7, Request{headgate.Release, huge, 0, c})
	r.step(t0+8, Request{headgate.Release, 600, 0, a})
	r.step(t0+8, Request{headgate.Take, 4501, 0, 0})
	return r.vector
}

// randomVector keeps to numbers that every language can read.
func randomVector(t *testing.T, rng *rand.Rand, a headgate.Algorithm, name string) vector {
	t.Helper()
	h := &history{T: t, rng: rng, limit: randomLimit(rng, a), now: pick[int64](rng, t0, t0, 1000, maxTime)}
	r := record(t, name, h.limit)
	for range 25 {
		h.tick()
		if rng.IntN(12) == 0 {
			h.limit = randomLimit(rng, a)
			r.change(h.limit)
		}
		req := h.randomRequest()
		req.Cost = min(req.Cost, huge)
		req.Duration = min(req.Duration, micros(huge)) / time.Microsecond * time.Microsecond
		h.prior = r.step(h.now, req)
		h.noteLease()
	}
	return r.vector
}

// writeVectors writes a step a line, so that changes can be read.
func writeVectors(t *testing.T, name string, vectors []vector) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"algorithm\":%q,\"vectors\":[\n", vectorsOf(name))
	for i, v := range vectors {
		fmt.Fprintf(&b, "{\"name\":%s,\"steps\":[\n", encode(t, v.Name))
		for j, s := range v.Steps {
			b.WriteString(encode(t, s))
			if j < len(v.Steps)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString("]}")
		if i < len(vectors)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	if err := os.MkdirAll(vectorFolder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func vectorsOf(name string) string {
	base := filepath.Base(name)
	return base[:len(base)-len(".json")]
}
