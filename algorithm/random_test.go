package algorithm

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one and logs it")
	runsFlag = flag.Int("runs", 40, "random histories per algorithm")
)

func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("run again with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, uint64(len(t.Name()))))
}

// near returns a number from lo to hi, small ones as often as large ones, and sometimes
// lo or hi itself.
func near(rng *rand.Rand, lo, hi int64) int64 {
	switch rng.IntN(16) {
	case 0:
		return lo
	case 1:
		return hi
	}
	span := math.Log(float64(hi-lo) + 1)
	return min(hi, lo+int64(math.Exp(rng.Float64()*span))-1)
}

func pick[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

const year = int64(365 * 24 * time.Hour / time.Microsecond)

// randomLimit returns a random valid limit of the algorithm.
func randomLimit(rng *rand.Rand, a store.Algorithm) headgate.Limit {
	for {
		n := near(rng, 0, store.MaxLimit)
		if rng.IntN(2) == 0 {
			n = rng.Int64N(30)
		}
		period := near(rng, 1000, year)
		if rng.IntN(3) == 0 {
			period = int64(pick(rng, time.Second, time.Minute, time.Hour, 24*time.Hour) / time.Microsecond)
		}
		l := headgate.Per(n, micros(period)).WithAlgorithm(a)
		switch {
		case a <= store.LeakyBucket && rng.IntN(2) == 0:
			l = l.WithBurst(near(rng, 1, pick[int64](rng, 50, store.MaxLimit)))
			if a == store.TokenBucket && rng.IntN(3) == 0 {
				l = l.WithRefillEvery(micros(near(rng, 1, min(3*period, year))))
			}
			if a == store.LeakyBucket && rng.IntN(2) == 0 {
				l = l.WithDelayAfter(near(rng, 1, l.Burst()))
			}
			if a == store.LeakyBucket && rng.IntN(2) == 0 {
				l = l.WithMaxWait(micros(near(rng, 1, pick(rng, 10*period, year))))
			}
		case a == store.TokenBucket && rng.IntN(2) == 0:
			l = l.WithRefillEvery(micros(near(rng, 1, period)))
		case a == store.FixedWindow && rng.IntN(3) == 0:
			l = l.WithAnchor(store.AnchorFirstRequest)
		case a == store.FixedWindow && rng.IntN(3) == 0:
			unit := store.Minute + store.CalendarUnit(rng.IntN(6))
			l = headgate.PerCalendar(n, unit, pick(rng, zone("Europe/Berlin"), zone("Australia/Lord_Howe"), time.UTC))
			if rng.IntN(2) == 0 {
				l = l.WithZone(pick(rng, travelled()...))
			}
		case a == store.SlidingBuckets && rng.IntN(4) != 0:
			l = l.WithBuckets(1+rng.IntN(pick(rng, 5, 100, 512)), pick(rng, store.EdgeWeighted, store.EdgeLenient, store.EdgeStrict))
		}
		if a >= store.FixedWindow && a <= store.SlidingBuckets && rng.IntN(3) == 0 {
			l = l.WithRefusalsCounted()
		}
		if l.Rule().Valid() {
			return l
		}
	}
}

// history is a key's state and its oracle under random requests.
type history struct {
	*testing.T
	rng    *rand.Rand
	limit  headgate.Limit
	now    int64
	state  State
	oracle *oracle
	prior  Result
	trace  strings.Builder
	// leases are some of those issued.
	leases []int64
	taken  []int64 // until when some takes count
	// changed is set from a new limit until the state is written under it.
	changed bool
}

func (h *history) randomCost() int64 {
	most := h.limit.Rule().Most()
	switch h.rng.IntN(12) {
	case 0:
		return 0
	case 1:
		return most
	case 2:
		return most + 1
	case 3:
		return pick[int64](h.rng, math.MaxInt64, 1<<53, 1<<43, 1<<40, 1<<52+1)
	case 4, 5:
		return h.prior.Remaining
	case 6:
		return h.prior.Remaining + 1
	case 7, 8:
		return near(h.rng, 0, most+2)
	}
	return 1 + h.rng.Int64N(3)
}

func (h *history) randomDuration() time.Duration {
	switch h.rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return pick(h.rng, -time.Second, 1, math.MaxInt64, 999)
	case 2:
		return h.prior.ResetAfter
	}
	return micros(near(h.rng, 1, 3*h.limit.Rule().Period))
}

