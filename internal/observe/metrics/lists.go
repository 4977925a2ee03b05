package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

// listName says which list counts are of. Lists of the same kind and attribute in a domain
// share them: those in shadow mode have other outcomes.
type listName struct {
	kind      rules.ListKind
	attribute string
}

// modes returns the counts of lists that are enforced, and of those in shadow mode.
func (n *listName) modes(s *sums) (enforced, shadow uint64) {
	if n.kind == rules.AllowList {
		return s.outcomes()[engine.Allowed], 0
	}
	return s.outcomes()[engine.Refused], s.outcomes()[engine.ShadowRefused]
}

// setLists makes counters for the lists of rs. m.mu must be held.
func (m *Observer) setLists(t, old *table, rs *rules.Ruleset, shards int) {
	for _, l := range rs.Lists() {
		name := nameOf(l.Rule())
		if t.byName[name] != nil {
			continue
		}
		c := old.byName[name]
		if c == nil || c.list == nil {
			c = &ruleCounts{
				domain: strings.Clone(l.Domain), name: strings.Clone(name.rule), cells: make([]cell, shards),
				list: &listName{l.Kind, l.Attribute.String()},
			}
		}
		delete(m.retired, c.id())
		t.byName[c.id()], t.all = c, append(t.all, c)
	}
}

// ListHits returns how many requests a list has allowed or denied, or would have denied,
// since the process started or the list was added.
func (m *Observer) ListHits(l *rules.List) uint64 {
	c := m.table.Load().byName[nameOf(l.Rule())]
	if c == nil || c.list == nil {
		return 0
	}
	s := c.read()
	enforced, shadow := c.list.modes(&s)
	if l.Mode == rules.Shadow {
		return shadow
	}
	return enforced
}

// lists exports the counts of lists. Those of lists in shadow mode appear when they first
// occur.
func (c *collector) lists(out chan<- prometheus.Metric) {
	for _, r := range c.m.table.Load().all {
		if r.list == nil {
			continue
		}
		s := r.read()
		enforced, shadow := r.list.modes(&s)
		c.listed(out, float64(enforced), r.domain, r.list.kind.String(), r.list.attribute, rules.Enforce.String())
		if shadow > 0 {
			c.listed(out, float64(shadow), r.domain, r.list.kind.String(), r.list.attribute, rules.Shadow.String())
		}
	}
}
