package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/chaos/history"
	"github.com/headgate/headgate/store"
)

// world is a simulated store, callers and clock, in which bugs can be planted. A seed makes it
// reproducible.
type world struct {
	rand    *rand.Rand
	bug     bug
	limits  []history.Limit
	rules   map[string]*store.Rule
	states  map[string]*algorithm.State
	before  map[string][]version // older states, for stale reads
	history history.History
	begin   int64
	floor   int64 // of the store's clock
	held    []holding
}

type version struct {
	at    int64
	state algorithm.State
}

type holding struct {
	op, was int
	key     string
	limits  []string
	taken   int64
	lease   int64 // name of the lease; 0 for a reservation
}

// bug is an error in the store.
type bug string

const (
	none           bug = "none"
	lostUpdate     bug = "one in thirty writes is lost"
	doubleCharge   bug = "one in thirty takes is charged twice"
	staleRead      bug = "one in five requests is refused by what was true 700 ms ago"
	freshBudget    bug = "a restart forgets all counts"
	tooMuchLost    bug = "a crash loses more than may be lost"
	clockBack      bug = "the store's clock goes back by 1.5 s"
	clockAhead     bug = "the store's clock goes ahead by 1.5 s"
	halfCharged    bug = "a refused request is charged to the limits that had room"
	retryTooSoon   bug = "RetryAfter is rounded down"
	retryTooLate   bug = "RetryAfter is 5 ms too long"
	chargedRefused bug = "one in ten refusals is counted"
	settledTwice   bug = "a second cancel gives back again"
	wrongGivenBack bug = "a cancel gives back the newest take"
	neverReleased  bug = "one in five releases is lost"
	roundedUp      bug = "Remaining is one too many, one time in ten"
)

// limits under test: small, with periods that pass several times.
func limits() []history.Limit {
	const s = 1_000_000
	return []history.Limit{
		{Name: "token", Algorithm: history.TokenBucket, Count: 5, Period: 2 * s, Burst: 6},
		{Name: "leaky", Algorithm: history.LeakyBucket, Count: 4, Period: s, Burst: 6},
		{Name: "fixed", Algorithm: history.FixedWindow, Count: 6, Period: 2 * s},
		{Name: "log", Algorithm: history.SlidingLog, Count: 6, Period: 2 * s},
		{Name: "window", Algorithm: history.SlidingWindow, Count: 6, Period: 2 * s},
		{Name: "weighted", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "weighted"},
		{Name: "strict", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "strict"},
		{Name: "lenient", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "lenient"},
		{Name: "places", Algorithm: history.Places, Count: 4, Period: s},
	}
}

// compiled returns the limiter's form of a limit.
func compiled(t *testing.T, l *history.Limit) *store.Rule {
	t.Helper()
	limit := headgate.Per(l.Count, time.Duration(l.Period)*time.Microsecond)
	switch l.Algorithm {
	case history.TokenBucket:
		limit = limit.WithBurst(l.Burst)
	case history.LeakyBucket:
		limit = limit.WithAlgorithm(headgate.LeakyBucket).WithBurst(l.Burst)
	case history.FixedWindow:
		limit = limit.WithAlgorithm(headgate.FixedWindow)
	case history.SlidingLog:
		limit = limit.WithAlgorithm(headgate.SlidingLog)
	case history.SlidingWindow:
		limit = limit.WithAlgorithm(headgate.SlidingWindow)
	case history.SlidingBuckets:
		edge := map[string]headgate.Edge{"weighted": headgate.EdgeWeighted, "strict": headgate.EdgeStrict, "lenient": headgate.EdgeLenient}[l.Edge]
		limit = limit.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(int(l.Buckets), edge)
	}
	if l.Algorithm == history.Places {
		limit = headgate.Concurrent(l.Count).WithLease(time.Duration(l.Period) * time.Microsecond)
	}
	if err := limit.Validate(); err != nil {
		t.Fatal(err)
	}
	return limit.Rule()
}

