package algorithm

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// window is an oracle for one key under a limit of distinct values: a set of the values
// of the window and, for how many there may be, a fixed window that is asked once for
// each new value. Above most values it keeps registers in an array, and computes the
// chance from all of them.
type window struct {
	most      int
	values    map[uint64]bool
	end       int64
	requests  State // of a fixed window
	registers *[registers]int
	estimate  *big.Int // in parts of 65536
}

// step answers like a step of a limit with the same numbers that counts requests, from
// what one with fixed windows answers. It does not know credit, and no refund once there
// are registers.
func (w *window) step(distinct, fixed headgate.Limit, now int64, req Request) store.Decision {
	if now >= w.end {
		*w = window{most: w.most, values: map[uint64]bool{}}
	}
	req.Cost, req.Lease = min(req.Cost, 1), 0
	asked := req
	asked.Member = 0
	if mayTake(req.Kind) && w.has(req.Member) && distinct.N() > 0 {
		asked.Kind, asked.Cost = store.KindPeek, 0
		d := Step(fixed.Rule(), &w.requests, now, asked).Decision
		d.Allowed, d.Reason, d.RetryAfter = true, store.ReasonOK, 0
		return d
	}
	if req.Kind == store.KindRefund && !w.values[req.Member] {
		asked.Cost = 0
	}
	was := w.requests.V[0]
	d := Step(fixed.Rule(), &w.requests, now, asked).Decision
	switch count := w.requests.V[0]; {
	case count > was:
		w.values[req.Member] = true
		w.raise(req.Member)
		d.Remaining = max(distinct.N()-w.requests.V[0], 0)
	case req.Kind == store.KindReset:
		clear(w.values)
	case count < was:
		delete(w.values, req.Member)
	}
	if w.requests.V[0] > 0 {
		w.end = w.requests.V[1]
	}
	return d
}

func (w *window) has(member uint64) bool {
	if w.registers != nil {
		i, rank := place(member)
		return w.registers[i] >= rank
	}
	return w.values[member]
}

// place returns the register of a value and its rank, read off its binary digits.
func place(member uint64) (register, rank int) {
	digits := fmt.Sprintf("%052b", member)
	_, _ = fmt.Sscanf(digits[:14], "%b", &register)
	for rank = 1; rank <= 38 && digits[13+rank] == '0'; rank++ {
	}
	return register, rank
}

func (w *window) raise(member uint64) {
	if len(w.values) <= w.most {
		return
	}
	if w.registers == nil {
		w.registers, w.estimate = new([registers]int), big.NewInt(int64(w.most+1)<<16)
		for value := range w.values {
			i, rank := place(value)
			w.registers[i] = max(w.registers[i], rank)
		}
		return
	}
	chance := new(big.Int) // times 2^52
	for _, rank := range w.registers {
		if rank <= 38 {
			chance.Add(chance, big.NewInt(1<<(38-rank)))
		}
	}
	grows := new(big.Int).Lsh(big.NewInt(1), 52+16)
	w.estimate.Add(w.estimate, grows.Div(grows, chance))
	i, rank := place(member)
	w.registers[i] = rank
	w.requests.V[0] = new(big.Int).Rsh(w.estimate, 16).Int64()
}

// TestDistinctIsAFixedWindowOfNewValues compares with the oracle: a value that the window
// has costs nothing, and any other is a request to a fixed window.
func TestDistinctIsAFixedWindowOfNewValues(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := range 300 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		fixed := randomWindow(rng)
		compareWithWindow(t, rng, fixed, 1+rng.Uint64N(40), 300)
	}
}

// TestDistinctEstimatesLikeTheOracle goes beyond what is exact: 4096 values of a limit
// that only measures. A limit that refuses is exact there.
func TestDistinctEstimatesLikeTheOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	compareWithWindow(t, rng, headgate.PerCalendar(store.MaxDistinctExact+1, store.Year, nil), 1<<52, 9000)
	compareWithWindow(t, rng, headgate.PerCalendar(5000, store.Year, nil), 1<<52, 9000)
}

