package rulefile

import (
	"io/fs"
	"os"
	"path/filepath"
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
	b := rules.NewBuilder(o.KeySecret, rules.ComputedAttributes()...)
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
			Message: "the file has no rules", Hint: "for a file without rules, write a domain and \"limits: []\"",
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

// Options are how rule files are read. The zero Options are what [Load] and
// [Parse] use.
type Options struct {
	// Compat is for the documents of the descriptor form that do not say it
	// themselves. With CompatEnvoy what follows the first document of a file is
	// left out, unless it has limits or compat.
	Compat rules.Compat
	// IgnoreDotFiles leaves out files whose names begin with a dot also under
	// CompatEnvoy, which takes files of any name.
	IgnoreDotFiles bool
	// Siblings takes what lies next to a folder of rules and has its name and a dot
	// in front, such as config.yaml and config.d beside config, for rules too, as
	// envoyproxy/ratelimit does that watches its root.
	Siblings     bool
	MergeDomains bool // lets several documents add descriptors to one domain, as if each said merge_domains: true
	// OnlyHTTP is for rules about HTTP requests and nothing else, as those of a
	// reverse proxy alone: no request has an attribute by another name than
	// theirs, so that it is an error to ask for one.
	OnlyHTTP bool
	// NoTokens is for doors for HTTP requests where nothing verifies tokens, so
	// that these have no claims: with OnlyHTTP it is an error to ask for one, and
	// otherwise a warning, as other callers may know claims.
	NoTokens bool
	// PlainFields is for a reverse proxy that passes no header fields with anything
	// but letters, digits and hyphens in their name, so that it is a warning to ask
	// for one: its requests have none, as other callers may.
	PlainFields bool
	// KeySecret makes the digests of hashed parts of keys: the first 128 bits of
	// the value's HMAC-SHA-256. Processes with the same secret share counts.
	// Without one it is the value's SHA-256, which tells those who see it
	// whether a guess is right.
	KeySecret rules.KeySecret
}

// Expand returns the paths that Load reads for these: with Siblings also those
// beside them, and a folder that is not there only if nothing is beside it.
func (o Options) Expand(paths ...string) []string {
	if !o.Siblings {
		return paths
	}
	var all []string
	for _, path := range paths {
		siblings := o.siblings(path)
		if _, err := os.Stat(path); err == nil || len(siblings) == 0 {
			all = append(all, path)
		}
		all = append(all, siblings...)
	}
	return all
}

// siblings returns what lies beside path and has its name and a dot in front:
// folders, but no links to folders, and rule files.
func (o Options) siblings(path string) (list []string) {
	dir, base := filepath.Split(filepath.Clean(path))
	entries, err := os.ReadDir(filepath.Join(dir, "."))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), base+".") || o.IgnoreDotFiles && strings.HasPrefix(base, ".") {
			continue
		}
		isFile := !e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(name)
			if err != nil || info.IsDir() {
				continue
			}
		}
		if isFile && (IsTest(name) || o.Compat != rules.CompatEnvoy && !isRuleFile(name)) {
			continue
		}
		list = append(list, name)
	}
	return list
}
