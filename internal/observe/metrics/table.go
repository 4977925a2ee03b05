package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

// Retention is how long the counts of a rule that a reload removed are told:
// long enough for the last scrape, and for the rule to come back.
const Retention = 10 * time.Minute

// The names under which is counted what has no rule of its own.
const (
	otherRules    = "(other)"    // those beyond Options.MaxRules, and of a domain that has just vanished.
	overrides     = "(override)" // limits that came with a request of Envoy's
	unknownDomain = "(unknown)"  // that of requests whose domain has no rules
	noRule        = "(none)"     // what applies there
)

// What is counted of a rule, beside the engine's outcomes, which come first.
const (
	near     = int(engine.Outcomes) + iota // passed with no more than a fifth of the limit left
	banned                                 // refused because an operator has banned the key
	missing                                // lacked a part of the key, and were counted with the others that did
	degraded                               // decided without the store, one by one as policyNames has it
	counters = degraded + policies
)

const policies = 3

// policyNames are the values of the label policy, as on_store_error has them.
func policyNames() [policies]string { return [policies]string{"allow", "deny", "local"} }

// cell is the counters of a rule for some of the cores.
type cell struct {
	counts [counters]atomic.Uint64
	_      [32]byte // two cache lines in all, as they are fetched in pairs
}

// ruleCounts are the counters of one rule.
type ruleCounts struct {
	domain, name string
	shared       bool // by many rules: there are no keys to tell
	named        bool // has series of its own
	cells        []cell
	top          atomic.Pointer[top.Tracker]
	lacks        lacks
	values       atomic.Pointer[values] // nil unless the rule asks for series by value

	was sums // at the last tick
}

func (c *ruleCounts) id() ruleName { return ruleName{c.domain, c.name} }

// count counts one result.
func (c *ruleCounts) count(lane uint32, r *engine.Result, o engine.Outcome) {
	at := &c.cells[int(lane)&(len(c.cells)-1)].counts
	if o < engine.Outcomes {
		at[o].Add(1)
	}
	d := &r.Decision
	switch d.Reason {
	case headgate.FailOpen:
		at[degraded].Add(1)
	case headgate.FailClosed:
		at[degraded+1].Add(1)
	case headgate.Fallback:
		at[degraded+2].Add(1)
	case headgate.Banned:
		at[banned].Add(1)
	default:
		if d.Allowed && o != engine.ShadowRefused && d.Remaining*5 <= d.Limit && d.Reason != headgate.NoLimit {
			at[near].Add(1)
		}
	}
}

// sums are what a rule has said.
type sums [counters]uint64

// outcomes has one number for each engine.Outcome.
func (s *sums) outcomes() *[engine.Outcomes]uint64 { return (*[engine.Outcomes]uint64)(s[:]) }

// read adds up.
func (c *ruleCounts) read() (sum sums) {
	for i := range c.cells {
		for j := range sum {
			sum[j] += c.cells[i].counts[j].Load()
		}
	}
	return sum
}

// ruleName is what tells rules apart: several may share a scope, such as the
// tiers of a limit.
type ruleName struct{ domain, rule string }

// nameOf returns the name of r, good as long as r.
func nameOf(r *rules.Rule) ruleName { return ruleName{r.Domain, r.Name} }

// table finds the counters of a rule. It is never changed, only replaced.
type table struct {
	rules   []*rules.Rule // by their Index
	entries []*ruleCounts // at the same places
	byName  map[ruleName]*ruleCounts
	others  map[string]*ruleCounts // overrides and others, by domain
	all     []*ruleCounts          // every one once
	lost    *ruleCounts            // where nothing else fits
}

// of returns the counters of r. There always are some.
func (t *table) of(r *rules.Rule) *ruleCounts {
	if i := r.Index; i >= 0 {
		if i < len(t.rules) && t.rules[i] == r {
			return t.entries[i]
		}
		// It has another limit for this key, or is of the rules before the last
		// reload.
		if c := t.byName[nameOf(r)]; c != nil {
			return c
		}
	}
	if c := t.others[r.Domain]; c != nil {
		return c
	}
	if t.lost == nil {
		return &ruleCounts{shared: true, cells: make([]cell, 1)} // before the first rules
	}
	return t.lost
}

// retired are the counters of a rule that is no more.
type retired struct {
	counts *ruleCounts
	since  time.Time
}

