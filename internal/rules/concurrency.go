package rules

import (
	"slices"

	"github.com/headgate/headgate"
)

// Concurrent reports whether r limits what is under way at the same time, which
// only a caller can keep to who knows when a request has ended.
func (r *Rule) Concurrent() bool { return r.Limit.Algorithm() == headgate.Concurrency }

// HasConcurrent reports whether there is such a rule.
func (s *Ruleset) HasConcurrent() bool { return s.concurrent }

// DropConcurrent takes those rules out of m.
func (m *Matches) DropConcurrent() {
	m.Checks = slices.DeleteFunc(m.Checks, func(c Check) bool { return c.Rule.Concurrent() })
}
