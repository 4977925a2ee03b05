package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/enum"
)

// tree holds the rules of a domain that are written as descriptors:
//
//	tree ─ Level ─ choice "path" ─ Branch "/login" ─ Level ─ choice "user" ─ Branch, any value: Rule
//	             │               └ Branch "/*": Rule
//	             └ choice "tenant" ─ …
//
// A Level has one choice for each key, and a choice its Branches from the most specific to
// the least: an exact value, the longest pattern, the bare key. A Branch may have a Rule, a
// Level below it, both, or neither; it answers if it says what applies, which may be that
// nothing does. The tree is built once and never changes.
//
// Three kinds of requests walk it:
//
//   - A list of entries, as Envoy sends it, walks down in its order (find): the first entry
//     chooses a Branch of the root, the second one below it, and so on. Where the most
//     specific Branch leads nowhere, the next is tried. The limit is that of the last entry.
//   - Under compat: envoy (findJoined), key and value are joined to one text and looked up as
//     Envoy's service does: patterns come in the order of the file, and there is no second
//     try.
//   - A request with attributes (matchAttributes) has no order, so it walks down every key of
//     a Level that it has, and gets every Rule on the way. Of one choice it takes the most
//     specific Branch that answers.
//
// A value that servers may read in several ways takes all of them: each reading of a path is
// walked, and a value that is unclear takes every Branch of its choice (matchAny). A walk
// goes on to less specific Branches as long as some reading has no answer; answered counts
// that. So no spelling evades a limit; at worst a request counts under more of them.
type tree struct {
	compat Compat
	root   Level
}

// Level are the descriptors below another, or those at the top.
type Level struct {
	keys  []*choice // in the order of the file
	byKey map[string]*choice

	// For CompatEnvoy: the descriptors by their composite key, and those with
	// a star at its end.
	joined map[string]*Branch
	wild   wildcards
}

// readsClaims reports whether a key of l, or of a level below, is a claim.
func (l *Level) readsClaims() bool {
	return slices.ContainsFunc(l.keys, func(c *choice) bool {
		return c.attribute.Kind == JWT || slices.ContainsFunc(c.all, func(b *Branch) bool { return b.Below != nil && b.Below.readsClaims() })
	})
}

// choice are the descriptors of a level with the same key. Of them the most
// specific that leads to an answer applies.
type choice struct {
	attribute Attribute // under which requests that are no descriptor have it
	exact     map[string]*Branch
	wild      wildcards
	bare      *Branch
	all       []*Branch // those, in the order of the files
}

// Branch is one descriptor of the tree.
type Branch struct {
	Step
	Rule  *Rule  // nil if it limits nothing
	Below *Level // nil if nothing is below it
	order int    // in the files

	File         string
	Line, Column int
}

// Step is a descriptor as part of a path through the tree.
type Step struct {
	Key, Value    string
	Attribute     Attribute
	Kind          StepKind
	ValueToMetric bool // says that the value belongs into metrics
	// Shared, under compat: envoy with share_threshold, is the composite key,
	// whose pattern takes the place of the values that match it.
	Shared string
}

// StepKind says which values a step takes.
type StepKind uint8

// The kinds of steps.
const (
	ExactStep  StepKind = iota
	BareStep            // any value, each with its own count
	WildStep            // values that match a pattern, each with its own count
	SharedStep          // values that match a pattern, counted together
)

// Composite returns the key as Envoy's service joins it.
func (s *Step) Composite() string {
	if s.Kind == BareStep {
		return s.Key
	}
	return s.Key + "_" + s.Value
}

// IsJoinedWild reports whether Envoy's service takes s for a wildcard: there a star
// of the value is one, or one at the end of a key without a value.
func (s *Step) IsJoinedWild() bool {
	if s.Kind == BareStep {
		return strings.HasSuffix(s.Key, "*")
	}
	return strings.Contains(s.Value, "*")
}

// Position returns file:line:column.
func (b *Branch) Position() string { return fmt.Sprintf("%s:%d:%d", b.File, b.Line, b.Column) }

// answers reports whether a request that ends here is settled: limited, or
// exempt, as nothing could be below.
func (b *Branch) answers() bool { return b.Rule != nil || b.Below == nil }

// Compat says whether descriptors give Headgate's answers or those of
// envoyproxy/ratelimit, where they differ.
type Compat uint8

// The kinds of compatibility.
const (
	// CompatNone takes the most specific wildcard, tries the next where that
	// leads nowhere, counts days, weeks, months and years by the calendar, and
	// never takes two keys for one.
	CompatNone Compat = iota
	// CompatEnvoy gives exactly the answers of envoyproxy/ratelimit: the first
	// wildcard of the file, no second try, windows from the Unix epoch (weeks start
	// on Thursday, a month has 30 days, a year 365), keys joined by _, which can
	// collide, and refused requests charged. Mistakes in files that the original
	// ignores are warnings instead of errors.
	CompatEnvoy
)

// String returns the name that rule files use: none or envoy.
func (c Compat) String() string { return enum.Name(c, "compat", "none", "envoy") }

// ParseCompat is the inverse of [Compat.String]. It reports false for any other text.
func ParseCompat(text string) (Compat, bool) { return enum.Parse(text, CompatEnvoy) }

// KeySecret is a secret that does not show itself when it is printed or logged.
type KeySecret string

// MinKeySecret is the minimum length of a KeySecret. A shorter one could be found by brute force
// from a key and its digest.
const MinKeySecret = 32

// String hides the secret.
func (s KeySecret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString hides the secret.
func (s KeySecret) GoString() string { return s.String() }

// MarshalText hides the secret.
func (s KeySecret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
