// Package ownform parses Headgate's own rules, the limits of a document, and the keys
// that other forms share with them, into a rules.Builder. It works on YAML nodes, not
// on files.
package ownform

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/internal/rules/zone"
)

// Parser parses Headgate's own rules and the keys that other forms share with them. The
// Report is that of the current file.
type Parser struct {
	*yamltext.Report
	Rules *rules.Builder // what has been read
	// OnlyHTTP, NoTokens and PlainFields say what requests can have, NoProxy what the process
	// lacks; see rulefile.Options.
	OnlyHTTP, NoTokens, PlainFields, NoProxy bool
	ProxyDomain                              string         // see rulefile.Options
	Regions                                  *rules.Regions // nil if there are none, or if they are not known

	// OpenTable opens the tables that rules name; nil if there can be none. TableProblems is
	// what Finish finds wrong with them; the files with such rules have an error each.
	OpenTable     OpenTable
	TableProblems []diagnostic.Diagnostic

	tables []*tableForm
	lists  []*listForm // in the order of the files
	// listsByID has the same.
	listsByID map[listID]*listForm
	zones     map[string]*time.Location // loaded once each, so that equal limits compare equal
	// zoneTable has the zones that requests may name; nil until a rule needs it.
	zoneTable *zone.Table
	parsed    []parsedRule
	names     map[string][]string // the keys of mappings, by what has them
	replaced  map[LimitName]bool

	keeps        []kept
	lowers       []lowers
	prioritiesAt map[string]string // where those of a domain are
}

// NewParser returns a parser that adds to rules, which may be nil for parsing single
// keys.
func NewParser(rules *rules.Builder) *Parser {
	return &Parser{Rules: rules, zones: map[string]*time.Location{}, replaced: map[LimitName]bool{}}
}

// Names returns the names of the keys of a mapping, which is made once.
func (p *Parser) Names(what string, rows func() []form.Row) []string {
	if p.names[what] == nil {
		if p.names == nil {
			p.names = map[string][]string{}
		}
		p.names[what] = form.Keys(rows())
	}
	return p.names[what]
}

// LimitName identifies a limit for replaces.
type LimitName struct{ Domain, Name string }

// Replace notes that another rule replaces a limit for some requests.
func (p *Parser) Replace(name LimitName) { p.replaced[name] = true }

// Finish reads the tables and lists, and compares the rules of all files with each other.
func (p *Parser) Finish() {
	p.keep()
	p.warnUnmarked()
	p.readTables()
	p.readLists()
	p.warnRepeated()
	p.warnShadowed()
}

// parsedRule is a rule with the data for warnings.
type parsedRule struct {
	rule *rules.Rule
	// key is the same for rules that count by the same, signature for those that
	// count the same requests besides.
	key, signature string
	asked          conditions
	name           *yamltext.Node
	report         *yamltext.Report
	order          int // among all, as in the files
}

// ParseLimits parses headers, priorities, lists and limits of a document. If the domain is unknown, it is
// empty, and the rules are only checked.
func (p *Parser) ParseLimits(f yamltext.Fields, domain string) {
	if n := f.Get("headers"); n != nil {
		p.parseHeaders(n, domain)
	}
	if n := f.Get("priorities"); n != nil {
		p.parsePriorities(n, domain)
	}
	p.parseLists(f, domain)
	limits := f.Get("limits")
	switch {
	case limits == nil:
	case limits.Kind != yamltext.List:
		p.Errorf(limits, "", "\"limits\" must be a list, not %s", limits.Kind)
	default:
		for i, item := range limits.Items {
			p.parseLimit(item, yamltext.Ordinal("limit", i), domain)
		}
	}
}

// Dialects returns the names of the header dialects. A test compares them with package
// answer, which implements them.
func Dialects() []string {
	return []string{"default", "ietf", "github", "openai", "draft-03", "none"}
}

// parseHeaders reads the headers of a document: the dialect of its domain, which must be
// the same in all documents of the domain.
func (p *Parser) parseHeaders(n *yamltext.Node, domain string) {
	word, ok := p.Choice(n, "headers", Dialects()...)
	if !ok || domain == "" {
		return
	}
	if before, at, ok := p.Rules.SetHeaders(domain, word, fmt.Sprintf("%s:%d:%d", p.File, n.Line, n.Column)); !ok {
		p.Errorf(n, "a domain has one dialect", "\"headers\" of this domain is already %s, set in %s", clip.Quote(before), at)
	}
}

// maxDomain is the longest name of a domain, in bytes.
const maxDomain = 256

// DomainName reads the name of a domain: any text, as Envoy's are.
func (p *Parser) DomainName(n *yamltext.Node) (string, bool) {
	name, ok := p.Word(n, "domain")
	if !ok {
		return "", false
	}
	if len(name) > maxDomain || strings.ContainsFunc(name, unicode.IsControl) {
		p.Errorf(n, "", "the domain %s must be at most %d bytes long, without control characters", clip.Quote(name), maxDomain)
		return "", false
	}
	return name, true
}

// ruleName reads the name of a rule. It ends up in the RateLimit header and in
// metrics, so it keeps to characters that need no escape anywhere.
func (p *Parser) ruleName(n *yamltext.Node) (string, bool) {
	name, ok := p.Word(n, "name")
	if !ok {
		return "", false
	}
	bad := strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:/", c)
	})
	if bad >= 0 || len(name) > rules.MaxName {
		p.Errorf(n, "", "invalid name %s: want at most %d letters, digits and -_.:/", clip.Quote(name), rules.MaxName)
		return "", false
	}
	return name, true
}

// addRule adds a rule, if it is complete. A rule without conditions, because of an
// error, is not compared with others.
func (p *Parser) addRule(r *rules.Rule, match rules.Match, name *yamltext.Node, asked conditions) {
	if r.Domain == "" || r.Name == "" {
		return
	}
	if err := p.Rules.Add(r, match); err != nil {
		p.Errorf(name, "", "%v", err)
		return
	}
	if asked == nil || r.Disabled {
		return
	}
	for _, l := range asked {
		slices.Sort(l.any)
		slices.Sort(l.not)
	}
	key := fmt.Sprintf("%q %s %q", r.Domain, r.KeyMissing, r.Key)
	p.parsed = append(p.parsed, parsedRule{r, key, fmt.Sprintf("%s %q", key, asked), asked, name, p.Report, len(p.parsed)})
}
