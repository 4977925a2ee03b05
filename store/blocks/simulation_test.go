package blocks

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

var oneSeed = flag.Uint64("blocks.seed", 0, "the only schedule that TestNoScheduleAdmitsTooMuch tries")

// simulation is a store, some processes with the package's own lines, and a network
// between them that delays and loses what it wants. Time is real time on the store's
// clock, in microseconds; every process has a clock of its own.
type simulation struct {
	rng    *rand.Rand
	limit  headgate.Limit
	state  algorithm.State
	now    int64
	began  int64
	queue  events
	nodes  []*node
	use    usage
	trace  strings.Builder
	faults bool // whether messages get lost, processes pause and die

	// flying are tokens on their way back, gone those that were lost or not returned.
	flying, gone, rejected int64
	dead                   int64  // what processes that died said that they kept
	under                  string // a refusal that nothing explains
}

type node struct {
	line         *line
	offset, rate int64 // of its clock: µs, and ppm
	paused       int64 // until when
	waiting      map[*drawing][]*ask
	dead         map[*line]bool // lines of processes that died
	counters     *counters
	old          []*line // lines before line, of the same process
}

// renew gives n another line, as after a reload.
func (n *node) renew(s *simulation) { n.old, n.line = append(n.old, n.line), s.newLine(n.counters) }

// under is what Stats.Under says of n. Here all lines have the same key.
func (n *node) under(now int64) int64 {
	sum := n.line.keeps() + n.counters.aside(now)
	for _, l := range n.old {
		sum += l.keeps()
	}
	return sum
}

// ask is a request that waits.
type ask struct{ cost, tries int64 }

type event struct {
	at, order int64
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is part of heap.Interface.
func (e *events) Push(x any) {
	if next, ok := x.(event); ok {
		*e = append(*e, next)
	}
}

// Pop is part of heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *simulation) after(delay int64, do func()) {
	heap.Push(&s.queue, event{s.now + delay, s.rng.Int64(), do})
}

// on does something in a process, after a delay, or when it no longer sleeps.
func (s *simulation) on(n *node, delay int64, do func()) {
	s.after(delay, func() {
		if n.paused > s.now {
			s.on(n, n.paused-s.now, do)
			return
		}
		do()
	})
}

func (s *simulation) logf(format string, args ...any) {
	if *oneSeed != 0 {
		fmt.Fprintf(&s.trace, "%9d "+format+"\n", append([]any{s.now}, args...)...)
	}
}

// clock is what n's clock says.
func (s *simulation) clock(n *node) int64 {
	return s.now + (s.now-s.began)*n.rate/1_000_000 + n.offset
}

func (s *simulation) step(kind store.Kind, cost int64, op *store.Op) store.Decision {
	req := algorithm.Request{Kind: kind, Cost: cost}
	if op != nil {
		req.Duration, req.CountsUntil = op.Duration, op.CountsUntil
	}
	d := algorithm.Step(s.limit.Rule(), &s.state, s.now, req).Decision
	s.use.sees(s.state.V[1])
	s.logf("store: %s %d -> %+v", kind, cost, d)
	return d
}

func (s *simulation) newLine(c *counters) *line {
	op := store.Op{Key: "k", Scope: "s", Rule: s.limit.Rule()}
	l := newLine(&op, 1, c)
	l.size = 2 + s.rng.Int64N(max(2*s.limit.N()*l.rule.Age/l.rule.Period, 1)+8)
	return l
}

// delay is a one-way trip.
func (s *simulation) delay() int64 {
	if s.rng.IntN(8) == 0 {
		return s.rng.Int64N(2*s.limit.Rule().Age + 1)
	}
	return s.rng.Int64N(s.limit.Rule().Age/8 + 2)
}

func (s *simulation) lost() bool { return s.faults && s.rng.IntN(12) == 0 }

