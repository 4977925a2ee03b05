// Package candidate decides every request a second time, under rules that are not
// active, and counts where the answers differ.
//
// The candidate has its own counts, and its answers are discarded. It decides where the
// engine reports a decision, so it sees the same requests as the live rules, in the
// same order and with the same times. It needs all of them: a limit counts every
// request of a key, so with a sample it would refuse too late.
package candidate

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Change is how the candidate would change the answer to a request.
type Change uint8

// The changes.
const (
	// SameAllowed passes under both rules, SameRefused under neither.
	SameAllowed Change = iota
	SameRefused
	NewlyRefused // NewlyRefused passes now, but the candidate would refuse it
	NewlyAllowed // NewlyAllowed is refused now, but would pass under the candidate
	// NotCompared is a request without a comparison: its domain has no candidate rules,
	// it was answered without the store, or it was refused by a concurrency limit,
	// which candidates ignore.
	NotCompared
	Changes // number of Changes
)

// String returns the name that metrics and the API use, such as newly_refused.
func (c Change) String() string {
	return enum.Name(c, "change", "same_allowed", "same_refused", "newly_refused", "newly_allowed", "not_compared")
}

// Candidate is an engine.Observer that compares. Make it with New.
type Candidate struct {
	engine  *engine.Engine
	live    *engine.Engine             // provides the exceptions; may be nil
	current atomic.Pointer[comparison] // nil while there are no rules
	shards  []shard                    // counts since the process started

	mu sync.Mutex // guards changes of current
}

var _ engine.Observer = (*Candidate)(nil)

// shard holds the counts of decisions on one core.
type shard struct {
	counts [Changes]atomic.Uint64
	_      [128 - 8*Changes]byte // keeps the next shard off this one's cache lines
}

// maxLanes is the largest number of shards.
const maxLanes = 64

func newShards() []shard {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < maxLanes {
		n *= 2
	}
	return make([]shard, n)
}

func sum(shards []shard) (counts [Changes]uint64) {
	for i := range shards {
		for c := range counts {
			counts[c] += shards[i].counts[c].Load()
		}
	}
	return counts
}

// New returns a Candidate without rules, which compares nothing. store keeps its counts
// and must not be used for anything else.
func New(store store.Store) *Candidate {
	return &Candidate{engine: engine.New(store, nil), shards: newShards()}
}

// Follow applies the bans and overrides of live to the candidate's rules of the same
// name. Call it before the first decision.
func (c *Candidate) Follow(live *engine.Engine) { c.live = live }

// SetRules compares with rs from now on and starts a new comparison. Counts of rules
// that keep their name survive. If rs has no domain, nothing is compared.
func (c *Candidate) SetRules(rs *rules.Ruleset, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.SetRules(rs)
	if rs == nil || len(rs.Domains()) == 0 {
		c.current.Store(nil)
		return
	}
	c.current.Store(newComparison(now))
}

// Rules returns the candidate's rules; never nil.
func (c *Candidate) Rules() *rules.Ruleset { return c.engine.Rules() }

// Reset starts a new comparison. The candidate's counts and Totals do not change.
func (c *Candidate) Reset(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() != nil {
		c.current.Store(newComparison(now))
	}
}

// Totals returns the number of requests with each Change since New.
func (c *Candidate) Totals() [Changes]uint64 { return sum(c.shards) }

// Report returns the results of the comparison, with at most n keys per rule. It
// returns false if there are no candidate rules.
func (c *Candidate) Report(n int) (Report, bool) {
	if d := c.current.Load(); d != nil {
		return d.report(n), true
	}
	return Report{}, false
}

// Observe implements engine.Observer.
func (c *Candidate) Observe(_ context.Context, live *engine.Decided) {
	d, q, v, took := c.current.Load(), *live.Query, live.Verdict, live.Takes()
	if d == nil || q.Rule != nil { // candidate rules do not change a limit that comes with a request
		return
	}
	if refunds := func(p engine.Part) bool { return p.Kind == store.KindRefund }; !took && !slices.ContainsFunc(live.Parts, refunds) {
		return
	}
	if !v.Allowed && v.Rule != nil && v.Rule.Concurrent() && v.Decision.Reason != store.ReasonBanned {
		c.count(d, live.Shard, NotCompared)
		return // the candidate ignores concurrency limits
	}
	if c.live != nil { // changed exceptions; concurrent calls are safe
		if x := c.live.Exceptions(); x != c.engine.Exceptions() {
			c.engine.SetExceptions(x)
		}
	}
	q.Matched = nil  // of the live rules
	q.Endless = true // the candidate does not see the end of requests, so slots would never be released
	// A request whose caller gave up was still counted by the live rules.
	after, failed := c.engine.Decide(context.Background(), q)
	defer after.Release()
	if !took {
		return // a refund, which is never refused
	}
	n := difference{change: NotCompared, at: q.At, door: q.Door, domain: q.Domain, request: live.Parts[0].Request}
	if live.Err == nil && failed == nil && after.Known {
		n.change = compare(v.Allowed, after.Allowed)
	}
	if n.change.differs() {
		path := rules.Attribute{Kind: rules.Path}
		n.hidden = live.Rules.Hashes(q.Domain, path) || c.engine.Rules().Hashes(q.Domain, path)
	}
	d.differ(&n, v, &after)
	c.count(d, live.Shard, n.change)
}

func (c *Candidate) count(d *comparison, number uint32, change Change) {
	i := int(number) & (len(c.shards) - 1)
	c.shards[i].counts[change].Add(1)
	d.shards[i].counts[change].Add(1)
}

// differs reports whether the answers do.
func (c Change) differs() bool { return c == NewlyRefused || c == NewlyAllowed }

func compare(before, after bool) Change {
	switch {
	case before && after:
		return SameAllowed
	case before:
		return NewlyRefused
	case after:
		return NewlyAllowed
	}
	return SameRefused
}
