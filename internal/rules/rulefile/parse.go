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
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/ownform"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Parse is Load for files in memory. The diagnostics include warnings; the Ruleset is nil
// if any of them is an error.
func Parse(sources ...Source) (*rules.Ruleset, []diagnostic.Diagnostic) {
	return Options{}.Parse(sources...)
}

// Parse is [Parse] with these options.
func (o Options) Parse(sources ...Source) (*rules.Ruleset, []diagnostic.Diagnostic) {
	return o.parse(func() []diagnostic.Diagnostic { return nil }, sources, nil)
}

// parse is Parse with the diagnostics of finding the files, which are asked for when all
// tables have been opened, and a function that opens tables, which may be nil.
func (o Options) parse(found func() []diagnostic.Diagnostic, sources []Source, open ownform.OpenTable) (*rules.Ruleset, []diagnostic.Diagnostic) {
	b := rules.NewBuilder(o.KeySecret, rules.ComputedAttributes()...)
	own := ownform.NewParser(b)
	own.OpenTable = open
	own.Regions = o.Regions
	own.OnlyHTTP, own.NoTokens, own.PlainFields, own.NoProxy = o.OnlyHTTP, o.NoTokens, o.PlainFields, o.NoProxy
	own.ProxyDomain = o.ProxyDomain
	p := fileParser{Parser: own, tree: envoyform.NewParser(own, o.Compat, o.MergeDomains), compat: o.Compat}
	reports := make([]yamltext.Report, len(sources))
	for i, s := range sources {
		p.Report = &reports[i]
		p.File = s.Name
		p.parseFile(s.Data)
	}
	own.Finish()
	p.tree.Finish()
	diagnostics, errors := found(), 0
	if diagnostic.HasErrors(diagnostics) {
		errors++
	}
	files := 0
	for i := range reports {
		if own.IsTable(sources[i].Name) {
			continue // a table in YAML, in a folder of rules
		}
		files++
		errors += reports[i].Errors
		diagnostics = append(diagnostics, reports[i].Sorted()...)
	}
	diagnostics = append(diagnostics, own.TableProblems...)
	if errors > 0 {
		return nil, diagnostics
	}
	return b.Ruleset(files, diagnostics), diagnostics
}

// fileParser parses the documents of files, each with the parsers of its forms.
type fileParser struct {
	*ownform.Parser
	tree   *envoyform.Parser
	compat rules.Compat
}

// Document is the mapping of a document, besides the keys that start with x-.
func Document() form.Mapping {
	list := func(def string) string { return `"items":{"$ref":"#/$defs/` + def + `"}` }
	return form.Mapping{
		Rows: []form.Row{
			{Key: "domain", Doc: "The namespace of the rules. Each request belongs to one domain. Documents with the same domain are combined.", Type: form.Ref("domain").Is("text").Or(form.Required)},
			{Key: "limits", Doc: "Headgate's own rules.", Type: form.Type{Schema: `"type":"array",` + list("limit"), Values: "a list"}},
			{Key: "priorities", Doc: "The classes of requests, for headroom.", See: "more/priorities.md", Type: form.Ref("priorities").Is("a mapping")},
			{Key: "allow", Doc: "Requests that pass and that no rule counts, by attribute.", See: "rules/lists.md", Type: form.Ref("allow").Is("a mapping")},
			{Key: "deny", Doc: "Requests that are refused before anything is counted, by attribute, as under allow, which wins.", See: "rules/lists.md", Type: form.Ref("deny").Is("a mapping")},
			{
				Key: "headers", Doc: "The dialect of the rate-limit headers for this domain.", See: "reference/headers.md#dialects",
				Type: form.OneOf(new(string), ownform.Dialects()...).Or("the server's setting"),
			},
			{
				Key: "descriptors", Doc: "Rules in the form of envoyproxy/ratelimit.", See: "connect/envoy-rules.md",
				Type: form.Type{Schema: `"type":["array","null"],` + list("descriptor"), Values: "a list"},
			},
			{Key: "compat", Doc: "envoy: exactly the answers of envoyproxy/ratelimit.", See: "connect/envoy-rules.md", Type: form.OneOf(new(string), "none", "envoy").Or("none")},
			{Key: "merge_domains", Doc: "true: several documents may add descriptors to this domain.", See: "connect/envoy-rules.md", Type: form.Ref("flag").Is("`true`, `false`").Or("false")},
		},
		Extra: `"required":["domain"],"patternProperties":{"^x-":true}`,
	}
}

func (p *fileParser) documentKeys() []string {
	return p.Names("document", func() []form.Row { return Document().Rows })
}

// parseFile reads the documents of one file. Top-level keys that start with x- are the
// user's own, for example for anchors.
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

