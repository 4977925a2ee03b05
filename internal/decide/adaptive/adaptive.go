// Package adaptive finds out how many requests an upstream can work on at once, and limits
// them to that.
//
// By Little's law, an upstream that answers X requests a second in S seconds each works on
// X·S of them. X is counted in windows of 200 ms. S cannot be read from latencies while
// requests wait in the upstream, so it is measured in probes: for a moment fewer requests
// are let in than the upstream can work on, its line empties, and what starts then takes S.
//
// The limit is X·S and a margin that grows with its root: enough that the upstream is never
// idle, and little enough that nobody waits long. It grows while the upstream refuses
// nothing of its own and is as fast as without load, and shrinks only under sustained
// refusals at a higher latency, or if most wait in vain. Probes are made only then too: an
// upstream with enough capacity is not disturbed. An upstream that has become slow looks the
// same as one with a line, so the limit stays above half until probes have told which it is.
//
// All proxies of one upstream have to probe at the same time. What one of them takes back
// alone, the others fill; S would grow with the line, and with it all limits. So probes
// begin by the clock, at times that depend on the name of the upstream. Decision 0146 has
// the simulations.
package adaptive

import (
	"hash/fnv"
	"math"
	"sync"
	"time"
)

// Options of a Limiter.
type Options struct {
	Min, Max int    // of the limit; at least 1. It starts at 20, or what is nearest.
	Name     string // of the upstream: limiters of one name probe at the same time
	Shadow   bool   // refuses nothing, and cannot probe
}

// Class is the class of a request. The zero Class is the only one, or the highest.
type Class struct {
	Index int     // below Classes, the highest class first
	More  float64 // than the limit that the class may use, as a part of it
}

// Of returns how many requests may be in progress for one of class c to start, under a limit.
func (c Class) Of(limit int) int { return limit + int(math.Ceil(float64(limit)*c.More)) }

// Classes is the number of classes that a Limiter can tell from each other.
const Classes = 16

// Place is a request in progress.
type Place struct {
	started int64
	sending int64  // how long the upstream waited for the client
	window  int64  // in which it was let in; 0 if the limiter would not have
	probe   uint32 // of which it is a sample; 0 for none
	class   uint8
	first   bool // S is learned of it, if it is not known
}

// Limiter limits the requests in progress at one upstream. Times are in nanoseconds since
// the Unix epoch. It is safe for concurrent use. A call takes constant time and does not
// allocate.
type Limiter struct {
	options Options

	mu       sync.Mutex
	inFlight int
	refused  int64 // ever, or what would have been
	estimate estimate
}

// State is what a Limiter does now.
type State struct {
	Limit, InFlight int     // Limit is that of a class that may use no more
	Service         float64 // in seconds; 0 if not yet known
	Probes, Refused int64   // ever
}

// New returns a limiter.
func New(o Options) *Limiter {
	name := fnv.New64a()
	_, _ = name.Write([]byte(o.Name))
	l := &Limiter{options: o}
	l.estimate = estimate{min: float64(o.Min), max: float64(o.Max), offset: int64(name.Sum64() % uint64(slot)), quiet: o.Shadow}
	l.estimate.set(start)
	return l
}

// Take reports whether a request may start. In shadow mode, every request may; full then
// says whether it would have been refused.
func (l *Limiter) Take(now int64, c Class) (p Place, ok, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full = l.full(now, c)
	if full && !l.options.Shadow {
		return Place{}, false, true
	}
	e := &l.estimate
	l.inFlight++
	p = Place{started: now, class: uint8(c.Index), probe: e.probe.sample(now), first: e.service == 0 && e.first.join(now)}
	if !full {
		p.window = e.window.start
		e.window.passed++
		e.window.classes[c.Index].passed++
	}
	return p, true, full
}

// Refuses reports whether Take would refuse a request, and counts it if so. Ask it before
// something that takes time, such as limits in a store: who waits for these holds no place, and
// who is refused by them is no load.
func (l *Limiter) Refuses(now int64, c Class) bool {
	if l.options.Shadow {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full(now, c)
}

// full reports whether there is no place, and counts a request that finds none. It needs l.mu.
func (l *Limiter) full(now int64, c Class) bool {
	e := &l.estimate
	e.more[c.Index] = c.More
	if e.tick(now); l.inFlight < e.allowed(c) {
		return false
	}
	e.window.refused++
	e.window.classes[c.Index].refused++
	l.refused++
	return true
}

// Patience returns how long a request may hold its place: a second, or 5 times S. One that
// takes longer, such as a long poll, is not what the upstream works on. Call Lapse then. While
// nothing is answered in that time and many are refused, it is up to four seconds: the upstream
// may be slow.
func (l *Limiter) Patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.estimate
	return max(time.Second, time.Duration(e.patience), time.Duration(5*e.service))
}

// Waited says how long the upstream has had to wait for the client to send the request, in all.
// That is no work, but the place is held.
func (p *Place) Waited(d time.Duration) { p.sending = int64(d) }

// End is how a request ended.
type End int

// Only those that were answered are samples. The others say at most that answers take longer.
const (
	Answered End = iota // by the upstream, which worked on it
	GaveUp              // its client, or a time limit
	Failed              // the upstream: it answered with an error, or broke the connection
)

// Done ends a request that the upstream had all of.
func (l *Limiter) Done(p Place, now int64, how End) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.estimate.ended(p, now, how)
	l.estimate.tick(now)
}

// Cancel ends a request that never reached the upstream, or whose end says nothing about it: it
// became a tunnel, or its client broke it off before it had sent all of it.
func (l *Limiter) Cancel(p Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(p)
	l.estimate.window.silent++
}

// Lapse ends a request after its Patience.
func (l *Limiter) Lapse(p Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(p)
	l.estimate.window.lapsed++
}

// Late tells how a request ended that has lapsed. One that is answered was slow, as a long poll is;
// where clients give up, they wait in a line.
func (l *Limiter) Late(now int64, how End) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.estimate.window
	if how == Answered {
		w.slow++
		return
	}
	w.late++
	w.fails(how)
	l.estimate.tick(now)
}

// cancel needs l.mu.
func (l *Limiter) cancel(p Place) {
	l.inFlight--
	l.estimate.window.sending += float64(p.sending)
	if p.window == l.estimate.window.start {
		l.estimate.window.passed--
		l.estimate.window.classes[p.class].passed--
	}
	if p.first {
		l.estimate.first.leaves(p.started)
	}
	if p.probe != 0 && p.probe == l.estimate.probe.number {
		l.estimate.probe.open--
	}
}

// Shadow reports whether the limiter refuses nothing.
func (l *Limiter) Shadow() bool { return l.options.Shadow }

// State returns what the limiter does now.
func (l *Limiter) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.estimate
	return State{Limit: int(e.limit), InFlight: l.inFlight, Service: e.service / 1e9, Probes: int64(e.numbers), Refused: l.refused}
}
