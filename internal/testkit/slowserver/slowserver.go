// Package slowserver simulates an upstream with a capacity, its clients and the proxies
// between them, in virtual time: one event after the other, no goroutine and no clock. The
// same seed gives the same run.
package slowserver

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Limiter is what a proxy asks before it sends a request to the upstream. Times are in
// nanoseconds, by the clock of the proxy.
type Limiter interface {
	// Take reports whether a request of a class may be sent, and returns what Done needs.
	Take(now int64, class int) (place any, ok bool)
	// Done is told of the answer, or that the client left before it.
	Done(place any, now int64, answered bool)
}

// Sender is a Limiter that is told how long the client took to send a request. It returns the
// place as Done is to get it.
type Sender interface {
	Sent(place any, took time.Duration) any
}

// Service draws how long one request takes, with the given mean.
type Service func(r *rand.Rand, mean float64) float64

// Exponential varies as much as its mean.
func Exponential(r *rand.Rand, mean float64) float64 { return r.ExpFloat64() * mean }

// Lognormal has few requests that take very long (sigma 1).
func Lognormal(r *rand.Rand, mean float64) float64 {
	return mean * math.Exp(r.NormFloat64()-0.5)
}

// Change is a change of the upstream at a time.
type Change struct {
	At      time.Duration
	Servers int           // 0: as before
	Service time.Duration // 0: as before
}

// Run is a simulation.
type Run struct {
	Seed    uint64
	Servers int           // that work at once; further requests wait in line
	Service time.Duration // mean
	Draw    Service
	Load    float64       // requests per request that the upstream can answer at first
	Timeout time.Duration // of clients; the upstream does not notice when they leave
	Length  time.Duration
	Changes []Change // by time

	// Sends draws how long a client takes to send its request, which has its place meanwhile; it
	// may be nil.
	Sends   func(r *rand.Rand) time.Duration
	Cheap   float64         // part of the requests that need no server and take 2 ms
	Classes []float64       // which part of the requests each class is; nil if all are of class 0
	Proxies []Limiter       // each gets an equal part of the requests, at random
	Skew    []time.Duration // how far the clock of each is ahead; nil for none
	// Advance is told of each time before its event; it may be nil.
	Advance func(to time.Duration)
	// Second is called at the end of each second; it may be nil.
	Second func(second int)
}

// Result is what clients and the upstream saw, by second.
type Result struct {
	Asked, Shed, Good []int       // requests; those refused; those answered in time
	Capacity          []float64   // what the upstream could have answered
	Work              []float64   // on Good, as a part of what all servers could do
	Latencies         [][]float32 // of Good, in seconds
	Classes           []Class
}

// Class is what the clients of a class saw, by the second in which they asked.
type Class struct{ Asked, Good []int }

// Served returns which part of the requests of a class was answered in time, of those in the
// seconds from and before to.
func (r *Result) Served(class, from, to int) float64 {
	good, asked := 0, 0
	for i := from; i < to; i++ {
		good, asked = good+r.Classes[class].Good[i], asked+r.Classes[class].Asked[i]
	}
	return float64(good) / float64(asked)
}

type job struct {
	arrived  int64
	started  int64
	proxy    int
	class    int
	place    any
	over     bool // answered, or its client has left
	finishes int64
}

type finishing []*job

func (f finishing) Len() int           { return len(f) }
func (f finishing) Less(i, j int) bool { return f[i].finishes < f[j].finishes }
func (f finishing) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *finishing) Push(x any)        { *f = append(*f, x.(*job)) } //nolint:forcetypeassert,errcheck // of this heap
func (f *finishing) Pop() any {
	last := len(*f) - 1
	j := (*f)[last]
	*f = (*f)[:last]
	return j
}

// state is a run in progress.
type state struct {
	Run
	random  *rand.Rand
	busy    finishing
	sending finishing // by when the upstream has all of them
	line    []*job    // waits for a server
	leaving []*job    // by arrival
	result  *Result
}

// Do runs the simulation.
func (r Run) Do() *Result {
	seconds := int(r.Length / time.Second)
	s := &state{Run: r, random: rand.New(rand.NewPCG(r.Seed, 38)), result: &Result{
		Asked: make([]int, seconds), Shed: make([]int, seconds), Good: make([]int, seconds),
		Capacity: make([]float64, seconds), Work: make([]float64, seconds), Latencies: make([][]float32, seconds),
	}}
	for range max(1, len(r.Classes)) {
		s.result.Classes = append(s.result.Classes, Class{make([]int, seconds), make([]int, seconds)})
	}
	gap := float64(r.Service) / float64(r.Servers) / r.Load
	arrival, second, changes := int64(s.random.ExpFloat64()*gap), 0, r.Changes
	for {
		const arrives, sent, finishes, leaves, changed, ticks = 0, 1, 2, 3, 4, 5
		now, what := arrival, arrives
		if len(s.sending) > 0 && s.sending[0].finishes <= now {
			now, what = s.sending[0].finishes, sent
		}
		if len(s.busy) > 0 && s.busy[0].finishes <= now {
			now, what = s.busy[0].finishes, finishes
		}
		for len(s.leaving) > 0 && s.leaving[0].over {
			s.leaving = s.leaving[1:]
		}
		if len(s.leaving) > 0 && s.leaving[0].arrived+int64(r.Timeout) < now {
			now, what = s.leaving[0].arrived+int64(r.Timeout), leaves
		}
		if len(changes) > 0 && int64(changes[0].At) <= now {
			now, what = int64(changes[0].At), changed
		}
		if end := int64(second+1) * int64(time.Second); end <= now {
			now, what = end, ticks
		}
		if r.Advance != nil {
			r.Advance(time.Duration(now))
		}
		switch what {
		case arrives:
			s.arrive(now, second)
			arrival = now + int64(s.random.ExpFloat64()*gap)
		case sent:
			s.sent(now)
		case finishes:
			s.finish(now, second)
		case leaves:
			j := s.leaving[0]
			j.over = true
			s.Proxies[j.proxy].Done(j.place, s.at(j.proxy, now), false)
		case changed:
			c := changes[0]
			changes = changes[1:]
			if c.Servers > 0 {
				s.Servers = c.Servers
			}
			if c.Service > 0 {
				s.Service = c.Service
			}
			s.serve(now)
		case ticks:
			s.result.Capacity[second] = float64(s.Servers) / s.Service.Seconds()
			if r.Second != nil {
				r.Second(second)
			}
			if second++; second == seconds {
				return s.result
			}
		}
	}
}