func (h *history) randomRequest() Request {
	kinds := []store.Kind{
		store.KindTake, store.KindTake, store.KindTake, store.KindTake, store.KindTake, store.KindTake,
		store.KindTakeUpTo, store.KindTakeUpTo, store.KindPeek, store.KindCharge, store.KindRefund,
		store.KindRefund, store.KindReserve, store.KindReserve, store.KindGrant, store.KindReset,
		store.KindDraw, store.KindDraw,
	}
	req := Request{Kind: pick(h.rng, kinds...), Cost: h.randomCost(), Duration: h.randomDuration()}
	if len(h.leases) > 0 && h.rng.IntN(2) == 0 {
		req.Kind, req.Lease = pick(h.rng, store.KindRelease, store.KindRenew), pick(h.rng, h.leases...)+h.rng.Int64N(9)/8
	}
	if len(h.taken) > 0 && req.Kind == store.KindRefund && h.rng.IntN(3) > 0 {
		if req.CountsUntil = pick(h.rng, h.taken...); h.rng.IntN(8) == 0 {
			req.CountsUntil = near(h.rng, 0, 2*req.CountsUntil)
		}
	}
	return req
}

// randomLeave returns what a request of that kind must leave, often nothing.
func (h *history) randomLeave(kind store.Kind) int64 {
	r := h.limit.Rule()
	if kind != store.KindTake && kind != store.KindPeek || !r.CanKeep() || h.rng.IntN(2) == 0 {
		return 0
	}
	op := store.Op{Rule: r, Leave: uint32(pick(h.rng, 1, 1+h.rng.IntN(store.Whole), h.rng.IntN(store.Whole/4), store.Whole))}
	return op.Kept()
}

// note records what the previous step took.
func (h *history) note() {
	if h.prior.CountsUntil != 0 {
		h.taken = append(h.taken[max(len(h.taken)-6, 0):], h.prior.CountsUntil)
	}
	if h.prior.Lease == 0 {
		return
	}
	if h.leases = append(h.leases, h.prior.Lease); len(h.leases) > 6 {
		h.leases = h.leases[1:]
	}
}

// tick moves the clock: not at all, a little, to a promised time, far, or back.
func (h *history) tick() {
	period := h.limit.Rule().Period
	switch h.rng.IntN(12) {
	case 0, 1, 2:
	case 3:
		h.now++
	case 4:
		if h.prior.RetryAfter != store.Never {
			h.now += int64(h.prior.RetryAfter / time.Microsecond)
		}
	case 5:
		if h.prior.RetryAfter != store.Never && h.prior.RetryAfter > 0 {
			h.now += int64(h.prior.RetryAfter/time.Microsecond) - 1
		}
	case 6:
		h.now += int64(h.prior.ResetAfter / time.Microsecond)
	case 7:
		h.now -= near(h.rng, 0, period)
	case 8:
		h.now += near(h.rng, 0, 3*period)
	default:
		h.now += near(h.rng, 0, max(4*period/(h.limit.N()+1), 2))
	}
	h.now = min(max(h.now, 0), maxTime)
}

// run makes random steps and checks each against the oracle and the contract.
func (h *history) run(steps int) {
	for range steps {
		h.tick()
		h.travel()
		if h.rng.IntN(20) == 0 {
			h.limit, h.changed = randomLimit(h.rng, h.limit.Algorithm()), true
			fmt.Fprintf(&h.trace, "now %s %+v\n", h.limit, *h.limit.Rule())
		}
		req := h.randomRequest()
		req.Leave = h.randomLeave(req.Kind)
		before := clone(&h.state)
		fmt.Fprintf(&h.trace, "%d %s %d %v %d leaving %d", h.now, req.Kind, req.Cost, req.Duration, req.CountsUntil, req.Leave)
		got := Step(h.limit.Rule(), &h.state, h.now, req)
		fmt.Fprintf(&h.trace, " -> %s; %s\n", show(got), showState(&h.state))
		want := h.oracle.step(h.limit.Rule(), h.now, req)
		want.Wrote = got.Wrote
		if got != want {
			h.fatalf("got  %s\nwant %s", show(got), show(want))
		}
		h.checkContract(before, req, got)
		h.prior, h.changed = got, h.changed && h.state.V == before.V
		h.note()
	}
}

// travel moves the caller of a limit in the caller's own zone.
func (h *history) travel() bool {
	if !h.limit.Rule().OwnZone || h.rng.IntN(4) > 0 {
		return false
	}
	h.limit = h.limit.WithZone(pick(h.rng, travelled()...))
	return true
}

