package metrics

import "github.com/headgate/headgate/internal/rules"

// Counts are the counts of a rule by engine.Outcome, followed by the table's own.
type Counts = sums

// Counts returns the counts of a rule.
func (m *Observer) Counts(r *rules.Rule) Counts { return m.table.Load().of(r).read() }
