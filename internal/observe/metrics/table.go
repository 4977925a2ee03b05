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
	// otherRules are those beyond Options.MaxRules, and of a domain that has
	// just vanished.
	otherRules = "(other)"
	// overrides are limits that came with a request of Envoy's.
	overrides = "(override)"
	// unknownDomain is that of requests whose domain has no rules.
	unknownDomain = "(unknown)"
	// noRule is what applies there.
	noRule = "(none)"
)

// Policies are how a decision was made without the store: on_store_error.
const (
	policyAllow = iota
	policyDeny
	policyLocal
	policies
)

// policyNames are the values of the label policy.
func policyNames() [policies]string { return [policies]string{"allow", "deny", "local"} }

// cell is the counters of a rule for some of the cores.
type cell struct {
	outcomes [engine.Outcomes]atomic.Uint64
	near     atomic.Uint64
	degraded [policies]atomic.Uint64
	banned   atomic.Uint64
	missing  atomic.Uint64
	_        [32]byte // two cache lines in all, as they are fetched in pairs
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

	was Counts // at the last tick
}

func (c *ruleCounts) id() ruleName { return ruleName{c.domain, c.name} }

// Counts are what a rule has said.
type Counts struct {
	// Outcomes has one number for each engine.Outcome.
	Outcomes [engine.Outcomes]uint64
	// Near is how many passed with no more than a fifth of the limit left.
	Near uint64
	// Degraded is how many were decided without the store: by the policies
	// allow, deny and local.
	Degraded [policies]uint64
	// Banned is how many were refused because an operator has banned the key.
	Banned uint64
	// Missing is how many lacked a part of the key, and were counted with the
	// others that did.
	Missing uint64
}

// count counts one result.
func (c *ruleCounts) count(lane uint32, r *engine.Result, o engine.Outcome) {
	at := &c.cells[int(lane)&(len(c.cells)-1)]
	if o < engine.Outcomes {
		at.outcomes[o].Add(1)
	}
	d := &r.Decision
	switch d.Reason {
	case headgate.FailOpen:
		at.degraded[policyAllow].Add(1)
	case headgate.FailClosed:
		at.degraded[policyDeny].Add(1)
	case headgate.Fallback:
		at.degraded[policyLocal].Add(1)
	case headgate.Banned:
		at.banned.Add(1)
	default:
		if d.Allowed && o != engine.ShadowRefused && d.Remaining*5 <= d.Limit && d.Reason != headgate.NoLimit {
			at.near.Add(1)
		}
	}
}

// read adds up.
func (c *ruleCounts) read() Counts {
	var sum Counts
	for i := range c.cells {
		at := &c.cells[i]
		for o := range at.outcomes {
			sum.Outcomes[o] += at.outcomes[o].Load()
		}
		sum.Near += at.near.Load()
		sum.Banned += at.banned.Load()
		sum.Missing += at.missing.Load()
		for p := range at.degraded {
			sum.Degraded[p] += at.degraded[p].Load()
		}
	}
	return sum
}

// add adds what other has.
func (c *Counts) add(other *Counts) {
	for o := range c.Outcomes {
		c.Outcomes[o] += other.Outcomes[o]
	}
	c.Near += other.Near
	c.Banned += other.Banned
	c.Missing += other.Missing
	for p := range c.Degraded {
		c.Degraded[p] += other.Degraded[p]
	}
}

// minus returns what c has more than other.
func (c Counts) minus(other *Counts) Counts {
	for o := range c.Outcomes {
		c.Outcomes[o] -= other.Outcomes[o]
	}
	c.Near -= other.Near
	c.Banned -= other.Banned
	c.Missing -= other.Missing
	for p := range c.Degraded {
		c.Degraded[p] -= other.Degraded[p]
	}
	return c
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