// travelled returns zones that are far apart, at half hours, and with rare clock changes.
func travelled() []*time.Location {
	var zones []*time.Location
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati", "Etc/GMT+12", "Asia/Kolkata", "Asia/Kathmandu",
		"Australia/Lord_Howe", "America/St_Johns", "Pacific/Chatham", "Pacific/Apia", "Antarctica/Casey", "Africa/Cairo",
	} {
		zones = append(zones, zone(name))
	}
	return zones
}

func (h *history) fatalf(format string, args ...any) {
	h.Helper()
	lines := strings.Split(strings.TrimSpace(h.trace.String()), "\n")
	h.Fatalf("%s\n…\n%s\n%s", lines[0], strings.Join(lines[max(1, len(lines)-12):], "\n"), fmt.Sprintf(format, args...))
}

// checkContract checks what must hold for every step, whatever the oracle says.
func (h *history) checkContract(before State, req Request, got Result) {
	r := h.limit.Rule()
	if !got.Wrote && !same(&before, &h.state) {
		h.fatalf("the state was changed but not reported so: before %+v", before)
	}
	loggedDenial := r.CountRefused && req.Kind != store.KindPeek
	shortened := req.Kind != store.KindPeek && reshaped(r, &before) && !reshaped(r, &h.state)
	if !got.Allowed && got.Wrote && req.Kind != store.KindCharge && !loggedDenial && !shortened {
		h.fatalf("a refusal wrote")
	}
	if req.Cost == 0 && got.Wrote && req.Kind != store.KindReset {
		h.fatalf("a dry run wrote")
	}
	if bad := outOfRange(r, &h.state); bad != "" {
		h.fatalf("%s", bad)
	}
	if got.Remaining < 0 || got.Granted < 0 || got.RetryAfter < 0 || got.ResetAfter < 0 || got.Delay < 0 {
		h.fatalf("a negative answer")
	}
	if got.FreshAt < h.now || got.FreshAt > maxInteger {
		h.fatalf("FreshAt %d is out of range", got.FreshAt)
	}
	if (req.Kind == store.KindTake || req.Kind == store.KindPeek) && (!loggedDenial || got.Allowed) {
		h.checkPeek(before, req, got)
	}
	if req.Kind == store.KindTake && got.Allowed && req.Cost > 0 && before.Credit == 0 && !h.changed {
		h.checkRefund(before, req)
	}
	if !got.Allowed && req.Kind != store.KindCharge && req.Kind != store.KindRenew {
		h.checkRetry(req, got)
	}
	h.checkFresh(got)
}

// checkPeek: Peek gives the answer of Take without changing the state.
func (h *history) checkPeek(before State, req Request, got Result) {
	req.Kind = store.KindPeek
	state := clone(&before)
	peek := Step(h.limit.Rule(), &state, h.now, req)
	if shortened := !got.Allowed && got.Wrote; shortened && peek.RetryAfter > got.RetryAfter {
		got.RetryAfter = peek.RetryAfter
	}
	if peek.Allowed != got.Allowed || peek.Reason != got.Reason || peek.RetryAfter != got.RetryAfter {
		h.fatalf("Peek says %s", show(peek))
	}
}

// checkRefund: a take and its return at the same instant restore the state.
func (h *history) checkRefund(before State, req Request) {
	r, state := h.limit.Rule(), clone(&h.state)
	Step(r, &state, h.now, Request{Kind: store.KindRefund, Cost: req.Cost})
	for _, cost := range []int64{0, 1, req.Cost, r.Most()} {
		was, is := clone(&before), clone(&state)
		q := Request{Kind: store.KindPeek, Cost: cost}
		a, b := Step(r, &was, h.now, q), Step(r, &is, h.now, q)
		if r.Algorithm == store.Concurrency {
			b.ResetAfter, b.FreshAt = a.ResetAfter, a.FreshAt // names are not issued twice
		}
		if r.OwnZone {
			b.FreshAt = a.FreshAt // the window is kept
		}
		if a != b {
			h.fatalf("take and refund are not a no-op: before %s, after %s", show(a), show(b))
		}
	}
}

// checkRetry: refused until exactly RetryAfter, allowed at it.
func (h *history) checkRetry(req Request, got Result) {
	retry := int64(got.RetryAfter / time.Microsecond)
	if got.RetryAfter == store.Never || h.now+retry > maxTime {
		return
	}
	r := h.limit.Rule()
	if retry > 0 {
		early := clone(&h.state)
		if res := Step(r, &early, h.now+retry-1, req); res.Allowed {
			h.fatalf("allowed 1µs before RetryAfter: %s", show(res))
		}
	}
	due := clone(&h.state)
	if res := Step(r, &due, h.now+retry, req); !res.Allowed {
		h.fatalf("refused at RetryAfter: %s", show(res))
	}
}

