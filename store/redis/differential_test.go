package redis_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

var (
	differentialOps  = flag.Int64("differential.ops", 50_000, "how many operations TestDifferential compares")
	differentialSeed = flag.Uint64("differential.seed", 0, "seed of TestDifferential; random if 0")
)

// TestDifferentialOfManyValues is TestDifferential for keys with more than 4096 values,
// which both sides keep, or estimate if the limit only measures.
func TestDifferentialOfManyValues(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{6000, store.MaxDistinctExact + 1} {
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) { differentialOfManyValues(t, n) })
	}
}

func differentialOfManyValues(t *testing.T, n int64) {
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, CallerTime: true, Timeout: patient})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	limit := headgate.PerCalendar(n, store.Year, nil).WithAlgorithm(store.Distinct)
	var state algorithm.State
	for i := range 9000 {
		op := store.Op{Key: "many", Rule: limit.Rule(), Cost: 1, At: 1_767_225_600_000_000 + int64(i), Member: 1 + rng.Uint64N(1<<52-1)}
		switch rng.IntN(20) {
		case 0:
			op.Kind, op.Duration = store.Kind(rng.IntN(int(store.KindReset))), time.Hour
		case 1:
			op.Kind, op.Member = store.KindPeek, 0
		}
		want := algorithm.Step(limit.Rule(), &state, op.At, algorithm.RequestOf(&op))
		got, freshAt, err := db.TakeFreshAt(context.Background(), op)
		if err != nil || got != want.Decision || freshAt != want.FreshAt {
			t.Fatalf("op %d, %s: %v\n got %+v fresh at %d\nwant %+v fresh at %d", i, op.Kind, err, got, freshAt, want.Decision, want.FreshAt)
		}
	}
	if state.V[0] < 6000 {
		t.Errorf("only %d values", state.V[0])
	}
}

// TestDifferential compares Lua with Go: for random operations on random rules, all
// fields of the decision and the time of freshness must agree. Each key has its own
// history with its own seed, which a failure reports.
func TestDifferential(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	store := open(t, redis.Options{Addresses: []string{server.Addr}, CallerTime: true, Timeout: patient})
	seed := *differentialSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	const workers = 48
	var number, done, mismatches atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for done.Load() < *differentialOps && mismatches.Load() == 0 {
				n := number.Add(1)
				s := &story{rng: rand.New(rand.NewPCG(seed, uint64(n))), store: store, key: fmt.Sprintf("story %d", n)}
				if err := s.run(); err != nil {
					mismatches.Add(1)
					t.Errorf("seed %d, story %d: %v", seed, n, err)
				}
				done.Add(s.ops)
			}
		})
	}
	group.Wait()
	t.Logf("%d operations on %d keys", done.Load(), number.Load())
}

// story is the history of one key.
type story struct {
	rng   *rand.Rand
	store *redis.Store
	key   string
	// leases are some of those issued.
	leases []int64
	taken  []int64 // until when some takes count
	now    int64
	ops    int64
}

// run creates a few limits of one algorithm, and random ops under them.
func (s *story) run() error {
	a := store.Algorithm(s.rng.IntN(int(store.Distinct) + 1))
	s.leases, s.taken = s.leases[:0], s.taken[:0]
	limits := make([]headgate.Limit, 1+s.rng.IntN(3))
	for i := range limits {
		limits[i] = s.limit(a)
	}
	length := 20 + s.rng.IntN(100)
	if s.rng.IntN(40) == 0 {
		length = 1500 // long logs are stored differently
	}
	s.now = s.begin()
	var state algorithm.State
	limit := limits[0]
	for range length {
		if s.rng.IntN(25) == 0 {
			limit = limits[s.rng.IntN(len(limits))]
		}
		s.tick(&limit)
		if limit.Rule().OwnZone && s.rng.IntN(3) == 0 {
			limit = limit.WithZone(s.zone())
		}
		op := s.op(limit, length > 1000)
		want := algorithm.Step(limit.Rule(), &state, op.At, algorithm.RequestOf(&op))
		got, freshAt, err := s.store.TakeFreshAt(context.Background(), op)
		s.ops++
		switch {
		case err != nil:
			return fmt.Errorf("op %d: %s at %d of %s: %w", s.ops, op.Kind, op.At, limit, err)
		case got != want.Decision || freshAt != want.FreshAt:
			return fmt.Errorf("op %d: %s %d for %s, counted until %d, at %d of %s, now %+v\n got %+v fresh at %d\nwant %+v fresh at %d",
				s.ops, op.Kind, op.Cost, op.Duration, op.CountsUntil, op.At, limit, state, got, freshAt, want.Decision, want.FreshAt)
		}
		if got.CountsUntil != 0 {
			s.taken = append(s.taken[max(len(s.taken)-20, 0):], got.CountsUntil)
		}
		if got.Lease != 0 {
			s.leases = append(s.leases[max(len(s.leases)-200, 0):], got.Lease)
		}
	}
	_, err := store.Execute(context.Background(), s.store, store.Op{Key: s.key, Scope: "s", Rule: limit.Rule(), Kind: store.KindReset, At: s.now})
	return err
}