func newWorld(t *testing.T, seed uint64, b bug) *world {
	t.Helper()
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 0)), bug: b, limits: limits(),
		rules: make(map[string]*store.Rule), states: make(map[string]*algorithm.State), before: make(map[string][]version),
		begin: 1_700_000_000_000_000,
	}
	w.history = history.History{Seed: seed, Limits: w.limits}
	for i := range w.limits {
		w.rules[w.limits[i].Name] = compiled(t, &w.limits[i])
	}
	return w
}

const (
	callers  = 6
	lasting  = 12 * 1_000_000 // of the traffic
	crashes  = 6 * 1_000_000  // when the store is restarted or its clock is set
	mayLose  = 1 * 1_000_000  // how much a crash may lose
	tellThem = 1_000_000      // what the bug tooMuchLost loses besides
)

// run runs the callers. Each op is called, applied and answered at separate times, and applied
// in order of the second.
func (w *world) run() *history.History {
	free := make([]int64, callers)
	for i := range free {
		free[i] = w.begin + w.rand.Int64N(50_000)
	}
	type pending struct {
		op history.Op
		at int64
	}
	var ops []pending
	for {
		c := slices.Index(free, slices.Min(free))
		if free[c] > w.begin+lasting {
			break
		}
		op := w.draw(c, free[c])
		at := op.Call + w.latency()
		op.Return = at + w.latency()
		free[c] = op.Return + w.rand.Int64N(120_000)
		ops = append(ops, pending{op, at})
	}
	slices.SortFunc(ops, func(a, b pending) int { return int(a.at - b.at) })
	crashed := false
	for i := range ops {
		op := &ops[i].op
		op.ID = i + 1
		if !crashed && ops[i].at > w.begin+crashes {
			crashed = true
			w.crash(ops[i].at)
		}
		w.apply(op, ops[i].at)
		w.history.Ops = append(w.history.Ops, *op)
	}
	return &w.history
}

// latency is mostly below a millisecond, and sometimes long.
func (w *world) latency() int64 {
	if w.rand.IntN(40) == 0 {
		return w.rand.Int64N(60_000)
	}
	return 50 + w.rand.Int64N(800)
}

// draw returns a call.
func (w *world) draw(client int, at int64) history.Op {
	op := history.Op{Client: client, Kind: history.Take, Cost: 1 + w.rand.Int64N(2), Call: at}
	switch n := w.rand.IntN(len(w.limits) + 5); {
	case n < len(w.limits)-1:
		op.Limits = []string{w.limits[n].Name}
	case n == len(w.limits):
		op.Limits = []string{"log", "token"}
	case n%2 == 0:
		op.Limits, op.Kind = []string{"places"}, history.Acquire
	default:
		op.Limits, op.Kind = []string{"log"}, history.Reserve
	}
	op.Key = fmt.Sprintf("%v-%s-%d", op.Limits, op.Kind, w.rand.IntN(2))
	if op.Kind == history.Take && w.rand.IntN(8) == 0 {
		op.Kind = history.Peek
	}
	return op
}

func (w *world) state(key, limit string) *algorithm.State {
	name := key + "/" + limit
	if w.states[name] == nil {
		w.states[name] = new(algorithm.State)
	}
	return w.states[name]
}

func copied(s *algorithm.State) algorithm.State {
	c := *s
	c.Words = slices.Clone(s.Words)
	return c
}

// now is the store's clock.
func (w *world) now(at int64) int64 {
	if at > w.begin+crashes {
		switch w.bug {
		case clockBack:
			return at - 1_500_000
		case clockAhead:
			return at + 1_500_000
		}
	}
	return at
}

