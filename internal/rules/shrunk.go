package rules

import (
	"cmp"
	"fmt"
	"slices"
)

// GuardedEntries is how many entries a list or a table must have for [Shrunk] to watch it:
// a short one may well lose most of them.
const GuardedEntries = 100

// Shrinkage is a list or a table that has lost many of its entries.
type Shrinkage struct {
	What          string // such as: the list "deny client_ip" of api
	Before, After int    // how many entries it had, and has
	Gone          bool   // the rules no longer have such a list
}

// String says what was lost.
func (s Shrinkage) String() string {
	if s.Gone {
		return fmt.Sprintf("%s with %d entries is gone", s.What, s.Before)
	}
	return fmt.Sprintf("%s shrinks from %d to %d entries", s.What, s.Before, s.After)
}

// listName identifies a list across rulesets. A list that only changes its status is the
// same one.
type listName struct {
	domain, name string
	mode         Mode
}

// Shrunk returns the lists and tables that have lost more than a share of their entries, in
// percent, from one Ruleset to a later one: a file that was cut off is valid, and just has
// fewer lines. A list that has changed its mode, and a table that rules no longer use, are
// a change of the rules.
func Shrunk(before, after *Ruleset, percent int64) (found []Shrinkage) {
	note := func(s Shrinkage) {
		if s.Before >= GuardedEntries && int64(s.Before-s.After)*100 > percent*int64(s.Before) {
			found = append(found, s)
		}
	}
	now := after.entriesOfLists()
	for id, n := range before.entriesOfLists() {
		left, ok := now[id]
		other := listName{id.domain, id.name, Enforce}
		if id.mode == Enforce {
			other.mode = Shadow
		}
		if _, moved := now[other]; !ok && moved {
			continue
		}
		note(Shrinkage{fmt.Sprintf("the list %q of %s", id.name, id.domain), n, left, !ok})
	}
	rows := after.rowsOfTables()
	for file, n := range before.rowsOfTables() {
		if left, ok := rows[file]; ok {
			note(Shrinkage{"the table " + file, n, left, false})
		}
	}
	slices.SortFunc(found, func(a, b Shrinkage) int { return cmp.Compare(a.What, b.What) })
	return found
}

// entriesOfLists counts the entries of the lists.
func (s *Ruleset) entriesOfLists() map[listName]int {
	out := map[listName]int{}
	for _, l := range s.lists {
		out[listName{l.Domain, l.rule.Name, l.Mode}] += l.Entries()
	}
	return out
}

// rowsOfTables counts the rows of the tables, by file.
func (s *Ruleset) rowsOfTables() map[string]int {
	out := map[string]int{}
	for _, t := range s.tables {
		out[t.File] = t.Rows.Len()
	}
	return out
}
