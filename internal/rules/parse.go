package rules

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Parse is Load for files that have been read already. The Ruleset is nil if
// any of the diagnostics, which include the warnings, is an error.
func Parse(sources ...Source) (*Ruleset, []diagnostic.Diagnostic) { return Options{}.Parse(sources...) }

// Parse is [Parse] with these options.
func (o Options) Parse(sources ...Source) (*Ruleset, []diagnostic.Diagnostic) {
	p := parser{
		options: o,
		trees:   map[*domain]*parsedTree{},
		places:  map[place]*branch{},
		set:     &Ruleset{domains: map[string]*domain{}},
		zones:   map[string]*time.Location{},
		reports: make([]yamltext.Report, len(sources)),

		replaced: map[limitName]bool{},
		digester: newDigester(o.KeySecret),
	}
	for i, s := range sources {
		p.Report = &p.reports[i]
		p.File = s.Name
		p.parseFile(s.Data)
	}
	p.warnRepeated()
	p.warnShadowed()
	p.finishTrees()
	var diagnostics []diagnostic.Diagnostic
	errors := 0
	for i := range p.reports {
		errors += p.reports[i].Errors
		diagnostics = append(diagnostics, p.reports[i].Sorted()...)
	}
	if errors > 0 {
		return nil, diagnostics
	}
	p.set.stats.Files = len(sources)
	p.finish()
	p.set.warnings = diagnostics
	return p.set, diagnostics
}

// parser reads files into a Ruleset. The embedded reporter is that of the
// current file.
type parser struct {
	*yamltext.Report

	options  Options
	digester *digester
	set      *Ruleset
	zones    map[string]*time.Location // loaded once each, so that equal limits compare equal
	reports  []yamltext.Report
	parsed   []parsedRule

	// Of the descriptor form:
	trees    map[*domain]*parsedTree
	places   map[place]*branch
	branches []parsedBranch // all descriptors, in the order of the files
	replaces []parsedReplace
	replaced map[limitName]bool // by a name in replaces
}

// parsedRule is a rule with what the warnings need to know of it.
type parsedRule struct {
	rule *Rule
	// signature is the same for rules that count the same requests by the
	// same key.
	signature string
	name      *yamltext.Node
	report    *yamltext.Report
	order     int // among all, as in the files
}

func documentKeys() []string {
	return []string{"domain", "limits", "descriptors", "compat", "merge_domains", "headers"}
}

// parseFile reads the documents of one file. Top-level keys that begin with x-
// are the user's own, for example to hold anchors.
func (p *parser) parseFile(src []byte) {
	read := yamltext.ReadDocuments
	if p.options.Compat == CompatEnvoy {
		read = yamltext.ReadFirst
	}
	docs := slices.DeleteFunc(read(src, p.Report), func(doc *yamltext.Node) bool { return doc.Kind == yamltext.Null })
	for _, doc := range docs {
		if p.peekCompat(doc) == CompatEnvoy && yamltext.HasKey(doc, "descriptors") {
			p.TakeLast(doc)
		} else {
			p.RefuseRepeats(doc)
		}
		if doc.Kind == yamltext.Map {
			doc.Pairs = slices.DeleteFunc(slices.Clone(doc.Pairs), func(field yamltext.Pair) bool {
				return strings.HasPrefix(field.Key.Text, "x-")
			})
		}
		p.parseDocument(doc)
	}
	if p.Errors == 0 && !slices.ContainsFunc(docs, saysRules) {
		p.Add(diagnostic.Diagnostic{
			Severity: diagnostic.SeverityError, Line: 1, Column: 1,
			Message: "the file holds no rules", Hint: "if that is meant, write a domain and \"limits: []\"",
		})
	}
}

// saysRules reports whether a document has a list of rules, be it an empty one: a
// file that has been cut off, or not yet been written, has none.
func saysRules(doc *yamltext.Node) bool {
	return doc.Kind != yamltext.Map || slices.ContainsFunc(doc.Pairs, func(f yamltext.Pair) bool {
		return (f.Key.Text == "limits" || f.Key.Text == "descriptors") && f.Value != nil && f.Value.Kind != yamltext.Null
	})
}