// crash is the event in the middle.
func (w *world) crash(at int64) {
	switch w.bug {
	case freshBudget:
		clear(w.states)
	case tooMuchLost:
		lost := history.Op{Kind: history.Lost, Call: at, Return: at, Since: at - mayLose, Client: callers}
		w.history.Ops = append(w.history.Ops, lost)
		for name, versions := range w.before {
			old := algorithm.State{}
			for _, v := range versions {
				if v.at < at-mayLose-tellThem {
					old = v.state
				}
			}
			*w.states[name] = copied(&old)
		}
	}
}

// apply does what a store does, including the bug.
func (w *world) apply(op *history.Op, at int64) {
	if (op.Kind == history.Reserve || op.Kind == history.Acquire) && len(w.held) > 0 && w.rand.IntN(2) == 0 {
		w.settle(op, at)
		return
	}
	if w.rand.IntN(60) == 0 { // the answer is lost, and perhaps the call
		if w.rand.IntN(2) == 0 {
			w.answer(op, at)
		}
		op.Answer, op.Return = nil, w.begin+lasting+1_000_000
		return
	}
	answer, lease := w.answer(op, at)
	op.Answer = answer
	if (op.Kind == history.Reserve || op.Kind == history.Acquire) && op.Answer.Allowed {
		w.held = append(w.held, holding{op: op.ID, was: int(op.Cost), key: op.Key, limits: op.Limits, taken: at, lease: lease})
	}
}

// settle cancels a reservation, or releases or renews a lease.
func (w *world) settle(op *history.Op, at int64) {
	i := w.rand.IntN(len(w.held))
	x := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	op.Kind, op.Of, op.Was, op.Cost = history.Cancel, x.op, int64(x.was), 0
	op.Key, op.Limits = x.key, x.limits
	op.Answer = &history.Answer{Allowed: true}
	op.Call = max(op.Call, at-50) // a caller cannot settle before it got its answer
	r := w.rules[x.limits[0]]
	if x.lease != 0 {
		w.leave(op, x, at)
		return
	}
	left := time.Duration(x.taken+r.Period-at) * time.Microsecond
	times := 1
	switch w.bug {
	case settledTwice:
		times = 2
	case wrongGivenBack:
		left = 0
	}
	for range times {
		if left >= 0 {
			algorithm.Step(r, w.state(x.key, x.limits[0]), w.now(at), algorithm.Request{Kind: store.KindRefund, Cost: int64(x.was), Duration: left})
		}
	}
}

// leave releases a lease, or renews it.
func (w *world) leave(op *history.Op, x holding, at int64) {
	req := algorithm.Request{Kind: store.KindRelease, Cost: int64(x.was), Lease: x.lease}
	op.Kind = history.Release
	if w.rand.IntN(3) == 0 {
		op.Kind, op.Cost, req.Kind = history.Renew, int64(x.was), store.KindRenew
	}
	if w.bug == neverReleased && op.Kind == history.Release && w.rand.IntN(5) == 0 {
		return
	}
	res := algorithm.Step(w.rules["places"], w.state(x.key, "places"), w.now(at), req)
	op.Answer.Allowed = res.Granted > 0
	if op.Kind == history.Renew && op.Answer.Allowed {
		w.held = append(w.held, holding{op: op.ID, was: x.was, key: x.key, limits: x.limits, taken: at, lease: res.Lease})
	}
}

