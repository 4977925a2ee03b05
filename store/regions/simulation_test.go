package regions

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

var oneSeed = flag.Uint64("regions.seed", 0, "the only schedule that TestNoScheduleAdmitsTooMuch tries")

// simulation is several regions, each with a store, a clock and some processes, and a
// network between them that delays, cuts and doubles. While a process waits for an
// answer, time passes and other processes go on.
type simulation struct {
	rng     *rand.Rand
	limit   headgate.Limit
	now     int64 // µs
	regions []*region
	depth   int
	cut     map[[2]int]bool // reader, writer
	use     usage
	trace   strings.Builder
	asked   int64
	faults  int   // one call in so many fails
	heavy   int64 // requests cost up to one in so many of the limit
}

// region is one region: its store, and the stream that it publishes.
type region struct {
	sim    *simulation
	index  int
	name   string
	offset int64 // of its store's clock
	skew   int64 // of the server with the messages, which in a cluster is another one
	store  store.Store
	stream []store.Message
	nodes  []*process
	seen   map[string]time.Time
}

// process is one process of a region.
type process struct {
	*region
	store *Store
	busy  bool
	leads bool
	drift int64 // its own clock, which only differences matter of
}

func (s *simulation) logf(format string, args ...any) {
	if *oneSeed != 0 {
		fmt.Fprintf(&s.trace, "%10d "+format+"\n", append([]any{s.now}, args...)...)
	}
}

func (r *region) clock() time.Time { return time.UnixMicro(r.sim.now + r.offset) }

// news is the clock of the messages.
func (r *region) news() time.Time { return r.clock().Add(time.Duration(r.skew) * time.Microsecond) }

// pass lets up to d pass, and other processes go on.
func (s *simulation) pass(d int64) {
	for range s.rng.IntN(3) {
		step := s.rng.Int64N(d + 1)
		s.now += step
		d -= step
		if s.depth < 3 {
			s.depth++
			s.event()
			s.depth--
		}
	}
	s.now += s.rng.Int64N(d + 1)
}

var errFault = fmt.Errorf("%w: a fault", store.ErrUnavailable)

func (s *simulation) fails() bool { return s.faults > 0 && s.rng.IntN(s.faults) == 0 }

// wire is a process's way to its store.
type wire struct {
	store.Store
	p *process
}

func (w wire) Do(ctx context.Context, b *store.Batch) {
	b.Each(func(ops []store.Op, out []store.Decision, mode store.Mode) error {
		s := w.p.sim
		s.pass(2_000)
		if s.faults > 0 && s.rng.IntN(30) == 0 { // the store stands still
			s.pass(3_000_000)
		}
		if s.fails() {
			return errFault
		}
		err := store.ExecuteAll(ctx, w.Store, ops, out, mode)
		for i := range ops {
			s.logf("%s: %s %s %d -> %+v", w.p.name, ops[i].Scope, ops[i].Kind, ops[i].Cost, out[i])
		}
		s.pass(2_000)
		if s.fails() {
			return errFault
		}
		return err
	})
}

// Lead implements Exchange: sometimes two processes act for a region, sometimes none.
func (p *process) Lead(context.Context, time.Duration) (store.Leadership, error) {
	p.sim.pass(2_000)
	if p.sim.fails() {
		return store.Leadership{}, errFault
	}
	if p.sim.rng.IntN(20) == 0 {
		p.leads = !p.leads
	}
	return store.Leadership{Leads: p.leads, Now: p.news(), Seen: maps.Clone(p.seen), Identity: "of-" + p.name}, nil
}

// Saw implements Exchange.
func (p *process) Saw(_ context.Context, region string, upTo time.Time) error {
	p.seen[region] = upTo
	return nil
}

func (p *process) Publish(_ context.Context, data []byte) error {
	s := p.sim
	s.pass(2_000)
	if s.fails() {
		return errFault
	}
	p.stream = append(p.stream, store.Message{ID: strconv.Itoa(len(p.stream) + 1), At: p.news(), Data: data})
	s.logf("%s publishes %s", p.name, data)
	s.pass(2_000)
	if s.fails() {
		return errFault
	}
	return nil
}

func (p *process) Read(_ context.Context, name, after string) (b store.Messages, err error) {
	s := p.sim
	s.pass(150_000)
	from := s.region(name)
	if s.cut[[2]int{p.index, from.index}] || s.fails() {
		return b, errFault
	}
	first, _ := strconv.Atoi(after)
	b.Now = from.news()
	if after != "" && s.rng.IntN(20) == 0 {
		first = max(first-s.rng.IntN(4), 0) // again
	}
	for _, m := range from.stream[min(first, len(from.stream)):] {
		if after != "" || b.Now.Sub(m.At) < store.Recent {
			b.Messages = append(b.Messages, m)
		}
	}
	s.pass(150_000)
	return b, nil
}

