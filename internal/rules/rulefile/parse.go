package rulefile

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/envoyform"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Parse is Load for files that have been read already. The Ruleset is nil if
// any of the diagnostics, which include the warnings, is an error.
func Parse(sources ...Source) (*rules.Ruleset, []diagnostic.Diagnostic) {
	return Options{}.Parse(sources...)
}

// Parse is [Parse] with these options.
func (o Options) Parse(sources ...Source) (*rules.Ruleset, []diagnostic.Diagnostic) {
	return o.parse(nil, sources)
}

// parse is Parse where finding the files has found something already.
func (o Options) parse(diagnostics []diagnostic.Diagnostic, sources []Source) (*rules.Ruleset, []diagnostic.Diagnostic) {
	b := rules.NewBuilder(o.KeySecret)
	own := ownform.NewParser(b)
	own.OnlyHTTP, own.NoTokens, own.PlainFields = o.OnlyHTTP, o.NoTokens, o.PlainFields
	p := fileParser{Parser: own, tree: envoyform.NewParser(own, o.Compat, o.MergeDomains), compat: o.Compat}
	reports := make([]yamltext.Report, len(sources))
	for i, s := range sources {
		p.Report = &reports[i]
		p.File = s.Name
		p.parseFile(s.Data)
	}
	own.Finish()
	p.tree.Finish()
	errors := 0
	if diagnostic.HasErrors(diagnostics) {
		errors++
	}
	for i := range reports {
		errors += reports[i].Errors
		diagnostics = append(diagnostics, reports[i].Sorted()...)
	}
	if errors > 0 {
		return nil, diagnostics
	}
	return b.Ruleset(len(sources), diagnostics), diagnostics
}

// fileParser reads files into a Ruleset: each of their documents by the parsers of
// the forms that it has.
type fileParser struct {
	*ownform.Parser
	tree   *envoyform.Parser
	compat rules.Compat
}

// DocumentKeys are the keys of a document, beside those that begin with x-.
func DocumentKeys() []string {
	return []string{"domain", "limits", "descriptors", "compat", "merge_domains", "headers"}
}

// parseFile reads the documents of one file. Top-level keys that begin with x-
// are the user's own, for example to hold anchors.
func (p *fileParser) parseFile(src []byte) {
	read := yamltext.ReadDocuments
	if p.compat == rules.CompatEnvoy {
		read = yamltext.ReadFirst
	}
	docs := slices.DeleteFunc(read(src, p.Report), func(doc *yamltext.Node) bool { return doc.Kind == yamltext.Null })
	for _, doc := range docs {
		if p.tree.CompatOf(doc) == rules.CompatEnvoy && yamltext.HasKey(doc, "descriptors") {
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
func (p *fileParser) parseDocument(doc *yamltext.Node) {
	compat := rules.CompatNone
	if doc.Kind == yamltext.Map && yamltext.HasKey(doc, "descriptors") {
		compat = p.tree.CompatOf(doc)
		doc = p.tree.Placed(doc, "a rule file", DocumentKeys(), compat)
	}
	f := p.Fields(doc, "a rule file", DocumentKeys())
	if doc.Kind != yamltext.Map {
		return
	}
	domain := ""
	switch n := f.Get("domain"); {
	case n == nil && !yamltext.HasKey(doc, "domain"):
		p.Errorf(doc, "", "\"domain\" is missing")
	case n != nil:
		if compat == rules.CompatEnvoy && n.Kind == yamltext.Number {
			n = &yamltext.Node{Kind: yamltext.Text, Text: n.Text, Line: n.Line, Column: n.Column}
		}
		if text, ok := p.DomainName(n); ok {
			domain = text
			p.Rules.Domain(domain)
		}
	}
	p.ParseLimits(f, domain)
	p.tree.Parse(f, domain, compat)
}