func (s *story) begin() int64 {
	switch s.rng.IntN(12) {
	case 0:
		return s.rng.Int64N(1e9)
	case 1:
		return 1<<52 - s.rng.Int64N(1e9)
	}
	return 1_767_225_600_000_000 + s.rng.Int64N(1e15)/1_000_000*s.rng.Int64N(1_000_000)
}

// magnitude returns a number from 0 to 2^bits, small ones as often as large ones.
func (s *story) magnitude(bits int) int64 {
	return s.rng.Int64N(1 << (1 + s.rng.IntN(bits)))
}

func (s *story) period() time.Duration {
	round := []time.Duration{
		time.Millisecond, time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, store.MaxPeriod,
	}
	if s.rng.IntN(2) == 0 {
		return round[s.rng.IntN(len(round))]
	}
	return time.Duration(1+s.magnitude(44)) * time.Microsecond
}

func (s *story) limit(a store.Algorithm) headgate.Limit {
	for {
		n := s.magnitude(10)
		switch {
		case a == store.SlidingLog && s.rng.IntN(3) == 0:
			n = s.magnitude(20)
		case a == store.Concurrency && s.rng.IntN(3) == 0:
			n = s.magnitude(16)
		case s.rng.IntN(4) == 0:
			n = s.magnitude(40)
		}
		l := headgate.Per(n, s.period()).WithAlgorithm(a)
		switch a {
		case store.TokenBucket, store.LeakyBucket:
			if s.rng.IntN(2) == 0 {
				l = l.WithBurst(1 + s.magnitude(20))
			}
			if a == store.LeakyBucket && s.rng.IntN(2) == 0 && l.Burst() > 0 {
				l = l.WithDelayAfter(1 + s.rng.Int64N(l.Burst()))
			}
			if a == store.LeakyBucket && s.rng.IntN(2) == 0 {
				l = l.WithMaxWait(time.Duration(1+s.magnitude(40)) * time.Microsecond)
			}
			if a == store.TokenBucket && s.rng.IntN(2) == 0 {
				l = l.WithRefillEvery(l.Period()/time.Duration(1+s.magnitude(8))/time.Microsecond*time.Microsecond + time.Duration(s.rng.IntN(2))*time.Microsecond)
			}
		case store.FixedWindow, store.Distinct:
			l = s.anchored(l)
		case store.SlidingBuckets:
			if s.rng.IntN(3) > 0 {
				l = l.WithBuckets(1+int(s.magnitude(9)), store.Edge(s.rng.IntN(3)))
			}
		case store.SlidingLog, store.SlidingWindow, store.Concurrency:
		}
		if a >= store.FixedWindow && a <= store.SlidingBuckets && s.rng.IntN(3) == 0 {
			l = l.WithRefusalsCounted()
		}
		if l.Rule().Valid() {
			return l
		}
	}
}

// member returns a value: often one of about as many as the limit allows.
func (s *story) member(l *headgate.Limit, long bool) uint64 {
	values := 2*min(l.N(), 1000) + 2
	if long {
		values = 1 << 40
	}
	if s.rng.IntN(50) == 0 {
		return 1<<52 - 1 // the largest
	}
	return store.MemberOf([16]byte{}, strconv.FormatInt(s.rng.Int64N(values), 10))
}

func (s *story) anchored(l headgate.Limit) headgate.Limit {
	switch s.rng.IntN(3) {
	case 0:
		return l.WithAnchor(store.AnchorFirstRequest)
	case 1:
		l = headgate.PerCalendar(l.N(), store.CalendarUnit(1+s.rng.IntN(int(store.Year))), s.zone()).WithAlgorithm(l.Algorithm())
		if s.rng.IntN(2) == 0 {
			l = l.WithZone(s.zone())
		}
	}
	return l
}

// zone returns one of a few zones: far apart, at half hours, with rare clock changes.
func (s *story) zone() *time.Location {
	zones := zones()
	return zones[s.rng.IntN(len(zones))]
}

var zones = sync.OnceValue(func() (zones []*time.Location) {
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Kiritimati", "Etc/GMT+12",
		"Asia/Kathmandu", "Pacific/Apia", "Antarctica/Casey", "Africa/Cairo", "America/Los_Angeles",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		zones = append(zones, zone)
	}
	return zones
})

// tick moves the time: not at all, a little, by a part of the period, or backwards.
func (s *story) tick(l *headgate.Limit) {
	period := l.Period().Microseconds()
	switch s.rng.IntN(9) {
	case 0:
	case 1:
		s.now++
	case 2:
		s.now -= s.rng.Int64N(period/10 + 2)
	case 3:
		s.now += s.rng.Int64N(3*period + 1)
	case 4:
		s.now = s.now/period*period + period - s.rng.Int64N(2) // an edge
	default:
		s.now += s.rng.Int64N(period/max(l.N(), 1)*2 + 2)
	}
	s.now = min(max(s.now, 1), 1<<52)
}

