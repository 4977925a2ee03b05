package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/rules/keytable"
	"github.com/headgate/headgate/internal/rules/prefixtable"
)

// ListKind says what a list does with the requests on it.
type ListKind uint8

// The kinds of lists.
const (
	AllowList ListKind = iota // they pass, and no rule counts them
	DenyList                  // they are refused before any rule counts them
)

// String returns the name that rules use: allow or deny.
func (k ListKind) String() string { return enum.Name(k, "list", "allow", "deny") }

// List has the values of one attribute of the requests that all rules of a domain let
// pass, or that are refused. It is immutable once its Ruleset has been built.
//
// A request on the allow list passes, even if a deny list or a ban has it too. A request
// with several values of the attribute, or one that servers may read in several ways, is
// denied if any of them is on the list, and allowed only if all are.
//
// [Ruleset.Match] adds a check for a list that has the request, whose Rule is the list's:
// see [Rule.List]. It needs no store. The check of an allow list, and that of a deny list
// that is enforced, is then the only one.
type List struct {
	Kind      ListKind
	Domain    string
	Attribute Attribute
	Mode      Mode // of a deny list
	Status    int  // the HTTP status of the answer to denied requests
	// Prefixes has the values of client_ip, Keys those of any other attribute, normalised
	// with [ListValue]. The Source of a row is an index of Sources, as is the Value of a
	// row of Keys.
	Prefixes *prefixtable.Table
	Keys     *keytable.Table
	Sources  []ListSource
	Took     time.Duration // how long reading took
	// File, Line and Column are the first place in the rule files that has the list.
	File         string
	Line, Column int

	rule *Rule
	bit  uint64 // of an allow list, for JoinLists
}

// ListSource is a place that entries of a list come from.
type ListSource struct {
	// Name is the file as the rules name it, or the rule file of entries that are in the
	// rules themselves.
	Name    string
	Path    string // of the file; empty for entries in a rule file
	Entries int    // how many there are, including duplicates
}

// MaxLists is how many lists of a kind a domain may have: for each attribute, mode and
// status one.
const MaxLists = 64

// Entries returns how many entries the list has, without duplicates and addresses inside
// others.
func (l *List) Entries() int { return l.Prefixes.Len() + l.Keys.Len() }

// Size returns the memory of the list in bytes.
func (l *List) Size() int64 { return l.Prefixes.Size() + l.Keys.Size() }

// Rule returns the rule of the checks of the list.
func (l *List) Rule() *Rule { return l.rule }

// Files returns the files that the list is read from, as rules name them.
func (l *List) Files() []string {
	var names []string
	for _, s := range l.Sources {
		if s.Path != "" && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// List returns the list that r stands for, or nil for a real rule.
func (r *Rule) List() *List { return r.list }

// lists are the lists of a domain.
type lists struct {
	allow []*List
	deny  []*List // enforced ones first
}

// allowByClaims reports whether there is an allow list of claims.
func (ls *lists) allowByClaims() bool {
	return slices.ContainsFunc(ls.allow, func(l *List) bool { return l.Attribute.Kind == JWT })
}

// ListValue returns the form in which a value of an attribute is compared with lists.
func ListValue(a Attribute, text string) string {
	one, _ := formOf(a).Read(text)
	return one
}

// AddList adds a list. Lists of the same domain must differ in kind, attribute, mode or
// status, and there must be at most [MaxLists] of a kind.
func (b *Builder) AddList(l *List) {
	l.rule = l.newRule()
	d := b.domain(l.Domain)
	if d.lists == nil {
		d.lists = &lists{}
	}
	if l.Kind == AllowList {
		l.bit = 1 << len(d.lists.allow)
		d.lists.allow = append(d.lists.allow, l)
	} else {
		d.lists.deny = append(d.lists.deny, l)
		slices.SortStableFunc(d.lists.deny, func(x, y *List) int { return cmp.Compare(x.Mode, y.Mode) })
	}
	b.set.lists = append(b.set.lists, l)
}

// newRule returns the rule of the checks of l.
func (l *List) newRule() *Rule {
	r := &Rule{
		Domain: l.Domain, Name: l.Kind.String() + " " + l.Attribute.String(), Index: IndexList,
		Limit: headgate.Unlimited(), Mode: l.Mode, Percent: 100, LocalShare: 1,
		Key:  []KeyAttribute{{Attribute: l.Attribute}},
		File: l.File, Line: l.Line, Column: l.Column, list: l, zone: noZone,
	}
	r.Scope, r.LimitName = ScopeOf(l.Domain, r.Name), r.Name
	if l.Kind == DenyList {
		r.Limit = headgate.Per(0, time.Minute)
		r.OnLimit = OnLimit{Status: l.Status}
	}
	return r
}

// Lists returns the lists of all domains, in the order of the files.
func (s *Ruleset) Lists() []*List { return slices.Clone(s.lists) }

// HasLists reports whether a domain has lists.
func (s *Ruleset) HasLists(domain string) bool {
	d := s.domains[domain]
	return d != nil && d.lists != nil
}

// place writes where an entry is: file:line.
func (l *List) place(source uint16, line uint32) string {
	return fmt.Sprintf("%s:%d", l.Sources[source].Name, line)
}

// KeyAt says where the list has a value, in the form of [ListValue].
func (l *List) KeyAt(value string) (at string, ok bool) {
	row, ok := l.Keys.Find(value)
	if !ok {
		return "", false
	}
	return l.place(row.Value, row.Line), true
}

// PrefixAt says where the list has all addresses of p.
func (l *List) PrefixAt(p netip.Prefix) (at string, ok bool) {
	found, row, ok := l.Prefixes.Containing(p)
	if !ok {
		return "", false
	}
	return l.place(row.Source, row.Line) + ": " + prefixText(found), true
}

// limitText is how the list is shown in place of a limit.
func (l *List) limitText() string {
	files := l.Files()
	if len(files) == 0 {
		return l.Kind.String()
	}
	return l.Kind.String() + " by " + strings.Join(files, ", ")
}
