package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// clockInKey makes TIME return the microseconds in the key "clock".
const clockInKey = `local redis = (function(redis)
  local call = redis.call
  return setmetatable({call = function(command, ...)
    if command == 'TIME' then
      local now = tonumber(call('GET', 'clock'))
      return {math.floor(now / 1000000), now % 1000000}
    end
    return call(command, ...)
  end}, {__index = redis})
end)(redis)`

// clocked is a store whose server has a clock that is set by the test. It is ahead of the
// real one, by which keys end.
type clocked struct {
	*testing.T
	server *redistest.Server
	store  *redis.Store
	now    int64
}

func newClocked(t *testing.T, server *redistest.Server) *clocked {
	t.Helper()
	store := open(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patient})
	store.Prelude(clockInKey)
	return &clocked{T: t, server: server, store: store, now: microsOf(t, server) + (48 * time.Hour).Microseconds()}
}

func (c *clocked) take(op store.Op) store.Decision {
	c.Helper()
	c.server.Do("SET", "clock", strconv.FormatInt(c.now, 10))
	return take(c.T, c.store, op)
}

const tenYears = int64(3652 * 24 * time.Hour / time.Microsecond)

// TestDifferentialOfAWrongClock compares Lua with Go, as TestDifferential does, on a server
// whose clock is set ahead and right again.
func TestDifferentialOfAWrongClock(t *testing.T) {
	t.Parallel()
	c := newClocked(t, redistest.Standalone(t))
	seed := *differentialSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	begin, ops, moved := c.now, 0, map[store.Algorithm]int{}
	for n := uint64(1); ops < int(*differentialOps)/10; n++ {
		s := &story{rng: rand.New(rand.NewPCG(seed, n)), key: fmt.Sprintf("story %d", n)}
		a := store.Algorithm(s.rng.IntN(int(store.Distinct) + 1))
		limits := []headgate.Limit{s.limit(a), s.limit(a)}
		ahead := int64(0)
		var state algorithm.State
		c.now = begin + s.rng.Int64N(1e12)
		for range 40 {
			limit := limits[s.rng.IntN(20)/19]
			switch s.rng.IntN(8) {
			case 0:
				c.now, ahead = c.now-ahead, 0
			case 1:
				more := s.rng.Int64N(1 << (20 + s.rng.IntN(29)))
				c.now, ahead = c.now+more, ahead+more
			default:
				c.now += s.rng.Int64N(limit.Period().Microseconds()/max(limit.N(), 1)*2 + 2)
			}
			c.now = min(c.now, 1<<52)
			op := s.op(limit, false)
			op.At = 0
			if op.Kind == store.KindDraw { // as blocks are
				op.Duration = min(op.Duration, limit.Period()/20).Truncate(time.Microsecond)
			}
			was := state
			if op.Kind != store.KindReset && algorithm.Settle(limit.Rule(), &state, c.now) {
				moved[a]++
			}
			want := algorithm.Step(limit.Rule(), &state, c.now, algorithm.RequestOf(&op)).Decision
			if got := c.take(op); got != want {
				t.Fatalf("seed %d, story %d: %s %d for %s, counted until %d, at %d of %s, was %+v\n got %+v\nwant %+v",
					seed, n, op.Kind, op.Cost, op.Duration, op.CountsUntil, c.now, limit, was, got, want)
			} else if got.Lease != 0 {
				s.leases = append(s.leases, got.Lease)
			}
			ops++
		}
		c.take(store.Op{Key: s.key, Scope: "s", Rule: limits[0].Rule(), Kind: store.KindReset})
	}
	t.Log("moved: ", moved)
	if len(moved) <= int(store.Distinct) {
		t.Errorf("not every algorithm was tested: %v", moved)
	}
}

// exhausting returns limits of every kind, of 5.
func exhausting() []headgate.Limit {
	minute := headgate.PerMinute(5)
	limits := []headgate.Limit{
		minute.WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest), minute.WithRefillEvery(time.Minute),
		minute.WithAlgorithm(store.LeakyBucket).WithMaxWait(time.Minute), headgate.PerCalendar(5, store.Day, time.UTC),
		headgate.PerCalendar(5, store.Hour, nil).WithAlgorithm(store.Distinct), headgate.PerCalendar(5, store.Day, nil).WithZone(time.UTC),
		minute.WithAlgorithm(store.SlidingWindow).WithRefusalsCounted(), minute.WithAlgorithm(store.SlidingLog).WithRefusalsCounted(),
	}
	for a := range store.Distinct + 1 {
		limits = append(limits, minute.WithAlgorithm(a))
	}
	return limits
}