// request is what Store.Take does.
func (s *simulation) request(n *node, a *ask) {
	var d store.Decision
	if now := s.clock(n); n.line.spend(now, a.cost, &d) {
		s.admit(a.cost)
		if n.line.wants(now) {
			if d, mine := n.line.begin(now, 0, 0); mine {
				s.draw(n, n.line, d)
			} else if d == nil {
				n.line.asked.Store(false)
			}
		}
		return
	}
	if a.tries++; a.tries > attempts || a.cost > s.limit.Burst() {
		s.exact(n, a.cost)
		return
	}
	if n.line.refuse(s.clock(n), &d) {
		s.rejected++
		return
	}
	switch d, mine := n.line.begin(s.clock(n), a.cost, 0); {
	case d == nil:
		s.request(n, a)
	case mine:
		n.waiting[d] = append(n.waiting[d], a)
		s.draw(n, n.line, d)
	default:
		n.waiting[d] = append(n.waiting[d], a)
	}
}

var errLost = errors.New("lost")

func (s *simulation) draw(n *node, l *line, d *drawing) {
	finish := func(answer store.Decision, err error) {
		l.finish(d, s.clock(n), answer, err)
		s.logf("node %p draws: %+v", n, answer)
		waiting := n.waiting[d]
		delete(n.waiting, d)
		for _, a := range waiting {
			switch {
			case err != nil:
			case answer.Granted == 0 && a.cost == 1:
				s.rejected++
			case answer.Granted == 0:
				s.exact(n, a.cost)
			default:
				s.request(n, a)
			}
		}
	}
	timeout := 20 * (l.rule.Age + 1000)
	if s.lost() {
		s.on(n, timeout, func() { finish(store.Decision{}, errLost) })
		return
	}
	s.after(s.delay(), func() {
		op := l.draw(d.want)
		answer := s.step(store.KindDraw, op.Cost, &op)
		if !n.dead[l] {
			s.explain(answer, d.want)
		}
		if s.lost() {
			s.gone += answer.Granted
			s.on(n, timeout, func() { finish(store.Decision{}, errLost) })
			return
		}
		s.flying += answer.Granted
		s.on(n, s.delay(), func() {
			s.flying -= answer.Granted
			if n.dead[l] {
				s.gone += answer.Granted
				return
			}
			finish(answer, nil)
			if l != n.line {
				s.back(n, l) // it came too late, and nobody sweeps l
			}
		})
	})
}

// explain checks the refusal of a draw: what was not admitted must be held by somebody,
// on its way, or lost, and must be in the sum of Stats.Under.
func (s *simulation) explain(d store.Decision, want int64) {
	if d.Allowed || s.under != "" {
		return
	}
	held, under := s.flying+s.gone, s.dead-want
	for _, n := range s.nodes {
		held += s.held(n.line)
		under += n.under(s.clock(n))
	}
	kept := int64(0)
	switch s.limit.Algorithm() {
	case store.FixedWindow:
		kept = s.limit.N() - s.use.inWindow(s.now)
	case store.TokenBucket:
		// It is empty, so in the time in which it refills, as much was taken as it holds.
		// One token may be there in part.
		kept = s.limit.Rule().Burst - 1 - s.use.inRefill(s.now)
	default:
		return
	}
	if kept > under {
		s.under = fmt.Sprintf("refused at %d with %d kept from clients, and Under is %d in all", s.now, kept, under)
	}
	if s.limit.Algorithm() != store.FixedWindow {
		return
	}
	if admitted := s.use.inWindow(s.now); s.limit.N()-admitted > held && s.under == "" {
		s.under = fmt.Sprintf("refused at %d with %d of %d admitted and only %d held", s.now, admitted, s.limit.N(), held)
	}
}

func (s *simulation) held(l *line) (held int64) {
	for _, b := range [...]*block{l.current.Load(), l.next.Load()} {
		if b != nil {
			held += max(b.left.Load(), 0)
		}
	}
	for _, r := range l.retired {
		held += r.op.Cost
	}
	return held
}

// exact asks the store for a single request, which counts when the store decides.
func (s *simulation) exact(n *node, cost int64) {
	s.after(s.delay(), func() {
		if d := s.step(store.KindTake, cost, nil); d.Allowed {
			s.admit(cost)
		} else {
			s.rejected++
		}
	})
	_ = n
}