// parseDocument reads one namespace of rules.
func (p *parser) parseDocument(doc *yamltext.Node) {
	t := treeForm{parser: p}
	if doc.Kind == yamltext.Map && yamltext.HasKey(doc, "descriptors") {
		t.compat = p.peekCompat(doc)
		doc = p.placed(doc, "a rule file", documentKeys(), t.compat)
	}
	f := p.Fields(doc, "a rule file", documentKeys())
	if doc.Kind != yamltext.Map {
		return
	}
	name, d := "", (*domain)(nil)
	switch n := f.Get("domain"); {
	case n == nil && !yamltext.HasKey(doc, "domain"):
		p.Errorf(doc, "", "\"domain\" is missing")
	case n != nil:
		if t.compat == CompatEnvoy && n.Kind == yamltext.Number {
			n = &yamltext.Node{Kind: yamltext.Text, Text: n.Text, Line: n.Line, Column: n.Column}
		}
		if text, ok := p.domainName(n); ok {
			name, d = text, p.domain(text)
		}
	}
	if n := f.Get("headers"); n != nil {
		p.parseHeaders(n, d)
	}
	limits := f.Get("limits")
	switch {
	case limits == nil:
	case limits.Kind != yamltext.List:
		p.Errorf(limits, "", "\"limits\" must be a list, not %s", limits.Kind)
	default:
		for i, item := range limits.Items {
			p.parseLimit(item, yamltext.Ordinal("limit", i), name, d)
		}
	}
	t.domain, t.domainName = d, name
	t.parse(f)
}

// domain returns the domain of that name, new if need be. Documents and files
// that share a name share the domain.
func (p *parser) domain(name string) *domain {
	d := p.set.domains[name]
	if d == nil {
		d = &domain{byName: map[string]*Rule{}}
		p.set.domains[name] = d
	}
	return d
}

// maxDomain is the longest name of a domain, maxRule that of a rule, in bytes.
const (
	maxDomain = 256
	maxRule   = 128
)

// domainName reads the name of a domain: any text, as Envoy's are.
func (p *parser) domainName(n *yamltext.Node) (string, bool) {
	name, ok := p.Word(n, "domain")
	if !ok {
		return "", false
	}
	if len(name) > maxDomain || strings.ContainsFunc(name, unicode.IsControl) {
		p.Errorf(n, "", "the domain %s must have at most %d bytes and no control characters", clip.Quote(name), maxDomain)
		return "", false
	}
	return name, true
}

// ruleName reads the name of a rule. It ends up in the RateLimit header and in
// metrics, so it keeps to characters that need no escape anywhere.
func (p *parser) ruleName(n *yamltext.Node) (string, bool) {
	name, ok := p.Word(n, "name")
	if !ok {
		return "", false
	}
	bad := strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:/", c)
	})
	if bad >= 0 || len(name) > maxRule {
		p.Errorf(n, "", "the name %s must have at most %d letters, digits and -_.:/", clip.Quote(name), maxRule)
		return "", false
	}
	return name, true
}

// addRule files a rule under its domain. Without a signature, as something is
// wrong with it, the rule is not compared with others.
func (p *parser) addRule(d *domain, r *Rule, name *yamltext.Node, signature string) {
	if d == nil || r.Name == "" {
		return
	}
	if first := d.byName[r.Name]; first != nil {
		p.Errorf(name, "", "the name %s is taken in the domain %s: %s", clip.Quote(r.Name), clip.Quote(r.Domain), first.Position())
		return
	}
	d.byName[r.Name] = r
	if r.disabled {
		p.set.stats.Disabled++
		return
	}
	d.rules = append(d.rules, r)
	p.set.rules = append(p.set.rules, r)
	if signature != "" {
		p.parsed = append(p.parsed, parsedRule{r, signature, name, p.Report, len(p.parsed)})
	}
}

// finish builds what Match needs.
func (p *parser) finish() {
	s := p.set
	p.nameDescriptors()
	for name, d := range s.domains {
		for rule, r := range d.byName {
			if r.disabled {
				delete(d.byName, rule)
			}
		}
		d.index = newIndex(d.rules)
		s.names = append(s.names, name)
	}
	for i, r := range s.rules {
		r.Index, r.Headers = i, s.domains[r.Domain].headers.dialect
		s.concurrent = s.concurrent || r.Concurrent()
	}
	slices.Sort(s.names)
	s.stats.Domains, s.stats.Rules = len(s.names), len(s.rules)
}

// scopeOf joins a domain and the name of a rule into a text that no other two
// have: of the slashes in it the first is always the one between them.
func scopeOf(domain, name string) string {
	domain = strings.ReplaceAll(domain, "%", "%25")
	return strings.ReplaceAll(domain, "/", "%2F") + "/" + name
}