// epoch is when runs start: limiters may take 0 for no time.
const epoch = int64(1_000_000 * time.Second)

func (s *state) at(proxy int, now int64) int64 {
	if s.Skew != nil {
		now += int64(s.Skew[proxy])
	}
	return epoch + now
}

func (s *state) arrive(now int64, second int) {
	s.result.Asked[second]++
	proxy, class := s.random.IntN(len(s.Proxies)), s.class()
	s.result.Classes[class].Asked[second]++
	place, ok := s.Proxies[proxy].Take(s.at(proxy, now), class)
	if !ok {
		s.result.Shed[second]++
		return
	}
	j := &job{arrived: now, proxy: proxy, class: class, place: place}
	if s.Cheap > 0 && s.random.Float64() < s.Cheap {
		s.Proxies[proxy].Done(place, s.at(proxy, now)+int64(2*time.Millisecond), true)
		return
	}
	s.leaving = append(s.leaving, j)
	if s.Sends == nil {
		s.line = append(s.line, j)
		s.serve(now)
		return
	}
	j.finishes = now + int64(s.Sends(s.random))
	heap.Push(&s.sending, j)
}

// sent gives the upstream a request of which it has all now.
func (s *state) sent(now int64) {
	j := heap.Pop(&s.sending).(*job) //nolint:forcetypeassert,errcheck // of this heap
	if j.over {
		return
	}
	if p, ok := s.Proxies[j.proxy].(Sender); ok {
		j.place = p.Sent(j.place, time.Duration(now-j.arrived))
	}
	s.line = append(s.line, j)
	s.serve(now)
}

// class draws the class of a request.
func (s *state) class() int {
	if len(s.Classes) < 2 {
		return 0
	}
	at := s.random.Float64()
	for i, part := range s.Classes {
		if at -= part; at < 0 {
			return i
		}
	}
	return len(s.Classes) - 1
}

// serve gives waiting requests to free servers.
func (s *state) serve(now int64) {
	for len(s.busy) < s.Servers && len(s.line) > 0 {
		j := s.line[0]
		s.line = s.line[1:]
		j.started = now
		j.finishes = now + int64(s.Draw(s.random, float64(s.Service)))
		heap.Push(&s.busy, j)
	}
}

func (s *state) finish(now int64, second int) {
	j := heap.Pop(&s.busy).(*job) //nolint:forcetypeassert,errcheck // of this heap
	s.serve(now)
	if j.over {
		return
	}
	j.over = true
	s.Proxies[j.proxy].Done(j.place, s.at(j.proxy, now), true)
	s.result.Good[second]++
	s.works(j.started, now)
	s.result.Classes[j.class].Good[j.arrived/int64(time.Second)]++
	s.result.Latencies[second] = append(s.result.Latencies[second], float32(time.Duration(now-j.arrived).Seconds()))
}

// works counts the work of a server on one answer in the seconds in which it was done.
func (s *state) works(from, to int64) {
	for from < to {
		second := from / int64(time.Second)
		end := min(to, (second+1)*int64(time.Second))
		s.result.Work[second] += float64(end-from) / float64(time.Second) / float64(s.Servers)
		from = end
	}
}

// Goodput returns the answers in time in the seconds from and before to, as a part of the
// best that was possible: all requests, or the capacity.
func (r *Result) Goodput(from, to int) float64 {
	good, best := 0.0, 0.0
	for i := from; i < to; i++ {
		good += float64(r.Good[i])
		best += min(float64(r.Asked[i]), r.Capacity[i])
	}
	return good / best
}

// ShedPart returns which part of the requests was refused.
func (r *Result) ShedPart(from, to int) float64 {
	shed, asked := 0, 0
	for i := from; i < to; i++ {
		shed, asked = shed+r.Shed[i], asked+r.Asked[i]
	}
	return float64(shed) / float64(asked)
}

// Worst returns the lowest Goodput of a second.
func (r *Result) Worst(from, to int) float64 {
	worst := math.Inf(1)
	for i := from; i < to; i++ {
		worst = min(worst, r.Goodput(i, i+1))
	}
	return worst
}

// WorstWork returns the lowest Work of a second. Unlike that of the answers, whose number is
// chance too, it is 1 if no server ever waits.
func (r *Result) WorstWork(from, to int) float64 { return slices.Min(r.Work[from:to]) }

// Quantile returns a quantile of the latencies of good answers.
func (r *Result) Quantile(q float64, from, to int) time.Duration {
	all := slices.Concat(r.Latencies[from:to]...)
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return time.Duration(float64(all[min(int(q*float64(len(all))), len(all)-1)]) * float64(time.Second))
}