// saysRules reports whether a document has rules or lists, even none of them. A file
// that is truncated or not yet written has none.
func saysRules(doc *yamltext.Node) bool {
	return doc.Kind != yamltext.Map || slices.ContainsFunc(doc.Pairs, func(f yamltext.Pair) bool {
		return slices.Contains([]string{"limits", "descriptors", "allow", "deny"}, f.Key.Text) && f.Value != nil && f.Value.Kind != yamltext.Null
	})
}

// parseDocument reads one namespace of rules.
func (p *fileParser) parseDocument(doc *yamltext.Node) {
	compat := rules.CompatNone
	if setting := p.settingOf(doc); setting != nil {
		p.Errorf(setting, "check it with headgate check --config FILE, and use it with headgate serve --config FILE",
			"this is a configuration, not a rule file: %q is a setting of the server", setting.Text)
		return
	}
	if doc.Kind == yamltext.Map && yamltext.HasKey(doc, "descriptors") {
		compat = p.tree.CompatOf(doc)
		doc = p.tree.Placed(doc, "a rule file", p.documentKeys(), compat)
	}
	f := p.Fields(doc, "a rule file", p.documentKeys())
	if doc.Kind != yamltext.Map {
		return
	}
	domain := ""
	switch n := f.Get("domain"); {
	case n == nil && !yamltext.HasKey(doc, "domain"):
		p.Errorf(doc, "name it in the first line, for example domain: site", "\"domain\" is missing")
	case n != nil:
		if compat == rules.CompatEnvoy && n.Kind == yamltext.Number {
			n = &yamltext.Node{Kind: yamltext.Text, Text: n.Text, Line: n.Line, Column: n.Column}
		}
		if text, ok := p.DomainName(n); ok {
			domain = text
			p.Rules.Domain(domain)
		}
	}
	p.refuseLists(f, compat)
	p.ParseLimits(f, domain)
	p.tree.Parse(f, domain, compat)
}

// settingOf returns a key that shows that a document is the configuration of a server; nil if
// it may be rules.
func (p *fileParser) settingOf(doc *yamltext.Node) *yamltext.Node {
	if doc.Kind != yamltext.Map || slices.ContainsFunc(p.documentKeys(), func(key string) bool { return yamltext.HasKey(doc, key) }) {
		return nil
	}
	for _, pair := range doc.Pairs {
		if slices.Contains([]string{"rules", "store", "listen", "proxy", "trusted_proxies"}, pair.Key.Text) {
			return pair.Key
		}
	}
	return nil
}

// refuseLists refuses lists among rules that give exactly the answers of
// envoyproxy/ratelimit, which has none.
func (p *fileParser) refuseLists(f yamltext.Fields, compat rules.Compat) {
	for kind := rules.AllowList; kind <= rules.DenyList && compat == rules.CompatEnvoy; kind++ {
		if pair, ok := f[kind.String()]; ok {
			p.Errorf(pair.Key, "put it in a document of its own", "%q does not work with compat: envoy", kind)
			delete(f, kind.String())
		}
	}
}

// Options say how rule files are read. [Load] and [Parse] use the zero Options.
type Options struct {
	// Compat is the default for documents with descriptors. With CompatEnvoy only
	// the first document of a file is read, and those with limits or compat.
	Compat rules.Compat
	// IgnoreDotFiles ignores files whose names start with a dot, with CompatEnvoy
	// too.
	IgnoreDotFiles bool
	// Siblings also reads files and folders next to a folder of rules whose names
	// start with its name and a dot, such as config.yaml and config.d next to
	// config, as envoyproxy/ratelimit does when it watches its root.
	Siblings     bool
	MergeDomains bool // allows several documents to add descriptors to a domain
	// OnlyHTTP is for rules that only see HTTP requests, such as those of a reverse
	// proxy: using any other attribute is an error.
	OnlyHTTP bool
	// NoTokens is for doors that do not verify tokens, so that HTTP requests have no
	// claims. Using a claim is an error with OnlyHTTP, and otherwise a warning, since
	// other callers may send claims.
	NoTokens bool
	// PlainFields is for a reverse proxy that removes headers with other characters
	// than letters, digits and hyphens in their names: using one is a warning.
	PlainFields bool
	NoProxy     bool // no proxy measures an upstream; false if that is not known
	// ProxyDomain is the domain whose rules the proxy applies, and whose upstream it measures;
	// empty if that is not set.
	ProxyDomain string
	// KeySecret is the secret for hashed parts of keys, which are the first 128 bits
	// of the value's HMAC-SHA-256. Processes must have the same secret to share
	// counts. Without a secret SHA-256 is used, with which guesses can be verified.
	KeySecret rules.KeySecret
	// Regions are the regions that share limits; nil if there are none, or if they are
	// not known.
	Regions *rules.Regions
	// Tables, if not nil, learns which tables the files use, so that they can be followed.
	Tables *Tables
}

// Expand returns the paths that Load reads for these. With Siblings it adds those next
// to them, and omits a missing folder that has siblings.
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

// siblings returns the folders (not links to folders) and rule files next to path whose
// names start with its name and a dot.
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
