package metrics

import "github.com/headgate/headgate/internal/rules"

// Counts are what a rule has said, by engine.Outcome and then as the table has it.
type Counts = sums

// Counts returns what a rule has said so far.
func (m *Observer) Counts(r *rules.Rule) Counts { return m.table.Load().of(r).read() }
