package playground

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// Sharing is how several servers count the requests of one key.
type Sharing uint8

// The ways.
const (
	ReadThenWrite Sharing = iota // a server reads the state, decides, and writes the new state back
	AtomicStep                   // the store decides in one step, as Headgate's Redis store does
	Apart                        // each server has a state of its own
)

// Race is a limit that several servers apply to the requests of one key.
type Race struct {
	Limit   headgate.Limit // must be valid
	Sharing Sharing
	Servers int   // at least 1
	Way     int64 // how long a message between a server and the store takes, in microseconds
}

// Arrival is a request at one of the servers, from 0 on, at a time in microseconds since the
// epoch.
type Arrival struct {
	At     int64
	Server int
}

// Turn is what happened to an Arrival. Times are in microseconds since the epoch.
type Turn struct {
	Arrival
	Outcome

	Read     int64 // when the state was read; with AtomicStep, when the store took the step
	Wrote    int64 // when the new state came into force; 0 if none did
	Answered int64 // when the server knew the answer and, with ReadThenWrite, had written
	// Found and Left are how much was in use in the state that was read, and in the one that
	// was written.
	Found, Left float64
	// Lost is how many requests of other turns the written state does not contain, although
	// they were allowed since the state was read.
	Lost int64
}

// event is something that happens in the store.
type event struct {
	at    int64
	turn  int
	write bool // the second message of ReadThenWrite
}

// Run returns the turns of all arrivals, in their order. The Outcome compares them with one exact
// log for all servers.
func (r *Race) Run(arrivals []Arrival) []Turn {
	turns := make([]Turn, len(arrivals))
	events := make([]event, 0, 2*len(arrivals))
	for i, a := range arrivals {
		turns[i].Arrival = a
		at := a.At
		if r.Sharing != Apart {
			at += r.Way
		}
		events = append(events, event{at: at, turn: i})
	}
	s := scene{Race: r, states: make([]stored, max(r.Servers, 1)), kept: make([]kept, len(arrivals))}
	for len(events) > 0 {
		first := 0
		for i := range events {
			if before(&events[i], &events[first]) {
				first = i
			}
		}
		e := events[first]
		events = slices.Delete(events, first, first+1)
		if t := &turns[e.turn]; e.write {
			s.write(t, e)
		} else if s.read(t, e) {
			events = append(events, event{at: t.Read + 2*r.Way, turn: e.turn, write: true})
		}
	}
	compare(r.Limit, turns)
	return turns
}

func before(a, b *event) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.turn, b.turn)) < 0
}

// stored is a state in a store, with the number of allowed requests that were written to it.
type stored struct {
	algorithm.State

	writes int64
}

// kept is a state that a server will write, and stored.writes when it was read.
type kept struct {
	algorithm.State

	writes int64
}

// scene is a Race that runs.
type scene struct {
	*Race

	states []stored
	kept   []kept // by turn
}

// home returns the state that a server uses.
func (s *scene) home(server int) *stored {
	if s.Sharing != Apart {
		server = 0
	}
	return &s.states[server]
}

// read answers a turn by the state in the store, and reports whether a server then writes.
func (s *scene) read(t *Turn, e event) (writes bool) {
	home := s.home(t.Server)
	state := home.State
	state.Words = slices.Clone(state.Words)
	decided := e.at
	if s.Sharing == ReadThenWrite {
		decided += s.Way // at the server
	}
	t.Read, t.Found = e.at, used(s.Limit, &state, e.at)
	res := algorithm.Step(s.Limit.Rule(), &state, decided, algorithm.Request{Cost: 1})
	t.Decision, t.Answered = res.Decision, decided
	switch {
	case s.Sharing == AtomicStep:
		t.Answered += s.Way
	case s.Sharing == ReadThenWrite && res.Wrote:
		s.kept[e.turn] = kept{state, home.writes}
		return true
	}
	if res.Wrote {
		home.State = state
		home.writes++
		t.Wrote, t.Left = decided, used(s.Limit, &state, decided)
	}
	return false
}

// write replaces the state in the store by what a server has computed.
func (s *scene) write(t *Turn, e event) {
	home := s.home(t.Server)
	t.Lost = home.writes - s.kept[e.turn].writes
	home.State = s.kept[e.turn].State
	home.writes++
	t.Wrote, t.Left, t.Answered = e.at, used(s.Limit, &home.State, e.at), e.at+s.Way
}

// used is Lane.Used of a state.
func used(limit headgate.Limit, state *algorithm.State, at int64) float64 {
	l := Lane{limit: limit, state: *state}
	return l.Used(at)
}

// compare sets the verdicts: of an exact log of what was allowed, in order of the decisions.
func compare(limit headgate.Limit, turns []Turn) {
	order := make([]int, len(turns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turns[a].Read, turns[b].Read) })
	var passed history
	for _, i := range order {
		t := &turns[i]
		passed.forget(t.Read - limit.Rule().Period)
		fits := passed.total+1 <= limit.N()
		switch {
		case t.Allowed && !fits:
			t.Verdict = TooMany
		case !t.Allowed && fits:
			t.Verdict = TooStrict
		}
		if t.Allowed {
			passed.add(t.Read, 1)
		}
	}
}