func compareWithWindow(t *testing.T, rng *rand.Rand, fixed headgate.Limit, values uint64, steps int) {
	t.Helper()
	limit := fixed.WithAlgorithm(store.Distinct)
	var s State
	w := window{most: mostValues(limit.Rule())}
	now := int64(t0)
	counts := int64(0)
	for i := range steps {
		if values < 1000 {
			now += rng.Int64N(limit.Rule().Period/8 + 1)
		}
		req := Request{
			Kind: pick(rng, store.KindTake, store.KindTake, store.KindTake, store.KindTakeUpTo, store.KindReserve, store.KindCharge, store.KindPeek, store.KindRefund, store.KindReset),
			Cost: pick[int64](rng, 0, 1, 1, 1, 1, 7), Member: spread(1 + rng.Uint64N(values)),
		}
		if values > 1000 && (req.Kind == store.KindReset || req.Kind == store.KindRefund) {
			req.Kind = store.KindTake
		}
		if req.Kind == store.KindRefund {
			req.CountsUntil = pick(rng, 0, counts)
		}
		got, want := Step(limit.Rule(), &s, now, req), w.step(limit, fixed, now, req)
		if req.Kind == store.KindCharge && !got.Allowed && want.Allowed {
			want.Allowed, want.Reason, want.RetryAfter = false, store.ReasonLimited, got.RetryAfter // see TestDistinctChargesBeyondTheLimit
		}
		if req.Kind == store.KindCharge && !got.Allowed {
			want.RetryAfter = got.RetryAfter
		}
		if got.Decision != want {
			t.Fatalf("%s, step %d at %d, %+v: %+v\nwant %+v; state %v", limit, i, now, req, got.Decision, want, s.V)
		}
		if got.CountsUntil > 0 {
			counts = got.CountsUntil
		}
		u := s.Unpack(store.Distinct, nil)
		if again := u.Pack(store.Distinct); !u.PossibleValues() || !same(&again, &s) {
			t.Fatalf("%s, step %d: impossible state %v with %d words", limit, i, s.V, len(s.Words))
		}
	}
}

// spread makes small numbers values.
func spread(n uint64) uint64 { return max(n*0x9e3779b97f4a7c15>>12, 1) }

func randomWindow(rng *rand.Rand) headgate.Limit {
	n := rng.Int64N(12)
	switch rng.IntN(4) {
	case 0:
		return headgate.PerCalendar(n, store.Day, zone("Europe/Berlin"))
	case 1:
		return headgate.Per(n, time.Minute).WithAlgorithm(store.FixedWindow).WithAnchor(store.AnchorFirstRequest)
	}
	return headgate.Per(n, time.Minute).WithAlgorithm(store.FixedWindow)
}

// distinctStep is a request of one named value and its answer.
type distinctStep struct {
	at    string
	kind  store.Kind
	value uint64
	want  string
}

