package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/keytable"
)

// Table gives single keys of a rule limits of their own, from the rows of a file. It is
// immutable once its Ruleset has been built.
//
// Each key with a row is limited by a variant of the rule: a copy with another Limit, and
// the same Scope and Name. [Ruleset.Match] chooses it by the composed key. There is one
// variant for each of Limits, shared by all rows that say the same, so whatever works
// with a *Rule works with a variant. What is kept per rule, and not per limit, is kept
// for its [Rule.Base]. Callers that know a rule and a key, but not the request, call
// [Rule.ForKey].
type Table struct {
	Name string // the file, as the rule names it
	File string // the path of the file
	Rows *keytable.Table
	// Limits are the limits of rows, by the Value of the row.
	Limits []headgate.Limit
	// Shape has the algorithm and the options of the rule, for a rate that replaces an
	// unlimited default.
	Shape headgate.Limit
	Took  time.Duration // how long reading took

	variants []*Rule
	// strictest of variants and the default is for keys of which servers may read several.
	strictest *Rule
}

// SetTable gives the keys of a rule that has been added limits of their own. Keys without
// a row have the given limit.
func (b *Builder) SetTable(r *Rule, t *Table, others headgate.Limit) { r.table, r.Limit = t, others }

// make makes the variants of r, which is complete.
func (t *Table) make(r *Rule) {
	t.variants = make([]*Rule, len(t.Limits))
	for i, limit := range t.Limits {
		t.variants[i] = r.variant(limit)
		t.variants[i].row = i + 1
	}
	t.strictest = r
	for _, v := range t.variants {
		if stricter(&v.Limit, &t.strictest.Limit) {
			t.strictest = v
		}
	}
}

// stricter reports whether a lets fewer requests pass than b, in the long run.
func stricter(a, b *headgate.Limit) bool {
	if a.Rule().Unlimited || b.Rule().Unlimited {
		return !a.Rule().Unlimited
	}
	return float64(a.N())/float64(max(a.Period(), 1)) < float64(b.N())/float64(max(b.Period(), 1))
}

// variant returns a copy of r, a rule of a Ruleset, with another limit.
func (r *Rule) variant(limit headgate.Limit) *Rule {
	out := *r
	out.Limit, out.base = limit, r.Base()
	out.setMarking()
	return &out
}

// repeats reports whether two rules, of which either may have no table, have the same.
func (t *Table) repeats(other *Table) bool {
	return t == other || t != nil && other != nil && t.File == other.File && t.Shape.Equal(other.Shape)
}

// Base returns the rule of the Ruleset that r is a variant of, or r itself. See [Table].
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// ForKey returns the variant of r that limits a key, or r. It allocates nothing.
func (r *Rule) ForKey(key string) *Rule {
	if r.table == nil {
		return r
	}
	if row, ok := r.table.Rows.Find(key); ok {
		return r.table.variants[row.Value]
	}
	return r.Base()
}

// ownZone is what the text of a limit has after the caller's own zone.
const ownZone = ", the caller's own zone"

// varies reports whether the limit of r depends on the key or the request.
func (r *Rule) varies() bool { return r.table != nil || r.given != nil }

// HasRates reports whether the rate of r depends on the key or the request.
func (r *Rule) HasRates() bool { return r.table != nil || r.given != nil && r.given.Rate != nil }

// MayUseBlocks reports whether some limit of r may be in blocks.
func (r *Rule) MayUseBlocks() bool {
	_, blocks := r.Limit.Rule().Blocks()
	return blocks || r.HasRates()
}

// HasTable reports whether the limit of r depends on the key.
func (r *Rule) HasTable() bool { return r.table != nil }

// LimitFrom says where the limit of a key comes from, if not from the rule itself: from
// which line of a table, which claim, or from the default.
func (r *Rule) LimitFrom(key string) string {
	if r.given != nil && r.given.Rate != nil {
		return r.rateFrom()
	}
	if r.table == nil {
		return ""
	}
	if row, ok := r.table.Rows.Find(key); ok {
		return fmt.Sprintf("%s:%d", r.table.Name, row.Line)
	}
	return "the default of " + r.table.Name
}

// LimitText describes the limit of r for people, such as "10/minute", or "by
// customers.csv, else 10/minute".
func (r *Rule) LimitText() string {
	if r.list != nil {
		return r.list.limitText()
	}
	text := r.Base().Limit.String()
	if g := r.given; g != nil && g.Zone != nil {
		text = strings.Replace(text, " in "+g.Zone.Default.String()+ownZone, " in the zone of "+g.Zone.From.String()+", else "+g.Zone.Default.String(), 1)
	}
	if g := r.given; g != nil && g.Rate != nil {
		return "by " + g.Rate.From.String() + " up to " + g.Rate.Max.String() + ", else " + text
	}
	if r.table == nil {
		return text
	}
	return "by " + r.table.Name + ", else " + text
}

// Tables returns the tables of the rules, in the order of the rules.
func (s *Ruleset) Tables() []*Table { return slices.Clone(s.tables) }
