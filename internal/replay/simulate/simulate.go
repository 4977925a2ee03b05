// Package simulate replays access logs against rules on virtual time: a door
// whose clock is the log. It says what rules would have done to the traffic of
// yesterday, compares two sets of rules, and proposes limits.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/memory"
)

// Side is a set of rules that traffic is replayed against.
type Side struct {
	Rules  *rules.Ruleset
	Domain string
}

// Options say what to simulate.
type Options struct {
	Reading
	Side                    // has the rules
	Candidate *Side         // Candidate, if not nil, has the rules to compare them with
	MaxKeys   int           // how many keys the store remembers; 0 is its default
	Top       int           // how many keys of each rule are listed
	AllKeys   bool          // keeps every key, for a list of all; memory is then not bounded
	Decided   func(Request) // Decided, if not nil, is told of every decision in its turn
}

// Request is a request that has been decided about.
type Request struct {
	At      int64                            // its time on the virtual clock, in microseconds
	Field   func(name string) (string, bool) // returns something that was logged beside it, by its name
	Verdict *engine.Verdict                  // must not be kept
}

const (
	sweepEvery   = 1 << 17 // after how many requests fresh keys are swept
	measureEvery = 1 << 13 // after how many the memory in use is noted
)

// side is a Side under way.
type side struct {
	Side
	engine *engine.Engine
	store  *memory.Store
	now    int64
	tally  *tally // good once the books are closed
	books  *books

	decided             int64
	peakKeys, peakBytes int64
	noClient            int64 // requests that count by a client that is not known
}

func newSide(s Side, o *Options) *side {
	out := &side{Side: s, tally: newTally(s, o.AllKeys)}
	settings := []memory.Option{memory.WithClock(func() time.Time { return time.UnixMicro(out.now) })}
	if o.MaxKeys > 0 {
		settings = append(settings, memory.WithMaxKeys(o.MaxKeys))
	}
	out.store = memory.New(settings...)
	out.engine = engine.New(out.store, s.Rules)
	out.books = newBooks(out.tally)
	return out
}

// decide decides about an entry that m's rules apply to. The verdict has to be
// released.
func (s *side) decide(ctx context.Context, at int64, m engine.Matched) (engine.Verdict, error) {
	s.now = at
	v, err := s.engine.DecideMatched(ctx, engine.Query{Domain: s.Domain, Cost: 1, At: at, Endless: true}, m)
	if err != nil {
		v.Release()
		return v, fmt.Errorf("the store of the simulation: %w", err)
	}
	s.books.enter(at, &v)
	s.decided++
	if s.decided%measureEvery == 0 {
		s.measure()
	}
	if s.decided%sweepEvery == 0 {
		s.store.Sweep(time.UnixMicro(at))
	}
	return v, nil
}

// unknownClient counts a request whose client is not known, if a rule counted
// by it.
func (s *side) unknownClient(results []engine.Result) {
	if slices.ContainsFunc(results, func(r engine.Result) bool {
		return slices.ContainsFunc(r.Rule.Key, func(a rules.KeyAttribute) bool { return a.Kind == rules.ClientIP })
	}) {
		s.noClient++
	}
}

// close lets go of what the side holds.
func (s *side) close() error {
	s.books.close()
	return s.store.Close()
}

// measure notes the memory in use.
func (s *side) measure() {
	now := s.store.Stats()
	s.peakKeys, s.peakBytes = max(s.peakKeys, now.Keys), max(s.peakBytes, now.Bytes)
}

// Run replays the logs. The error is that of a log that cannot be read at all,
// of the store, or ctx's; then there is no report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	sides := []Side{o.Side}
	old := newSide(o.Side, &o)
	defer func() { err = errors.Join(err, old.close()) }()
	var candidate *side
	var compared *comparison
	if o.Candidate != nil {
		sides = append(sides, *o.Candidate)
		candidate = newSide(*o.Candidate, &o)
		compared = newComparison()
		defer func() { err = errors.Join(err, candidate.close()) }()
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	var v, w engine.Verdict // not made anew for each request
	read, err := o.read(ctx, sides, func(at int64, it item) (err error) {
		first, last = min(first, at), max(last, at)
		if v, err = old.decide(ctx, at, it.matched(0)); err != nil {
			return err
		}
		if it.entry.group == client.Unknown {
			old.unknownClient(v.Results())
		}
		if o.Decided != nil {
			o.Decided(Request{At: at, Field: it.entry.named, Verdict: &v})
		}
		if candidate != nil {
			if w, err = candidate.decide(ctx, at, it.matched(1)); err != nil {
				return err
			}
			compared.add(&v, &w)
			w.Release()
		}
		v.Release()
		return nil
	})
	if err != nil {
		return nil, err
	}
	report = newReport(old, &o, read, first, last)
	if candidate != nil {
		report.Compare = compared.report(newReport(candidate, &o, read, first, last), o.Top)
	}
	return report, nil
}