// answer steps every limit, all or nothing.
func (w *world) answer(op *history.Op, at int64) (answer *history.Answer, lease int64) {
	now := w.now(at)
	kind := store.KindTake
	if op.Kind == history.Peek {
		kind = store.KindPeek
	}
	old := make([]algorithm.State, len(op.Limits))
	results := make([]algorithm.Result, len(op.Limits))
	refusing := -1
	for i, name := range op.Limits {
		s := w.state(op.Key, name)
		old[i] = copied(s)
		if w.bug == staleRead && w.rand.IntN(5) == 0 {
			stale := w.stale(op.Key+"/"+name, at-700_000)
			if res := algorithm.Step(w.rules[name], &stale, now, algorithm.Request{Kind: store.KindPeek, Cost: op.Cost}); !res.Allowed {
				results[i], refusing = res, i
				continue
			}
		}
		results[i] = algorithm.Step(w.rules[name], s, now, algorithm.Request{Kind: kind, Cost: op.Cost})
		if !results[i].Allowed && refusing < 0 {
			refusing = i
		}
	}
	named := w.tightest(results)
	if refusing >= 0 {
		named = refusing
	}
	for i, name := range op.Limits {
		s := w.state(op.Key, name)
		switch {
		case refusing >= 0 && w.bug == chargedRefused && w.rand.IntN(10) == 0:
			algorithm.Step(w.rules[name], s, now, algorithm.Request{Kind: store.KindCharge, Cost: op.Cost})
		case refusing >= 0 && w.bug != halfCharged:
			*s = old[i]
		case kind == store.KindTake && w.bug == lostUpdate && w.rand.IntN(30) == 0:
			*s = old[i]
		case kind == store.KindTake && w.bug == doubleCharge && w.rand.IntN(30) == 0:
			algorithm.Step(w.rules[name], s, now, algorithm.Request{Kind: store.KindTake, Cost: op.Cost})
		}
		w.before[op.Key+"/"+name] = append(w.before[op.Key+"/"+name], version{at, copied(s)})
	}
	return w.told(&results[named], op.Limits[named]), results[named].Lease
}

func (w *world) tightest(results []algorithm.Result) (named int) {
	for i := range results {
		if results[i].Remaining < results[named].Remaining {
			named = i
		}
	}
	return named
}

func (w *world) stale(name string, at int64) (old algorithm.State) {
	for _, v := range w.before[name] {
		if v.at <= at {
			old = v.state
		}
	}
	return copied(&old)
}

// told is the decision as the caller sees it.
func (w *world) told(res *algorithm.Result, rule string) *history.Answer {
	up := func(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
	a := &history.Answer{
		Allowed: res.Allowed, Rule: rule, Limit: res.Limit, Remaining: res.Remaining,
		Retry: up(res.RetryAfter), Reset: up(res.ResetAfter), Delay: up(res.Delay),
	}
	switch {
	case w.bug == retryTooSoon && !a.Allowed:
		a.Retry = max(int64(res.RetryAfter/time.Millisecond), 1)
	case w.bug == retryTooLate && !a.Allowed:
		a.Retry += 5
	case w.bug == roundedUp && w.rand.IntN(10) == 0:
		a.Remaining++
	}
	return a
}

const patience = 20 * time.Second

// TestARightStoreHasAnOrder: the model accepts a correct store, whatever happens to its
// callers.
func TestARightStoreHasAnOrder(t *testing.T) {
	for seed := range uint64(10) {
		report, err := history.Check(newWorld(t, seed, none).run(), history.Options{Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Faults) > 0 || len(report.Undecided) > 0 {
			t.Errorf("seed %d: %d faults in %d keys, such as %v; undecided %v", seed, len(report.Faults), report.Keys, report.Faults, report.Undecided)
		}
	}
}

// TestPlantedBugsAreFound: each is found with any of five seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, b := range []bug{
		lostUpdate, doubleCharge, staleRead, freshBudget, tooMuchLost, clockBack, clockAhead, halfCharged,
		retryTooSoon, retryTooLate, chargedRefused, settledTwice, wrongGivenBack, neverReleased, roundedUp,
	} {
		t.Run(string(b), func(t *testing.T) {
			for seed := range uint64(5) {
				report, err := history.Check(newWorld(t, seed, b).run(), history.Options{Patience: patience})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("seed %d: %d of %d keys: %v", seed, len(report.Faults), report.Keys, report.Faults)
				if len(report.Faults) == 0 {
					t.Errorf("seed %d: not found", seed)
				}
			}
		})
	}
}