// TestDistinctTraces are the examples of docs/more/distinct.md and what they leave open.
func TestDistinctTraces(t *testing.T) {
	take, peek, charge, refund, grant := store.KindTake, store.KindPeek, store.KindCharge, store.KindRefund, store.KindGrant
	three := headgate.PerHour(3).WithAlgorithm(store.Distinct)
	for _, c := range []struct {
		name  string
		limit headgate.Limit
		steps []distinctStep
	}{
		{"three accounts an hour", three, []distinctStep{
			{"11:20:00", take, 1, "pass, left 2, granted 1, reset 40m0s"},
			{"11:20:00", take, 1, "pass, left 2, granted 0"},
			{"11:20:00", take, 2, "pass, left 1, granted 1"},
			{"11:30:00", take, 3, "pass, left 0, granted 1"},
			{"11:30:00", take, 4, "refused, left 0, granted 0, retry 30m0s"},
			{"11:30:00", peek, 4, "refused, retry 30m0s"},
			{"11:30:00", take, 2, "pass, left 0, granted 0"},
			{"11:59:59", take, 4, "refused, retry 1s"},
			{"12:00:00", take, 4, "pass, left 2, granted 1"},
			{"12:00:00", peek, 1, "pass, left 2"},
			{"12:00:00", take, 1, "pass, left 1, granted 1"},
		}},
		{"a refused value is not remembered", headgate.PerHour(1).WithAlgorithm(store.Distinct), []distinctStep{
			{"11:00:00", take, 1, "pass"},
			{"11:00:00", take, 2, "refused"},
			{"11:00:00", refund, 1, "pass, left 1"},
			{"11:00:00", take, 2, "pass, granted 1"},
			{"11:00:00", take, 1, "refused"},
		}},
		{"a value that the window does not have cannot be taken back", three, []distinctStep{
			{"11:00:00", take, 1, "pass, left 2"},
			{"11:00:00", refund, 2, "pass, left 2"},
			{"12:00:00", refund, 1, "pass, left 3"},
		}},
		{"charges go beyond the limit, and all of its values pass", headgate.PerHour(1).WithAlgorithm(store.Distinct), []distinctStep{
			{"11:00:00", charge, 1, "pass, left 0, granted 1"},
			{"11:00:00", charge, 2, "refused, left 0, granted 1, retry 1h0m0s"},
			{"11:00:00", charge, 2, "pass, left 0, granted 0"},
			{"11:00:00", take, 2, "pass, granted 0"},
			{"11:00:00", take, 3, "refused, retry 1h0m0s"},
			{"11:00:00", peek, 1, "pass"},
		}},
		{"credit pays for new values, once each", headgate.PerHour(1).WithAlgorithm(store.Distinct), []distinctStep{
			{"11:00:00", take, 1, "pass, left 0"},
			{"11:00:00", grant, 2, "pass, left 2"}, // two
			{"11:00:00", take, 2, "pass, left 1, granted 1"},
			{"11:00:00", take, 2, "pass, left 1, granted 0"},
			{"11:00:00", take, 3, "pass, left 0, granted 1"},
			{"11:00:00", take, 4, "refused"},
			{"11:00:00", take, 3, "pass, granted 0"},
		}},
		{"a limit of 0", headgate.PerHour(0).WithAlgorithm(store.Distinct), []distinctStep{
			{"11:00:00", take, 1, "refused, retry never"},
			{"11:00:00", charge, 1, "refused, retry never"},
			{"11:00:00", grant, 1, "pass, left 1"},
			{"11:00:00", take, 1, "pass, left 0, granted 1"},
			{"11:00:00", take, 1, "refused, retry never"},
		}},
		{"from the first request", headgate.PerHour(1).WithAlgorithm(store.Distinct).WithAnchor(store.AnchorFirstRequest), []distinctStep{
			{"11:20:00", take, 1, "pass, reset 1h0m0s"},
			{"12:10:00", take, 2, "refused, retry 10m0s"},
			{"12:20:00", take, 2, "pass"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s State
			for i, step := range c.steps {
				req := Request{Kind: step.kind, Cost: 1, Member: step.value}
				if step.kind == grant {
					req.Cost, req.Duration = int64(step.value), time.Hour
				}
				res := Step(c.limit.Rule(), &s, clock(t, step.at), req)
				for promise := range strings.SplitSeq(step.want, ", ") {
					if promised(res, promise) {
						continue
					}
					t.Errorf("step %d at %s: want %s; %s", i, step.at, promise, show(res))
				}
			}
		})
	}
}

// TestDistinctErrorOfTheEstimate measures what docs/more/distinct.md states: the standard
// error, over many sets of values, and that known values always pass.
func TestDistinctErrorOfTheEstimate(t *testing.T) {
	limit := headgate.Per(store.MaxDistinct, 24*time.Hour).WithAlgorithm(store.Distinct)
	const sets, values = 60, 100_000
	rng := rand.New(rand.NewPCG(3, 4))
	sum, squares := 0.0, 0.0
	for range sets {
		var s State
		seed := rng.Uint64()
		for i := range uint64(values) {
			member := valueOf(seed, i)
			Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: member})
			if i%1000 == 0 {
				if res := Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: member}); res.Granted != 0 || !res.Allowed {
					t.Fatalf("value %d is shown again: %s", i, show(res))
				}
			}
		}
		e := float64(s.V[0])/values - 1
		sum, squares = sum+e, squares+e*e
	}
	bias, deviation := sum/sets, math.Sqrt(squares/sets)
	t.Logf("%d sets of %d values: bias %.3f%%, standard error %.3f%%", sets, values, 100*bias, 100*deviation)
	if deviation > 0.0065*1.25 || math.Abs(bias) > 3*0.0065/math.Sqrt(sets) {
		t.Errorf("bias %.5f, standard error %.5f, want 0.0065", bias, deviation)
	}
}