func (s *simulation) region(name string) *region {
	for _, r := range s.regions {
		if r.name == name {
			return r
		}
	}
	return nil
}

func newSimulation(seed uint64, limit headgate.Limit, faults int) *simulation {
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 21)), limit: limit, cut: make(map[[2]int]bool), faults: faults}
	s.now = 1_700_000_000_000_000 + s.rng.Int64N(3_600_000_000)
	s.heavy = []int64{100, 20, 10}[s.rng.IntN(3)]
	n := 2 + s.rng.IntN(3)
	s.use = newUsage(limit, n)
	skewed := limit.Algorithm() == store.FixedWindow || limit.Algorithm() == store.TokenBucket && limit.Rule().RefillEvery == 0
	for i := range n {
		r := &region{sim: s, index: i, name: string(rune('a' + i)), seen: map[string]time.Time{}}
		if skewed && s.rng.IntN(2) == 0 {
			r.offset = s.rng.Int64N(4_000_000) - 2_000_000
		}
		if s.rng.IntN(3) == 0 {
			r.skew = s.rng.Int64N(4_000_000) - 2_000_000
		}
		r.store = memory.New(memory.WithClock(r.clock))
		s.regions = append(s.regions, r)
	}
	for _, r := range s.regions {
		for range 1 + s.rng.IntN(2) {
			p := &process{region: r, leads: true, drift: s.rng.Int64N(1e9)}
			p.start()
			r.nodes = append(r.nodes, p)
		}
	}
	return s
}

// start starts a process, or starts it again with nothing that it knew.
func (p *process) start() {
	var others []string
	for _, r := range p.sim.regions {
		if r != p.region {
			others = append(others, r.name)
		}
	}
	st, err := newStore(wire{p.region.store, p}, Options{Name: p.name, Others: others, Exchange: p})
	if err != nil {
		panic(err)
	}
	for _, c := range st.couriers {
		c.clock = func() time.Time { return time.UnixMicro(p.sim.now + p.drift) }
	}
	p.store = st
}

// event lets something happen somewhere.
func (s *simulation) event() {
	r := s.regions[s.rng.IntN(len(s.regions))]
	p := r.nodes[s.rng.IntN(len(r.nodes))]
	switch n := s.rng.IntN(100); {
	case p.busy:
	case n < 60:
		s.request(p, 1+s.rng.Int64N(3+s.limit.Burst()/s.heavy))
	case n < 97:
		p.busy = true
		p.store.tick(context.Background())
		p.busy = false
	case n == 97:
		p.start()
	default:
		for i := range s.regions {
			for j := range s.regions {
				s.cut[[2]int{i, j}] = s.rng.IntN(3) == 0
			}
		}
	}
}

// request is a request of a caller, and takes no time.
func (s *simulation) request(p *process, cost int64) {
	op := store.Op{Key: "k", Scope: "api/rule", Rule: p.store.parts.of(s.limit).Rule(), Cost: cost}
	d, err := store.Execute(context.Background(), p.region.store, op)
	if err != nil {
		panic(err)
	}
	p.store.decided(&op, s.limit, &d)
	s.asked += cost
	s.logf("%s: take %d -> %+v", p.name, cost, d)
	if d.Allowed {
		at := p.clock().UnixMicro()
		if s.limit.Algorithm() == store.TokenBucket {
			at = s.now
		}
		s.use.admit(at, cost)
	}
}

func simulatedLimits() []headgate.Limit {
	return []headgate.Limit{
		headgate.Per(60, 10*time.Second).WithAlgorithm(store.FixedWindow),
		headgate.Per(300, 20*time.Second).WithAlgorithm(store.FixedWindow),
		headgate.Per(90, 10*time.Second).WithAlgorithm(store.SlidingWindow),
		headgate.Per(100, 10*time.Second).WithAlgorithm(store.SlidingBuckets).WithBuckets(10, store.EdgeWeighted),
		headgate.Per(100, 10*time.Second).WithAlgorithm(store.SlidingBuckets).WithBuckets(20, store.EdgeStrict),
		headgate.PerSecond(10).WithBurst(100),
		headgate.PerSecond(50).WithBurst(100),
		headgate.PerSecond(20).WithBurst(60).WithRefillEvery(time.Second),
		headgate.PerCalendar(40, store.Minute, nil),
	}
}