// back sends what l gives back.
func (s *simulation) back(n *node, l *line) {
	for _, r := range l.refunds() {
		op := r.op
		s.flying += op.Cost
		if s.lost() {
			s.flying, s.gone = s.flying-op.Cost, s.gone+op.Cost
			r.lost(s.clock(n))
			continue
		}
		s.after(s.delay(), func() {
			s.flying -= op.Cost
			before := s.left()
			s.step(store.KindRefund, op.Cost, &op)
			s.gone += op.Cost - (s.left() - before)
			r.arrived(s.clock(n))
		})
	}
}

// left is what the store has left.
func (s *simulation) left() int64 {
	return algorithm.Step(s.limit.Rule(), &s.state, s.now, algorithm.Request{Kind: store.KindPeek}).Remaining
}

func (s *simulation) admit(cost int64) {
	s.logf("admit %d", cost)
	s.use.admit(s.now, cost)
}

// sweep is what Store.sweep does with a line.
func (s *simulation) sweep(n *node) {
	l := n.line
	cold := l.look(s.clock(n))
	s.back(n, l)
	if cold {
		n.renew(s)
	}
	s.on(n, l.beat/2+1, func() { s.sweep(n) })
}

// mishap happens to n now and then.
func (s *simulation) mishap(n *node) {
	age := s.limit.Rule().Age
	switch s.rng.IntN(4) {
	case 0:
		n.paused = s.now + s.rng.Int64N(3*age+1)
		s.logf("node %p sleeps until %d", n, n.paused)
	case 1: // it dies, and another takes its place
		s.gone += s.held(n.line)
		s.dead += n.under(s.clock(n))
		n.dead[n.line] = true
		for _, l := range n.old {
			n.dead[l] = true
		}
		n.counters, n.old = new(counters), nil
		n.line, n.waiting = s.newLine(n.counters), map[*drawing][]*ask{}
		s.logf("node %p dies", n)
	default: // a reload gives back what the old limit holds
		n.line.end(s.clock(n))
		s.back(n, n.line)
		n.renew(s)
	}
}

// run lets clients of all processes send requests for some periods.
func (s *simulation) run() {
	r := s.limit.Rule()
	end := s.now + max(4*r.Age, min(3*r.Period, 40*r.Age)) + s.rng.Int64N(r.Age+1)
	for _, n := range s.nodes {
		s.on(n, s.rng.Int64N(n.line.beat+1), func() { s.sweep(n) })
		s.client(n, end)
		if s.faults {
			for range s.rng.IntN(4) {
				s.on(n, s.rng.Int64N(end-s.now), func() { s.mishap(n) })
			}
		}
	}
	for len(s.queue) > 0 {
		e, _ := heap.Pop(&s.queue).(event)
		if e.at > end {
			return
		}
		s.now = e.at
		e.do()
	}
}

// client sends bursts of requests to n: some at once, then none for a while, which often
// is as long as a block lasts.
func (s *simulation) client(n *node, end int64) {
	r := s.limit.Rule()
	wait := s.rng.Int64N(r.Age/2 + 2)
	if s.rng.IntN(3) == 0 {
		wait = r.Age - s.rng.Int64N(r.Age/20+1)
	}
	s.on(n, wait, func() {
		for range 1 + s.rng.IntN(12) {
			cost := int64(1)
			if s.rng.IntN(4) == 0 {
				cost += s.rng.Int64N(8)
			}
			s.request(n, &ask{cost: cost})
		}
		if s.rng.IntN(6) == 0 { // and some that are not in blocks
			for range s.rng.Int64N(2*s.limit.Burst()/8 + 2) {
				s.exact(n, 1)
			}
		}
		if s.now < end {
			s.client(n, end)
		}
	})
}