// checkFresh: from FreshAt on, the state gives the answers of an unused one.
func (h *history) checkFresh(got Result) {
	r := h.limit.Rule()
	if reset := micros(got.FreshAt - h.now); got.ResetAfter != reset && (!r.OwnZone || got.ResetAfter > reset) {
		h.fatalf("ResetAfter %v is not FreshAt %d less now", got.ResetAfter, got.FreshAt)
	}
	for _, at := range []int64{got.FreshAt, got.FreshAt + h.rng.Int64N(r.Period)} {
		if at > maxTime {
			return
		}
		old, unused := clone(&h.state), State{}
		for range 3 {
			req := Request{
				Kind: pick(h.rng, store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindCharge, store.KindRefund, store.KindReserve, store.KindDraw),
				Cost: h.randomCost(), Duration: h.randomDuration(),
			}
			a, b := Step(r, &old, at, req), Step(r, &unused, at, req)
			if a.Decision != b.Decision || a.FreshAt != b.FreshAt {
				h.fatalf("at %d, when fresh, %v answers %s, an unused key %s", at, req, show(a), show(b))
			}
			at += h.rng.Int64N(r.Period)
			at = min(at, maxTime)
		}
	}
}

func clone(s *State) State {
	c := *s
	c.Words = slices.Clone(s.Words)
	return c
}

func same(a, b *State) bool {
	return a.V == b.V && a.Credit == b.Credit && a.Until == b.Until && slices.Equal(a.Words, b.Words)
}

// outOfRange returns a number in the state that is not from 0 to 2^53-1. A log entry
// packs two such numbers into one word.
func outOfRange(r *store.Rule, s *State) string {
	numbers := append(s.V[:], s.Credit, s.Until)
	switch r.Algorithm {
	case store.Distinct: // has tests of its own in distinct_test.go
	case store.SlidingLog, store.Concurrency:
		for c, end := s.first(r.Algorithm), s.end(r.Algorithm); c.i < end; {
			count, next := s.entry(r.Algorithm, c)
			numbers = append(numbers, c.at, count)
			c = next
		}
	case store.SlidingBuckets:
		g := s.ring()
		for i := range g.n {
			numbers = append(numbers, g.at(i))
		}
	case store.TokenBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow:
	}
	for _, n := range numbers {
		if n < 0 || n > maxInteger {
			return fmt.Sprintf("the state holds %d", n)
		}
	}
	return ""
}

// everyAlgorithm returns the algorithms that count a rate, and the one that counts
// requests in progress.
func everyAlgorithm() []store.Algorithm {
	return append(store.Algorithms(), store.Concurrency)
}

func show(r Result) string {
	d := r.Decision
	verdict := "refused"
	if d.Allowed {
		verdict = "allowed"
	}
	retry := d.RetryAfter.String()
	if d.RetryAfter == store.Never {
		retry = "never"
	}
	return fmt.Sprintf("%s (%s) limit %d remaining %d granted %d retry %s reset %s delay %s lease %d counts until %d fresh at %d",
		verdict, d.Reason, d.Limit, d.Remaining, d.Granted, retry, d.ResetAfter, d.Delay, d.Lease, d.CountsUntil, r.FreshAt)
}

func showState(s *State) string {
	words := fmt.Sprint(s.Words)
	if len(s.Words) > 20 {
		words = fmt.Sprintf("%d words", len(s.Words))
	}
	return fmt.Sprintf("V %v %s credit %d until %d", s.V, words, s.Credit, s.Until)
}

func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return z
}

// TestOracle compares Step with the oracle over random histories.
func TestOracle(t *testing.T) {
	for _, a := range everyAlgorithm() {
		t.Run(a.String(), func(t *testing.T) {
			rng := newRand(t)
			for range *runsFlag {
				h := &history{T: t, rng: rng, limit: randomLimit(rng, a), oracle: newOracle()}
				h.now = pick(rng, t0, t0, t0, near(rng, 0, maxTime), 0, maxTime)
				fmt.Fprintf(&h.trace, "%s %+v\n", h.limit, *h.limit.Rule())
				h.run(40)
			}
		})
	}
}

// t0 is the time at which the tests start: 2026-01-01 00:00 UTC.
const t0 = 1_767_225_600_000_000
