package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// Retention is how long the counts of a removed rule are kept: enough for the last
// scrape, and for the rule to come back.
const Retention = 10 * time.Minute

// Labels of counts without a rule.
const (
	otherRules    = "(other)"    // rules beyond Options.MaxRules, and those of a domain that was just removed
	overrides     = "(override)" // limits sent with an Envoy request
	inlined       = "(inline)"   // domain and rule of limits sent with a check
	unknownDomain = "(unknown)"  // the domain of requests without rules
	noRule        = "(none)"     // the rule of such requests
)

// Counters of a rule, after the engine's outcomes.
const (
	near     = int(engine.Outcomes) + iota // allowed with at most a fifth of the limit remaining
	banned                                 // refused because an operator banned the key
	missing                                // lacked a part of the key
	refunded                               // the answer did not count; see charge_on
	zoneless                               // named a time zone that does not exist
	rateless                               // had a rate that is none
	degraded                               // decided without the store, in the order of policyNames
	counters = degraded + policies
)

const policies = 3

// policyNames returns the values of the label policy: those of on_store_error.
func policyNames() [policies]string { return [policies]string{"allow", "deny", "local"} }

// cell has the counters of a rule for some of the cores.
type cell struct {
	counts [counters]atomic.Uint64
	_      [8]byte // two cache lines, as they are fetched in pairs
}

// ruleCounts has the counters of one rule.
type ruleCounts struct {
	domain, name string
	shared       bool // by several rules, so without keys
	named        bool // has its own series
	cells        []cell
	top          atomic.Pointer[top.Tracker]
	lacks        lacks
	values       atomic.Pointer[values] // nil without series by value
	list         *listName              // nil for a rule

	was sums // at the last tick
}

func (c *ruleCounts) id() ruleName { return ruleName{c.domain, c.name} }

// count counts one result.
func (c *ruleCounts) count(shard uint32, r *engine.Result, o engine.Outcome) {
	at := &c.cells[int(shard)&(len(c.cells)-1)].counts
	if o < engine.Outcomes {
		at[o].Add(1)
	}
	d := &r.Decision
	switch d.Reason {
	case headgate.ReasonFailOpen:
		at[degraded].Add(1)
	case headgate.ReasonFailClosed:
		at[degraded+1].Add(1)
	case headgate.ReasonFallback:
		at[degraded+2].Add(1)
	case store.ReasonBanned:
		at[banned].Add(1)
	default:
		if d.Allowed && o != engine.ShadowRefused && d.Remaining*5 <= d.Limit && d.Reason != headgate.ReasonNoLimit {
			at[near].Add(1)
		}
	}
}

// sums has the counts of a rule.
type sums [counters]uint64

// outcomes returns the counts by engine.Outcome.
func (s *sums) outcomes() *[engine.Outcomes]uint64 { return (*[engine.Outcomes]uint64)(s[:]) }

// read adds up the cells.
func (c *ruleCounts) read() (sum sums) {
	for i := range c.cells {
		for j := range sum {
			sum[j] += c.cells[i].counts[j].Load()
		}
	}
	return sum
}

// ruleName identifies a rule. Several may share a scope, such as the tiers of a limit.
type ruleName struct{ domain, rule string }

// nameOf returns the name of r, valid as long as r.
func nameOf(r *rules.Rule) ruleName { return ruleName{r.Domain, r.Name} }

// table finds the counters of a rule. It is never changed, only replaced.
type table struct {
	rules   []*rules.Rule // by their Index
	entries []*ruleCounts // in the same order
	byName  map[ruleName]*ruleCounts
	others  map[string]*ruleCounts // overrides and others, by domain
	all     []*ruleCounts          // each once
	inline  *ruleCounts            // for limits sent with a check
	lost    *ruleCounts            // for everything else
}