// valueOf returns value i of a set: a hash of 52 bits.
func valueOf(seed, i uint64) uint64 {
	hi, lo := bits.Mul64(seed^i*0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	hi, lo = bits.Mul64(hi^lo^i, 0xa0761d6478bd642f)
	return max((hi^lo)>>12, 1)
}

// TestDistinctIsExact admits exactly the limit, at the largest that is exact, and goes on
// with an estimate if charges add more.
func TestDistinctIsExact(t *testing.T) {
	limit := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct)
	var s State
	allowed := 0
	for i := range uint64(2 * store.MaxDistinctExact) {
		if Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, i)}).Allowed {
			allowed++
		}
	}
	if allowed != store.MaxDistinctExact || len(s.Words) != store.MaxDistinctExact || s.isEstimated() || cap(s.Words) != store.MaxDistinctExact {
		t.Errorf("%d allowed, %d kept in space for %d", allowed, len(s.Words), cap(s.Words))
	}
	for i := range uint64(1000) {
		Step(limit.Rule(), &s, t0, Request{Kind: store.KindCharge, Cost: 1, Member: valueOf(11, i)})
	}
	if want := store.MaxDistinctExact + 1000.0; !s.isEstimated() || math.Abs(float64(s.V[0])-want) > want*0.02 {
		t.Errorf("after 1000 charges the window has %d values, of 65,536 and 1000; estimated: %t", s.V[0], s.isEstimated())
	}
	if res := Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, 5)}); !res.Allowed || res.Granted != 0 {
		t.Errorf("a known value: %s", show(res))
	}
}

// TestDistinctLimitsChangeInAWindow: what a window has stays known if the limit changes to
// one that only measures, and back.
func TestDistinctLimitsChangeInAWindow(t *testing.T) {
	exact := headgate.PerDay(store.MaxDistinctExact).WithAlgorithm(store.Distinct)
	measured := headgate.PerDay(1_000_000).WithAlgorithm(store.Distinct)
	var s State
	show := func(limit headgate.Limit, from, to uint64) {
		for i := from; i < to; i++ {
			Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, i)})
		}
	}
	show(exact, 0, 10_000)
	if s.isEstimated() || s.V[0] != 10_000 {
		t.Fatalf("10,000 values are %d, estimated: %t", s.V[0], s.isEstimated())
	}
	show(measured, 10_000, 12_000)
	show(exact, 12_000, 14_000)
	if math.Abs(float64(s.V[0])-14_000) > 14_000*0.02 {
		t.Errorf("14,000 values are %d", s.V[0])
	}
	for i := range uint64(10_001) { // the last turned the list into registers
		if res := Step(exact.Rule(), &s, t0, Request{Kind: store.KindPeek, Cost: 1, Member: valueOf(9, i)}); !s.shows(t0, valueOf(9, i)) || !res.Allowed {
			t.Fatalf("value %d is forgotten", i)
		}
	}
}

