package algorithm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// recorder records a vector.
type recorder struct {
	*testing.T
	vector vector
	state  State
	oracle *oracle
	limit  headgate.Limit
	fresh  bool // the limit has not been written yet
	leave  uint32
}

func record(t *testing.T, name string, limit headgate.Limit) *recorder {
	t.Helper()
	return &recorder{T: t, vector: vector{Name: name}, oracle: newOracle(), limit: limit, fresh: true}
}

func (r *recorder) change(limit headgate.Limit) { r.limit, r.fresh = limit, true }

func (r *recorder) step(at int64, req Request) Result {
	r.Helper()
	if req.Kind == store.KindTake || req.Kind == store.KindPeek {
		req.Leave = (&store.Op{Rule: r.limit.Rule(), Leave: r.leave}).Kept()
	}
	v := vectorStep{
		AtUS: at, Kind: req.Kind.String(), Cost: req.Cost, DurationUS: int64(req.Duration / time.Microsecond),
		Lease: req.Lease, Member: req.Member, CountsUntilUS: req.CountsUntil, Window: windowOf(&r.limit, at),
	}
	if req.Leave > 0 {
		v.Leave = r.leave
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

// makeVectors returns those of one algorithm: the worked examples, a walk through every
// verb, each special limit, and random histories from a fixed seed.
func makeVectors(t *testing.T, a store.Algorithm) []vector {
	t.Helper()
	var all []vector
	if a == store.Distinct {
		return distinctVectors(t)
	}
	for _, e := range append(examples(), deniedExamples()...) {
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
	all = append(all, clockIsSet(t, headgate.PerMinute(8).WithAlgorithm(a)))
	if a == store.TokenBucket {
		all = append(all, clockIsSet(t, headgate.PerMinute(8).WithRefillEvery(15*time.Second)))
	}
	if a <= store.LeakyBucket {
		all = append(all, leftPlaces(t, a)...)
	}
	for _, c := range corners() {
		if c.limit.Algorithm() == a {
			all = append(all, c.record(t))
		}
	}
	all = append(all, longCorners(t, a)...)
	rng := rand.New(rand.NewPCG(20260101, uint64(a)))
	for i := range 16 {
		all = append(all, randomVector(t, rng, a, fmt.Sprintf("random history %d", i+1)))
	}
	if a == store.FixedWindow {
		all = append(all, journeys(t)...)
	}
	return append(all, headroomVectors(t, a)...)
}

func vectorLimits(a store.Algorithm) []headgate.Limit {
	per := headgate.PerMinute(8).WithAlgorithm(a)
	limits := []headgate.Limit{per, headgate.PerSecond(0).WithAlgorithm(a)}
	switch a {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.TokenBucket, store.LeakyBucket:
		year := 365 * 24 * time.Hour
		limits = append(limits, headgate.Per(3, 7*time.Millisecond).WithAlgorithm(a).WithBurst(2), headgate.Per(store.MaxLimit-1, year).WithAlgorithm(a))
		if a == store.TokenBucket {
			limits = append(
				limits, per.WithRefillEvery(time.Minute), per.WithBurst(20).WithRefillEvery(15*time.Second), headgate.PerSecond(0).WithRefillEvery(time.Second),
				headgate.Per(10, time.Second).WithRefillEvery(7*time.Millisecond), headgate.PerSecond(5).WithBurst(400).WithRefillEvery(time.Minute),
			)
		}
		if a == store.LeakyBucket {
			limits = append(limits, per.WithDelayAfter(3), per.WithMaxWait(20*time.Second), per.WithBurst(12).WithDelayAfter(4).WithMaxWait(45*time.Second))
		}
	case store.FixedWindow:
		limits = append(
			limits, per.WithAnchor(store.AnchorFirstRequest), headgate.PerCalendar(8, store.Day, zone("Europe/Berlin")),
			headgate.PerCalendar(8, store.Month, time.UTC), headgate.PerCalendar(8, store.Day, nil).WithZone(zone("Asia/Kolkata")),
			per.WithRefusalsCounted(), headgate.PerSecond(0).WithAlgorithm(a).WithRefusalsCounted(),
		)
	case store.SlidingLog:
		limits = append(limits, per.WithRefusalsCounted(), headgate.PerDay(5000).WithAlgorithm(a))
	case store.SlidingBuckets:
		limits = append(limits, per.WithBuckets(6, store.EdgeStrict), per.WithBuckets(7, store.EdgeLenient), per.WithBuckets(1, store.EdgeWeighted))
		limits = append(limits, per.WithRefusalsCounted(), per.WithBuckets(6, store.EdgeStrict).WithRefusalsCounted())
	case store.SlidingWindow:
		limits = append(limits, headgate.Per(store.MaxLimit, 365*24*time.Hour).WithAlgorithm(a), per.WithRefusalsCounted())
	case store.Concurrency:
		limits = append(limits, headgate.Concurrent(1).WithLease(time.Microsecond))
	}
	return limits
}

const huge = maxInteger // the largest cost that every language can read

// walk uses every verb, in and out of debt, with refusals.
func walk(t *testing.T, limit headgate.Limit) vector {
	t.Helper()
	r := record(t, "every verb: "+limit.String(), limit)
	most, period := limit.Burst(), limit.Rule().Period
	now := int64(t0) + 59*1_000_000
	pauses := []int64{0, 1, period / 8, 0, period / 2, period, 3 * period}
	for i, req := range []Request{
		{store.KindPeek, 1, 0, 0, 0, 0, 0},
		{store.KindTake, 0, 0, 0, 0, 0, 0},
		{store.KindTake, 1, 0, 0, 0, 0, 0},
		{store.KindTake, most, 0, 0, 0, 0, 0},
		{store.KindTake, most + 1, 0, 0, 0, 0, 0},
		{store.KindTakeUpTo, most, 0, 0, 0, 0, 0},
		{store.KindTakeUpTo, 1, 0, 0, 0, 0, 0},
		{store.KindTake, 1, 0, 0, 0, 0, 0},
		{store.KindReserve, 1, micros(period), 0, 0, 0, 0},
		{store.KindReserve, 1, time.Microsecond, 0, 0, 0, 0},
		{store.KindRefund, 1, micros(period / 2), 0, 0, 0, 0},
		{store.KindRefund, most, time.Microsecond, 0, 0, 0, 0},
		{store.KindRefund, 2, 0, 0, 0, 0, 0},
		{store.KindCharge, 3, 0, 0, 0, 0, 0},
		{store.KindCharge, most, 0, 0, 0, 0, 0},
		{store.KindTake, 0, 0, 0, 0, 0, 0},
		{store.KindCharge, 0, 0, 0, 0, 0, 0},
		{store.KindGrant, 4, micros(2 * period), 0, 0, 0, 0},
		{store.KindGrant, 1, micros(period), 0, 0, 0, 0},
		{store.KindGrant, 1, 0, 0, 0, 0, 0},
		{store.KindTake, 3, 0, 0, 0, 0, 0},
		{store.KindPeek, most + 1, 0, 0, 0, 0, 0},
		{store.KindReserve, 2, micros(5 * period), 0, 0, 0, 0},
		{store.KindTakeUpTo, huge, 0, 0, 0, 0, 0},
		{store.KindCharge, huge, 0, 0, 0, 0, 0},
		{store.KindRefund, huge, 0, 0, 0, 0, 0},
		{store.KindGrant, huge, time.Hour, 0, 0, 0, 0},
		{store.KindTake, huge, 0, 0, 0, 0, 0},
		{store.KindReset, 0, 0, 0, 0, 0, 0},
		{store.KindReset, 0, 0, 0, 0, 0, 0},
		{store.KindTake, most, 0, 0, 0, 0, 0},
		{store.KindDraw, 3, micros(period / 8), 0, 0, 0, 0},
		{store.KindDraw, 0, micros(period / 8), 0, 0, 0, 0},
		{store.KindDraw, huge, micros(period / 2), 0, 0, 0, 0},
		{store.KindTake, 1, 0, 0, 0, 0, 0},
		{store.KindDraw, 1, 0, 0, 0, 0, 0},
		{store.KindDraw, huge, micros(huge), 0, 0, 0, 0},
	} {
		now += pauses[i%len(pauses)]
		res := r.step(now, req)
		if !res.Allowed && res.RetryAfter > 0 && res.RetryAfter < micros(maxTime-now) && i%3 == 0 {
			retry := int64(res.RetryAfter / time.Microsecond)
			r.step(now+retry-1, Request{Kind: store.KindPeek, Cost: req.Cost})
			r.step(now+retry, Request{Kind: store.KindPeek, Cost: req.Cost})
		}
	}
	r.step(now-period/3, Request{Kind: store.KindTake, Cost: 1}) // the clock goes back
	return r.vector
}

// journeys are random histories of callers whose time zone changes.
func journeys(t *testing.T) (all []vector) {
	t.Helper()
	rng := rand.New(rand.NewPCG(20260101, 7))
	for unit := store.Minute; unit <= store.Year; unit++ {
		limit := headgate.PerCalendar(1+rng.Int64N(9), unit, nil).WithZone(pick(rng, travelled()...))
		h := &history{T: t, rng: rng, limit: limit, now: t0}
		r := record(t, "journey by "+unit.String(), limit)
		for range 40 {
			h.tick()
			if h.travel() {
				r.change(h.limit)
			}
			req := h.randomRequest()
			req.Cost, req.Duration = min(req.Cost, huge), min(req.Duration, micros(huge))/time.Microsecond*time.Microsecond
			h.prior = r.step(h.now, req)
			h.note()
		}
		all = append(all, r.vector)
	}
	return all
}

// clockIsSet returns takes after each of which the clock is set, another's take, and the
// refund of the first.
func clockIsSet(t *testing.T, limit headgate.Limit) vector {
	t.Helper()
	r, period := record(t, "the clock is set: "+limit.String(), limit), limit.Rule().Period
	now := int64(t0) + 20*period
	for _, by := range []int64{period / 8, period / 2, period - 1, period, 5 * period, -1, -period / 3, -5 * period} {
		first := r.step(now, Request{Kind: store.KindTake, Cost: 2})
		now += by
		r.step(now, Request{Kind: store.KindTake, Cost: 3})
		r.step(now+1, Request{Kind: store.KindRefund, Cost: 2, Duration: first.ResetAfter, CountsUntil: first.CountsUntil})
		r.step(now+2, Request{Kind: store.KindPeek, Cost: 8})
		r.step(now+2, Request{Kind: store.KindReset})
	}
	r.step(now, Request{Kind: store.KindTake, Cost: 2})
	r.step(now, Request{Kind: store.KindGrant, Cost: 9, Duration: time.Hour})
	more := r.step(now+1, Request{Kind: store.KindTake, Cost: 4})
	r.step(now+2, Request{Kind: store.KindTake, Cost: 3})
	r.step(now+3, Request{Kind: store.KindRefund, Cost: 4, CountsUntil: more.CountsUntil})
	r.step(now+3, Request{Kind: store.KindPeek, Cost: 1})
	return r.vector
}

// leftPlaces returns histories of requests that are booked and given up in any order, and
// of others that are booked on top.
func leftPlaces(t *testing.T, a store.Algorithm) (all []vector) {
	t.Helper()
	limits := []headgate.Limit{
		headgate.PerSecond(1).WithBurst(1), headgate.PerSecond(10).WithBurst(4), headgate.Per(3, 7*time.Millisecond).WithBurst(12),
		headgate.PerSecond(3_000_000).WithBurst(5), headgate.PerSecond(5).WithBurst(40).WithRefillEvery(time.Second),
	}
	if a == store.LeakyBucket {
		limits = []headgate.Limit{
			headgate.PerSecond(2).WithAlgorithm(a).WithBurst(20), headgate.Per(3, 7*time.Millisecond).WithAlgorithm(a).WithBurst(12).WithDelayAfter(4),
			headgate.PerSecond(10).WithAlgorithm(a).WithBurst(9).WithMaxWait(300 * time.Millisecond),
		}
	}
	rng := rand.New(rand.NewPCG(20260102, uint64(a)))
	for _, limit := range limits {
		r, now := record(t, "places that are left: "+limit.String(), limit), int64(t0)
		var booked []Request
		for range 80 {
			switch n := int64(len(booked)); {
			case n > 0 && rng.IntN(3) == 0:
				i := pick(rng, 0, n-1, rng.Int64N(n))
				r.step(now, booked[i])
				booked = append(booked[:i], booked[i+1:]...)
			case rng.IntN(40) == 0:
				r.change(pick(rng, limits...))
			default:
				kind := pick(rng, store.KindReserve, store.KindReserve, store.KindReserve, store.KindTake, store.KindCharge)
				res := r.step(now, Request{Kind: kind, Cost: 1 + rng.Int64N(min(limit.Rule().Burst, 3)), Duration: time.Minute})
				if res.CountsUntil > 0 && kind != store.KindCharge {
					booked = append(booked, Request{Kind: store.KindRefund, Cost: res.Granted, CountsUntil: res.CountsUntil})
				}
			}
			now += pick(rng, 0, 0, 0, rng.Int64N(limit.Rule().Period/limit.N()+2))
		}
		all = append(all, r.vector)
	}
	return all
}

// randomVector only uses numbers that every language can read.
func randomVector(t *testing.T, rng *rand.Rand, a store.Algorithm, name string) vector {
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
		h.note()
	}
	return r.vector
}

// writeVectors writes one step per line, for readable diffs.
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
