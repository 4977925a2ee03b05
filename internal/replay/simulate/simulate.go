// Package simulate replays access logs against rules, with the times in the log
// as the clock. It reports what rules would have done to the traffic, compares two
// sets of rules, and suggests limits.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/decide/standalone"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/store/memory"
)

// Side is a set of rules that traffic is replayed against.
type Side struct {
	Rules  *rules.Ruleset
	Domain string
}

// Options are the options of Run.
type Options struct {
	Reading
	Side                    // the rules
	Candidate *Side         // Candidate, if not nil, is compared with Side
	MaxKeys   int           // capacity of the store; 0 is its default
	Top       int           // how many keys to list for each rule
	AllKeys   bool          // keeps every key, for WriteCSV; memory is then unbounded
	Decided   func(Request) // Decided, if not nil, is called for every decision, in order
}

// Request is a request with its decision.
type Request struct {
	At      int64                            // time on the virtual clock, in microseconds
	Field   func(name string) (string, bool) // returns another logged value by its name
	Verdict *engine.Verdict                  // must not be kept
}

const (
	sweepEvery   = 1 << 17 // requests between sweeps of the store
	measureEvery = 1 << 13 // requests between measurements of memory
)

// side is a Side in progress.
type side struct {
	Side
	engine   *engine.Engine
	features features.Workers // nil if they have nothing to do
	bans     map[*rules.Rule]*bans
	store    *memory.Store
	now      int64
	matched  engine.Matched // the rules of the current request
	tally    *tally         // valid once the books are closed
	books    *books

	decided             int64
	peakKeys, peakBytes int64
	noClient            int64 // requests counted by an unknown client
	noStatus            int64 // requests whose answer decides what they count, but is unknown
}

func newSide(s Side, o *Options) *side {
	out := &side{Side: s, tally: newTally(s, o.AllKeys), bans: map[*rules.Rule]*bans{}}
	settings := []memory.Option{memory.WithClock(func() time.Time { return time.UnixMicro(out.now) })}
	if o.MaxKeys > 0 {
		settings = append(settings, memory.WithMaxKeys(o.MaxKeys))
	}
	out.store = memory.New(settings...)
	out.engine, out.features = standalone.Replay(out.store, s.Rules, func() time.Time { return time.UnixMicro(out.now) }, out.banned)
	out.books = newBooks(out.tally)
	return out
}

// decide decides an entry to which m's rules apply. The caller must release the
// verdict.
func (s *side) decide(ctx context.Context, at int64, m engine.Matched) (engine.Verdict, error) {
	s.now, s.matched = at, m
	v, err := s.engine.Decide(ctx, engine.Query{Domain: s.Domain, Part: engine.Part{Cost: 1}, At: at, Endless: true, Matched: &s.matched})
	if err != nil {
		v.Release()
		return v, fmt.Errorf("simulation: %w", err)
	}
	if s.features != nil && (!v.Allowed || v.WouldRefuse > 0) {
		s.features.Flush(ctx)
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

// answered settles rules that count only certain answers, by the logged status.
func (s *side) answered(ctx context.Context, at int64, v *engine.Verdict, status int) error {
	switch {
	case !v.HasChargeOn():
		return nil
	case status == 0:
		s.noStatus++
		return nil
	}
	return s.engine.SettleAnswer(ctx, v, at, rules.Answer{Status: status})
}

// bans are those of keys of a rule.
type bans struct {
	n    int64
	keys map[string]bool
}

// banned counts a ban, or what would be one in shadow mode.
func (s *side) banned(b feature.Ban) {
	r := b.Rule.Base()
	if s.bans[r] == nil {
		s.bans[r] = &bans{keys: map[string]bool{}}
	}
	s.bans[r].n++
	s.bans[r].keys[b.Key] = true
}

// unknownClient counts a request whose client is unknown, if a rule counts by
// it.
func (s *side) unknownClient(results []engine.Result) {
	if slices.ContainsFunc(results, func(r engine.Result) bool {
		return slices.ContainsFunc(r.Rule.Key, func(a rules.KeyAttribute) bool { return a.Kind == rules.ClientIP })
	}) {
		s.noClient++
	}
}

// close releases the side's store.
func (s *side) close() error {
	s.books.close()
	return s.store.Close()
}

// measure records the memory in use.
func (s *side) measure() {
	now := s.store.Stats()
	s.peakKeys, s.peakBytes = max(s.peakKeys, now.Keys), max(s.peakBytes, now.Bytes)
}

// Run replays the logs. It fails if a log cannot be read at all, if the store
// fails, or with ctx's error.
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
	var v, w engine.Verdict // reused
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
			err = candidate.answered(ctx, at, &w, it.entry.Status)
			w.Release()
		}
		err = errors.Join(err, old.answered(ctx, at, &v, it.entry.Status))
		v.Release()
		return err
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