// TestMayChangeValues: a step changes nothing if it says so, and it says so for known
// values and for new ones of a full key.
func TestMayChangeValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	said := 0
	for range 300 {
		limit := randomDistinct(rng)
		var s State
		now := int64(t0)
		for range 100 {
			now += rng.Int64N(limit.Rule().Period/8 + 1)
			req := randomDistinctRequest(rng, 1+rng.Uint64N(14), now)
			may := MayChangeValues(limit.Rule(), &s, now, req)
			if !may {
				said++
			}
			if res := Step(limit.Rule(), &s, now, req); res.Wrote && !may {
				t.Fatalf("%s changed by %+v: %v", limit, req, s.V)
			}
		}
	}
	if said < 3000 {
		t.Errorf("only %d of 30,000 steps say that they change nothing", said)
	}
}

// TestDistinctReleasesTheMemoryOfTheLastWindow: a list that was long is short again.
func TestDistinctReleasesTheMemoryOfTheLastWindow(t *testing.T) {
	limit := headgate.PerHour(1 << 20).WithAlgorithm(store.Distinct)
	var s State
	for i := range uint64(5000) {
		Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, i)})
	}
	if !s.isEstimated() {
		t.Fatal("5000 values are kept one by one")
	}
	Step(limit.Rule(), &s, t0+int64(time.Hour/time.Microsecond), Request{Cost: 1, Member: 1})
	if cap(s.Words) > fewValues || s.isEstimated() || s.V[0] != 1 {
		t.Errorf("space for %d, state %v", cap(s.Words), s.V)
	}
}

func BenchmarkDistinct(b *testing.B) {
	for _, n := range []uint64{20, 4096, 65_536, 100_000} {
		limit := headgate.Per(int64(max(n, store.MaxDistinctExact)), 24*time.Hour).WithAlgorithm(store.Distinct)
		var s State
		for i := range n {
			Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, i)})
		}
		b.Run(fmt.Sprintf("known of %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, uint64(i)%n)})
			}
		})
		if n <= store.MaxDistinctExact {
			b.Run(fmt.Sprintf("new after %d", n-1), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					member := valueOf(12, uint64(i))
					Step(limit.Rule(), &s, t0, Request{Kind: store.KindRefund, Cost: 1, Member: s.Words[0]})
					Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: member})
				}
			})
		}
		b.Run(fmt.Sprintf("refused with %d", n), func(b *testing.B) {
			full := headgate.PerDay(int64(min(n, store.MaxDistinctExact))).WithAlgorithm(store.Distinct)
			for i := 0; b.Loop(); i++ {
				Step(full.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(10, uint64(i))})
			}
		})
	}
}

// TestDistinctRefusesPartlyAboveWhatIsExact measures what docs/more/distinct.md states: how many of
// the new values a full window refuses. In registers most of the values of a large
// window look known.
func TestDistinctRefusesPartlyAboveWhatIsExact(t *testing.T) {
	const values = 20_000
	for _, row := range []struct {
		limit   int64
		percent float64
	}{{4096, 100}, {5000, 100}, {store.MaxDistinctExact, 100}, {store.MaxDistinctExact + 1, 18}, {100_000, 12}, {1_000_000, 1.2}} {
		limit := headgate.PerDay(row.limit).WithAlgorithm(store.Distinct)
		var s State
		next := uint64(0)
		for ; s.V[0] < row.limit; next++ {
			Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, next)})
		}
		refused := 0
		for i := range uint64(values) {
			if !Step(limit.Rule(), &s, t0, Request{Cost: 1, Member: valueOf(9, next+i)}).Allowed {
				refused++
			}
		}
		if got := 100 * float64(refused) / values; math.Abs(got-row.percent) > 1 || row.percent == 100 && got != 100 {
			t.Errorf("a full window of %d refuses %.1f%% of new values, want %.1f%%", row.limit, got, row.percent)
		}
	}
}