func (s *story) op(l headgate.Limit, long bool) store.Op {
	kinds := []store.Kind{
		store.KindTake, store.KindTake, store.KindTake, store.KindTake, store.KindTakeUpTo, store.KindPeek, store.KindCharge,
		store.KindRefund, store.KindGrant, store.KindReserve, store.KindDraw, store.KindDraw,
	}
	op := store.Op{Key: s.key, Scope: "s", Rule: l.Rule(), At: s.now, Cost: 1, Kind: kinds[s.rng.IntN(len(kinds))]}
	op.Member = s.member(&l, long)
	if len(s.leases) > 0 && s.rng.IntN(4) == 0 {
		op.Lease = s.leases[s.rng.IntN(len(s.leases))]
		op.Kind = store.KindRelease + store.Kind(s.rng.IntN(2))
		return op
	}
	if long && s.rng.IntN(30) > 0 {
		op.Kind = store.KindTake
		return op
	}
	if s.rng.IntN(60) == 0 {
		op.Kind = store.KindReset
	}
	n := l.Burst()
	switch s.rng.IntN(10) {
	case 0:
		op.Cost = 0
	case 1:
		op.Cost = n
	case 2:
		op.Cost = n + 1
	case 3, 4:
		op.Cost = s.rng.Int64N(n/2 + 2)
	case 5:
		op.Cost = s.magnitude(62)
	}
	if s.rng.IntN(200) == 0 {
		op.Cost = math.MaxInt64
	}
	switch s.rng.IntN(5) {
	case 0:
		op.Duration = time.Duration(s.magnitude(62))
	case 1:
		op.Duration = time.Duration(s.rng.Int64N(int64(l.Period())*2 + 1))
	case 2:
		op.Duration = -time.Duration(s.magnitude(30))
	}
	if n := len(s.taken); n > 0 && op.Kind == store.KindRefund && s.rng.IntN(3) > 0 {
		op.CountsUntil = s.taken[s.rng.IntN(n)]
		if s.rng.IntN(8) == 0 {
			op.CountsUntil = max(op.CountsUntil+s.magnitude(40)-s.magnitude(40), 0)
		}
	}
	return op
}

// TestDifferentialOfShares compares the price and both steps of shares, for random buckets,
// horizons and weights: all fields of the decision.
func TestDifferentialOfShares(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	db := open(t, redis.Options{Addresses: []string{server.Addr}, CallerTime: true, Timeout: patient})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, refused := &story{rng: rand.New(rand.NewPCG(seed, 1)), store: db}, 0
	for i := range 60 {
		limit := s.limit(store.TokenBucket)
		fair, err := store.NewFair(limit.Rule(), time.Second+time.Duration(s.magnitude(46)))
		if err != nil {
			continue
		}
		s.key, s.now = fmt.Sprintf("shared %d", i), s.begin()
		hammers := limit.Rule().Period >= 64 && i%2 == 0 // one, until it is over its share
		var bucket algorithm.State
		owners := make([]algorithm.State, 3)
		for range 60 {
			if hammers {
				s.now += s.rng.Int64N(limit.Rule().Period / 64)
			} else if s.tick(&limit); s.rng.IntN(3) == 0 {
				s.now += s.rng.Int64N(fair.Time.Period / 4)
			}
			s.now = min(s.now, 1<<52)
			op, owner := s.op(limit, false), s.rng.IntN(len(owners))
			if hammers && s.rng.IntN(8) > 0 {
				owner, op.Kind, op.Cost, op.Duration = 0, store.KindTake, 1+s.rng.Int64N(limit.Burst()/4), 0
			}
			op.Share = &store.Share{Fair: fair, Of: strconv.Itoa(owner), Weight: 1 + s.rng.Int64N(store.MaxWeight)}
			if s.rng.IntN(2) == 0 {
				op.Share.Weight = 1
			}
			if op.Kind == store.KindTakeUpTo || op.Kind == store.KindReserve || op.Kind == store.KindDraw {
				op.Kind = store.KindTake
			}
			was := owners[owner]
			var want algorithm.Result
			if op.Shared() != nil {
				want, _ = algorithm.StepShared(limit.Rule(), &bucket, &owners[owner], op.At, algorithm.RequestOf(&op), op.Share)
			} else {
				want = algorithm.Step(limit.Rule(), &bucket, op.At, algorithm.RequestOf(&op))
			}
			got, err := store.Execute(context.Background(), db, op)
			if err != nil || got != want.Decision {
				t.Fatalf("%s %d for %s at %d of %s, weight %d, of a horizon of %s, %v: %v\n got %+v\nwant %+v",
					op.Kind, op.Cost, op.Duration, op.At, limit, op.Share.Weight, time.Duration(fair.Time.Period)*time.Microsecond, was.V, err, got, want.Decision)
			}
			if got.Reason == store.ReasonShare {
				refused++
			}
		}
	}
	if t.Logf("%d refused for their share", refused); refused < 10 {
		t.Error("too few to say much")
	}
}