// TestAClockThatWasAheadLocksNobodyOut: what was taken while the server's clock was wrong
// counts as if it had been taken at the first request after it is right, whatever that is,
// and so do the ends of the keys.
func TestAClockThatWasAheadLocksNobodyOut(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		c := newClocked(t, server)
		begin := c.now
		for i, limit := range exhausting() {
			for j, first := range []store.Kind{store.KindTake, store.KindPeek, store.KindCharge, store.KindRefund, store.KindTakeUpTo, store.KindReserve} {
				op := store.Op{Key: fmt.Sprint(i, j), Scope: "s", Rule: limit.Rule(), Cost: 1}
				c.now = begin + tenYears
				for n := range 5 {
					op.Member = uint64(n) + 1
					if d := c.take(op); !d.Allowed {
						t.Fatalf("%s: take %d: %+v", limit, n, d)
					}
				}
				c.now = begin
				op.Member, op.Kind = 6, first
				d := c.take(op)
				if most := 2 * 25 * time.Hour; d.RetryAfter > most || d.ResetAfter > most {
					t.Errorf("%s, %s: %+v", limit, first, d)
				}
				if d.Allowed && first != store.KindRefund {
					t.Errorf("%s, %s: it gave something back: %+v", limit, first, d)
				}
				if end := number(t, server.Do("PEXPIRETIME", redis.KeyOf("hg", &op))) * 1000; end > begin+(75*time.Hour).Microseconds() {
					t.Errorf("%s, %s: the key ends in %v", limit, first, time.Duration(end-begin)*time.Microsecond)
				}
				c.now += 2*limit.Period().Microseconds() + 1
				if op.Kind = store.KindTake; !c.take(op).Allowed {
					t.Errorf("%s, %s: still refused after two periods", limit, first)
				}
			}
		}
	})
}

// TestAClockThatWasAheadInABatch: the state is moved although the batch is refused as a
// whole and the allowed ops are not taken.
func TestAClockThatWasAheadInABatch(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		c := newClocked(t, server)
		begin := c.now
		limits := exhausting()
		ops := make([]store.Op, len(limits))
		c.now = begin + tenYears
		for i, limit := range limits {
			ops[i] = store.Op{Key: "batch", Scope: strconv.Itoa(i), Rule: limit.Rule(), Cost: int64(1 + i%2*4), Member: 1}
			c.take(ops[i])
		}
		c.now = begin
		out := make([]store.Decision, len(ops))
		all := func() (refused bool) {
			c.server.Do("SET", "clock", strconv.FormatInt(c.now, 10))
			if err := store.ExecuteAll(context.Background(), c.store, ops, out, store.AllOrNothing); err != nil {
				t.Fatal(err)
			}
			for _, d := range out {
				refused = refused || !d.Allowed
			}
			return refused
		}
		if !all() {
			t.Fatalf("allowed: %+v", out)
		}
		for i := range ops {
			if end := number(t, server.Do("PEXPIRETIME", redis.KeyOf("hg", &ops[i]))) * 1000; end > begin+(75*time.Hour).Microseconds() {
				t.Errorf("%s: the key ends in %v", limits[i], time.Duration(end-begin)*time.Microsecond)
			}
		}
		if c.now += 50 * time.Hour.Microseconds(); all() {
			t.Errorf("still refused: %+v", out)
		}
	})
}

// TestAClockThatWentBackALittleStandsStill: by a minute, or by as long as the limit takes
// to be whole again, nothing is moved, so that clocks that differ give nothing.
func TestAClockThatWentBackALittleStandsStill(t *testing.T) {
	c := newClocked(t, redistest.Standalone(t))
	begin := c.now
	for i, limit := range []headgate.Limit{headgate.PerSecond(5), headgate.PerDay(24)} {
		back := []time.Duration{time.Minute, 24 * time.Hour}[i].Microseconds()
		op := store.Op{Key: strconv.Itoa(i), Scope: "s", Rule: limit.Rule(), Cost: limit.N()}
		c.now = begin
		c.take(op)
		op.Cost = 1
		wait := (limit.Period() / time.Duration(limit.N())).Microseconds()
		for _, ago := range []int64{back, back / 2, 5_000_000} {
			c.now = begin - ago
			if got, want := c.take(op).RetryAfter.Microseconds(), ago+wait; got != want {
				t.Errorf("%s: refused for %d µs, want %d", limit, got, want)
			}
		}
		c.now = begin - back - 1
		if got := c.take(op).RetryAfter.Microseconds(); got != wait {
			t.Errorf("%s: refused for %d µs, want %d", limit, got, wait)
		}
	}
}