func newSimulation(seed uint64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 20))
	limit, burst := randomLimit(rng)
	s := &simulation{
		rng: rng, limit: limit, began: 1_767_225_600_000_000 + rng.Int64N(limit.Rule().Period), faults: rng.IntN(3) > 0,
		use: newUsage(limit, burst),
	}
	s.now = s.began
	for range 1 + rng.IntN(5) {
		c := new(counters)
		s.nodes = append(s.nodes, &node{
			counters: c, line: s.newLine(c), waiting: map[*drawing][]*ask{}, dead: map[*line]bool{}, offset: rng.Int64N(10_000_000) - 5_000_000, rate: rng.Int64N(52_001) - 26_000,
		})
	}
	s.logf("%s, age %s, %d nodes", limit, limit.Rule().BlockAge(), len(s.nodes))
	return s
}

func randomLimit(rng *rand.Rand) (l headgate.Limit, burst int64) {
	for {
		period := time.Duration(1+rng.Int64N(4_000_000)) * time.Microsecond
		n := 1 + rng.Int64N(1<<(1+rng.IntN(10)))
		l = headgate.Per(n, period)
		switch rng.IntN(6) {
		case 0, 1:
			l = l.WithBurst(1 + rng.Int64N(3*n))
		case 2:
			l = l.WithAlgorithm(store.FixedWindow)
			if rng.IntN(3) == 0 {
				l = l.WithAnchor(store.AnchorFirstRequest)
			}
		case 3:
			l = l.WithAlgorithm(store.SlidingLog)
		case 4:
			l = l.WithAlgorithm(store.SlidingWindow)
		case 5:
			l = l.WithAlgorithm(store.SlidingBuckets).WithBuckets(1+rng.IntN(8), store.Edge(rng.IntN(3)))
		}
		b := store.Blocks{MaxAge: time.Duration(1+rng.Int64N(int64(period/time.Microsecond))) * time.Microsecond, MaxOver: rng.Float64()}
		if rng.IntN(3) == 0 {
			b.MaxOver = 0
		}
		burst = l.Burst()
		if l = headgate.LimitOf(l.Rule().InBlocks(b)); l.Rule().Valid() && l.Rule().BlockAge() > 0 {
			return l, burst
		}
	}
}

// TestTheBoundIsReached: processes that draw, wait, and spend at the last moment admit
// nearly BlockOver above the burst, so the bound cannot be smaller.
func TestTheBoundIsReached(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	best := 0.0
	for range 200 {
		limit := headgate.LimitOf(headgate.PerSecond(1000 + rng.Int64N(100_000)).Rule().InBlocks(store.Blocks{MaxAge: time.Second, MaxOver: 0.02 + 0.1*rng.Float64()}))
		s := &simulation{rng: rng, limit: limit, began: 1_767_225_600_000_000, now: 1_767_225_600_000_000, use: newUsage(limit, limit.Burst())}
		age, over := limit.Rule().Age, limit.Rule().BlockOver()
		for range 1 + rng.IntN(8) {
			s.nodes = append(s.nodes, &node{line: s.newLine(new(counters)), rate: rng.Int64N(26_000)})
		}
		for _, n := range s.nodes {
			n.line.size = over / int64(len(s.nodes))
			d, _ := n.line.begin(s.clock(n), 0, 0)
			op := n.line.draw(d.want)
			n.line.finish(d, s.clock(n), s.step(store.KindDraw, op.Cost, &op), nil)
		}
		s.now += age - age/margin - age/50
		s.use.admit(s.now, s.step(store.KindTakeUpTo, limit.Burst(), nil).Granted)
		for _, n := range s.nodes {
			var d store.Decision
			for n.line.spend(s.clock(n), 1, &d) {
				s.use.admit(s.now, 1)
			}
		}
		if s.use.wrong != "" {
			t.Fatalf("%s: %s", limit, s.use.wrong)
		}
		best = max(best, float64(s.use.worst)/float64(over))
	}
	if t.Logf("the largest excess is %.3f of the bound", best); best < 0.9 {
		t.Errorf("the largest excess is %.2f of the bound, want at least 0.9", best)
	}
}