// of returns the counters of r, never nil.
func (t *table) of(r *rules.Rule) *ruleCounts {
	if i := r.Index; i >= 0 {
		if i < len(t.rules) && t.rules[i] == r.Base() {
			return t.entries[i]
		}
		// It is from before the last reload.
		if c := t.byName[nameOf(r)]; c != nil {
			return c
		}
	}
	if r.Index == rules.IndexList {
		if c := t.byName[nameOf(r)]; c != nil {
			return c
		}
	}
	if r.Index == rules.IndexInline && t.inline != nil {
		return t.inline
	}
	if c := t.others[r.Domain]; c != nil {
		return c
	}
	if t.lost == nil {
		return &ruleCounts{shared: true, cells: make([]cell, 1)} // before the first rules
	}
	return t.lost
}

// Labels returns the labels of a rule's series, which it may share with others: beyond
// Options.MaxRules, all of a domain. ok is false for a rule that does not exist, or was
// removed longer ago than Retention.
func (m *Observer) Labels(domain, name string) (d, r string, ok bool) {
	c := m.table.Load().byName[ruleName{domain, name}]
	switch {
	case c == nil || c.list != nil:
		return "", "", false
	case !c.named && !c.shared:
		return c.domain, otherRules, true
	}
	return c.domain, c.name, true
}

// retired has the counters of a removed rule.
type retired struct {
	counts *ruleCounts
	since  time.Time
}

// SetRules makes counters for rs. Rules that keep domain and name keep their counters.
// Call it before rs becomes active.
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
	m.setLists(t, old, rs, shards)
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
	if t.inline, t.lost = old.inline, old.lost; t.lost == nil {
		t.inline = &ruleCounts{domain: inlined, name: inlined, shared: true, cells: make([]cell, m.shards)}
		t.lost = &ruleCounts{domain: otherRules, name: otherRules, shared: true, cells: make([]cell, m.shards)}
	}
	t.all = append(t.all, t.inline, t.lost)
	m.table.Store(t)
}

// newCounts returns counters for a rule. m.mu must be held.
func (m *Observer) newCounts(domain, name string, shards int) *ruleCounts {
	c := &ruleCounts{domain: strings.Clone(domain), name: strings.Clone(name), cells: make([]cell, shards)}
	if m.series < m.options.MaxRules {
		c.named = true
		m.series++
	}
	return c
}

// Prune drops rules that were removed longer ago than Retention and the keys of idle
// rules, and logs rules with more values than series. Call it regularly.
func (m *Observer) Prune(now time.Time) { m.logFull(m.prune(now)) }

// prune returns the rules that have newly got too many values.
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

// forget drops rules that were removed longer ago than Retention. m.mu must be held.
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

// LackingAfter is how many requests, the first that a rule counts, must all lack a
// part of its key before Options.Lacking is called.
const LackingAfter = 100

// lacks detects that all requests of a rule lack a part of its key.
type lacks struct {
	parts atomic.Uint64 // parts that all have lacked so far; 0 once decided
	seen  atomic.Int64
}

// begin starts over, as rules have been read.
func (l *lacks) begin(r *rules.Rule) {
	l.seen.Store(0)
	l.parts.Store(1<<len(r.Key) - 1)
}

// missing counts a result whose request lacks a part of the rule's key, or has a time zone
// or a rate that is none.
func (m *Observer) missing(c *ruleCounts, number uint32, r *engine.Result) {
	if r.Rule.UnknownZone() {
		c.cells[int(number)&(len(c.cells)-1)].counts[zoneless].Add(1)
	}
	if r.Rule.WrongRate() {
		c.cells[int(number)&(len(c.cells)-1)].counts[rateless].Add(1)
	}
	if len(r.Rule.Key) == 0 {
		return
	}
	lacking := r.Rule.Missing(r.Key)
	if lacking != 0 {
		c.cells[int(number)&(len(c.cells)-1)].counts[missing].Add(1)
	}
	if c.lacks.parts.Load() == 0 {
		return // decided, as for nearly all requests
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