// SetRules makes counters for rs; those of rules that keep domain and name go
// on. It is to be called before rs is put in force.
func (m *Observer) SetRules(rs *rules.Ruleset, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	old := m.table.Load()
	list := rs.Rules()
	t := &table{rules: list, byName: make(map[ruleName]*ruleCounts, len(list)), others: map[string]*ruleCounts{}}
	shards := m.shards
	for shards > 1 && shards*len(list) > maxCells {
		shards /= 2
	}
	for _, r := range list {
		name := nameOf(r)
		c := t.byName[name]
		if c == nil {
			if c = old.byName[name]; c == nil {
				c = m.newCounts(r.Domain, r.Name, shards)
			}
			delete(m.retired, c.id())
			t.byName[c.id()], t.all = c, append(t.all, c)
		}
		c.lacks.begin(r)
		m.split(c, r)
		t.entries = append(t.entries, c)
	}
	for name, c := range old.byName {
		if t.byName[name] == nil {
			if m.retired[name] == nil {
				m.retired[name] = &retired{c, now}
			}
			t.byName[name], t.all = c, append(t.all, c)
		}
	}
	for _, domain := range rs.Domains() {
		c := old.others[domain]
		if c == nil {
			c = &ruleCounts{domain: domain, name: overrides, shared: true, cells: make([]cell, shards)}
		}
		t.others[domain], t.all = c, append(t.all, c)
	}
	if t.lost = old.lost; t.lost == nil {
		t.lost = &ruleCounts{domain: otherRules, name: otherRules, shared: true, cells: make([]cell, m.shards)}
	}
	t.all = append(t.all, t.lost)
	m.table.Store(t)
}

// newCounts returns counters of a rule. It needs m.mu to be held.
func (m *Observer) newCounts(domain, name string, shards int) *ruleCounts {
	c := &ruleCounts{domain: strings.Clone(domain), name: strings.Clone(name), cells: make([]cell, shards)}
	if m.series < m.options.MaxRules {
		c.named = true
		m.series++
	}
	return c
}

// Prune forgets rules that have been gone for the Retention, and the keys of
// rules that are idle, and logs which rules have met more values than they have
// series for. It is to be called at intervals.
func (m *Observer) Prune(now time.Time) { m.logFull(m.prune(now)) }

// prune returns the rules that have newly met too many values.
func (m *Observer) prune(now time.Time) (full []*ruleCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	for _, c := range m.table.Load().all {
		if t := c.top.Load(); t != nil && t.Idle(now.UnixMicro()) && c.top.CompareAndSwap(t, nil) {
			m.tracked.Add(-1)
		}
		if c.tellFull() {
			full = append(full, c)
		}
	}
	return full
}

// forget drops rules that have been gone for long. It needs m.mu to be held.
func (m *Observer) forget(now time.Time) {
	gone := map[*ruleCounts]bool{}
	old := m.table.Load()
	for name, r := range m.retired {
		if now.Sub(r.since) < Retention {
			continue
		}
		gone[r.counts] = true
		delete(m.retired, name)
		m.unsplit(r.counts)
		if r.counts.named {
			m.series--
		}
		if r.counts.top.Swap(nil) != nil {
			m.tracked.Add(-1)
		}
	}
	if len(gone) == 0 {
		return
	}
	t := *old
	t.byName, t.all = make(map[ruleName]*ruleCounts, len(old.byName)), nil
	for name, c := range old.byName {
		if !gone[c] {
			t.byName[name] = c
		}
	}
	for _, c := range old.all {
		if !gone[c] {
			t.all = append(t.all, c)
		}
	}
	m.table.Store(&t)
}

// LackingAfter is how many requests in a row, the first that a rule counts, have to
// lack a part of its key before it is said that all do.
const LackingAfter = 100

// lacks finds out whether all requests that a rule counts lack a part of its key.
type lacks struct {
	parts atomic.Uint64 // which all have lacked so far; 0 once that is answered
	seen  atomic.Int64
}

// begin asks again, as rules have been read.
func (l *lacks) begin(r *rules.Rule) {
	l.seen.Store(0)
	l.parts.Store(1<<len(r.Key) - 1)
}

// missing counts a result whose request lacks a part of the rule's key.
func (m *Observer) missing(c *ruleCounts, number uint32, r *engine.Result) {
	if len(r.Rule.Key) == 0 {
		return
	}
	lacking := r.Rule.Missing(r.Key)
	if lacking != 0 {
		c.cells[int(number)&(len(c.cells)-1)].counts[missing].Add(1)
	}
	if c.lacks.parts.Load() == 0 {
		return // as of all rules, but for their first requests
	}
	all := c.lacks.parts.And(lacking) & lacking
	if all == 0 || c.lacks.seen.Add(1) != LackingAfter {
		return
	}
	c.lacks.parts.Store(0)
	if m.options.Lacking != nil {
		m.options.Lacking(r.Rule, all)
	}
}
