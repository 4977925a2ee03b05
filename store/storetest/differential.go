package storetest

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func differentialCases() []testCase {
	return []testCase{
		{"DifferentialTakes", func(s *session) { differential(s, 6000, 0) }},
		{"DifferentialBatches", func(s *session) { differential(s, 2000, 2) }},
	}
}

// world drives a session with random requests.
type world struct {
	*session
	rng    *rand.Rand
	limits []headgate.Limit
	now    int64
	leases []int64 // some of those issued
	taken  []int64 // until when some takes count
	latest int64   // the latest time of any op
}

// differential runs random ops of every kind on a few keys, scopes and limits and
// compares every field with the model's. batch is the share of Do in thirds.
func differential(s *session, steps, batch int) {
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	w := &world{
		session: s, rng: rand.New(rand.NewPCG(seed, 1)), limits: randomLimits(), now: t0, latest: t0,
	}
	for range steps {
		w.tick()
		if w.rng.IntN(3) >= batch {
			ops := []store.Op{w.op()}
			w.clear(store.Independent, ops)
			w.note(w.take(ops[0]))
			continue
		}
		w.now = max(w.now, w.latest) // all of a batch have one time
		ops := make([]store.Op, 1+w.rng.IntN(6))
		for i := range ops {
			ops[i] = w.op()
		}
		mode := store.AllOrNothing
		if w.rng.IntN(3) == 0 {
			mode = store.Independent
		}
		w.clear(mode, ops)
		w.note(w.do(mode, ops...)...)
	}
}

// note stores what was taken.
func (w *world) note(decisions ...store.Decision) {
	for _, d := range decisions {
		if d.Lease != 0 {
			w.leases = append(w.leases[max(len(w.leases)-30, 0):], d.Lease)
		}
		if d.CountsUntil != 0 {
			w.taken = append(w.taken[max(len(w.taken)-30, 0):], d.CountsUntil)
		}
	}
}

func randomLimits() []headgate.Limit {
	limits := append(everyAlgorithm(5), everyAlgorithm(100)...)
	limits = append(
		limits,
		headgate.PerSecond(100).WithBurst(500), headgate.PerSecond(8).WithRefillEvery(250*time.Millisecond), headgate.PerMinute(7).WithBurst(20).WithRefillEvery(11*time.Second), headgate.Per(3, 7*time.Millisecond).WithBurst(2), headgate.PerSecond(0),
		headgate.Per(store.MaxLimit, 24*time.Hour), headgate.Per(7, 13*time.Second).WithAlgorithm(store.LeakyBucket).WithBurst(3),
		headgate.Per(7, 13*time.Second).WithAlgorithm(store.LeakyBucket).WithBurst(9).WithDelayAfter(4), headgate.PerSecond(10).WithAlgorithm(store.LeakyBucket).WithBurst(20).WithDelayAfter(5).WithMaxWait(900*time.Millisecond),
		headgate.PerSecond(3).WithAlgorithm(store.FixedWindow), headgate.PerHour(3).WithAlgorithm(store.SlidingWindow),
		headgate.PerSecond(2).WithAlgorithm(store.SlidingLog), headgate.PerSecond(9).WithAlgorithm(store.SlidingBuckets),
		headgate.Concurrent(9).WithLease(time.Second), headgate.Concurrent(3).WithLease(time.Minute), headgate.Concurrent(3000),
		headgate.PerMinute(5).WithAlgorithm(store.Distinct), headgate.PerSecond(3).WithAlgorithm(store.Distinct).WithAnchor(store.AnchorFirstRequest),
		headgate.PerCalendar(6, store.Hour, nil).WithAlgorithm(store.Distinct),
		headgate.Unlimited(),
	)
	return limits
}

func (w *world) tick() {
	switch w.rng.IntN(10) {
	case 0, 1, 2:
	case 3:
		w.now++
	case 4:
		w.now += w.rng.Int64N(3 * minute)
	case 5:
		w.now -= w.rng.Int64N(10 * second)
	default:
		w.now += w.rng.Int64N(2 * second)
	}
	if w.rng.IntN(300) == 0 {
		w.now += w.rng.Int64N(2 * day)
	}
	if w.ownClock() {
		w.now = max(w.now, w.h.Now())
	}
}

func (w *world) op() store.Op {
	op := store.Op{
		Key: pick(w.rng, "a", "b", "c"), Scope: pick(w.rng, "", "s"), At: w.now,
		Rule: pick(w.rng, w.limits...).Rule(),
		Cost: pick[int64](w.rng, 0, 1, 1, 1, 2, 3, 5, 6, 50, 101, w.rng.Int64N(600), math.MaxInt64),
		Kind: pick(w.rng, store.KindTake, store.KindTake, store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindCharge,
			store.KindRefund, store.KindRefund, store.KindGrant, store.KindReset, store.KindReserve, store.KindRelease, store.KindRenew, store.KindDraw, store.KindDraw),
		Duration: pick(w.rng, 0, time.Microsecond, time.Duration(w.rng.Int64N(int64(time.Minute))), time.Duration(math.MaxInt64)),
	}
	if w.rng.IntN(4) == 0 {
		op.Rule = headgate.LimitOf(op.Rule).WithName("n").Rule()
	}
	if op.Cost == math.MaxInt64 && w.rng.IntN(3) > 0 {
		op.Cost = 4
	}
	if n := len(w.leases); n > 0 && (op.Kind == store.KindRelease || op.Kind == store.KindRenew) {
		op.Lease = w.leases[w.rng.IntN(n)]
	}
	if len(w.taken) > 0 && op.Kind == store.KindRefund && w.rng.IntN(2) == 0 {
		op.CountsUntil = pick(w.rng, w.taken...)
	}
	op.Member = 1 + w.rng.Uint64N(12)
	w.keepDefined(&op)
	if (op.Kind == store.KindTake || op.Kind == store.KindPeek) && op.Rule.CanKeep() && w.rng.IntN(2) == 0 {
		op.Leave = pick[uint32](w.rng, 1, 200_000, 300_000, store.Whole)
	} else if op.Kind == store.KindTakeUpTo || op.Kind == store.KindReserve || op.Kind == store.KindDraw {
		return op
	} else if fair, err := store.NewFair(op.Rule, pick(w.rng, 2*time.Second, time.Minute, time.Hour)); err == nil {
		op.Share = &store.Share{Fair: fair, Of: pick(w.rng, "", "x", "a~b", strings.Repeat("y", 70)), Weight: pick[int64](w.rng, 1, 2, 5, store.MaxWeight)}
	}
	return op
}

// keepDefined changes an op whose answer would depend on whether the store has already
// forgotten a state that it may forget: the op must not go back to before that, nor may
// another limit revive the state or a grant keep it alive.
func (w *world) keepDefined(op *store.Op) {
	e := w.model.states[idOf(op)]
	if e != nil && !e.unused() && !op.Rule.Unlimited && e.freshAt <= max(w.latest, op.At) {
		op.At = max(w.latest, op.At)
		op.Rule = e.limit.Rule()
		if op.Kind == store.KindGrant {
			op.Kind = store.KindReset
		}
	}
	w.now = op.At
	w.latest = max(w.latest, op.At)
}

// clear turns ops into resets if the answer to one of them is not the same for all stores.
// keepDefined leaves that possible: a state that was over and is used again may still have
// what is over, which another limit, or one whose clock goes back, sees.
func (w *world) clear(mode store.Mode, ops []store.Op) {
	if w.model.isClear(ops, mode) {
		return
	}
	for i := range ops {
		ops[i].Kind = store.KindReset
	}
}

func pick[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }
