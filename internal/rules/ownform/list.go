package ownform

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/keytable"
	"github.com/headgate/headgate/internal/rules/listfile"
	"github.com/headgate/headgate/internal/rules/prefixtable"
	"github.com/headgate/headgate/internal/rules/tablefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// denyKeys are the keys of deny that are not attributes.
func (p *Parser) denyKeys(id *listID) form.Mapping {
	return form.Mapping{Def: "deny", Doc: "Requests that are refused before anything is counted, by attribute, as under allow, which wins. See docs/rules/lists.md.", Rows: []form.Row{
		{Key: "mode", Doc: "shadow: refuse nobody, only count and report.", Type: form.Choice(&id.mode, rules.Enforce, rules.Shadow)},
		{Key: "status", Doc: "The HTTP status of the answer. Envoy chooses the status itself.", Type: form.Integer(300, 599, &id.status)},
	}, Extra: `"propertyNames":{"$ref":"#/$defs/listed"},` + listsExtra + `,"patternProperties":{"^(client_ip)$":{"$ref":"#/$defs/addresses"},"^(mod|modes|statu)$":{"type":"array","items":{"$ref":"#/$defs/listedValue"}}}`}
}

// listsExtra says that the other keys of a mapping are attributes.
const listsExtra = `"additionalProperties":{"$ref":"#/$defs/listedValues"}`

// allowKeys is the mapping under allow: attributes alone.
func allowKeys() form.Mapping {
	return form.Mapping{
		Def: "allow", Doc: "Requests that pass and that no rule counts, by attribute: client_ip, header:NAME, query:NAME, cookie:NAME, jwt:CLAIM, or any other attribute that the caller sends. See docs/rules/lists.md.",
		Extra: `"propertyNames":{"$ref":"#/$defs/listed","not":{"enum":["mode","status"]}},` + listsExtra + `,"patternProperties":{"^(client_ip)$":{"$ref":"#/$defs/addresses"}}`,
	}
}

const (
	deniedStatus = 403 // the default
	// mostSources is how many entries in rule files and list files a list may come from.
	mostSources = 1 << 16
	exampleList = "for example client_ip: [203.0.113.0/24, {file: blocked.txt}]"
)

// listID identifies a list: those of several documents are joined.
type listID struct {
	domain    string
	kind      rules.ListKind
	attribute rules.Attribute
	mode      rules.Mode
	status    int
}

// listForm is a list that is being read.
type listForm struct {
	list     *rules.List
	sources  []listSource
	prefixes prefixtable.Builder
	keys     *keytable.Builder

	both     int    // how many entries are on the allow list too
	bothAt   string // the first of them, and where that is
	bothNode listSource
}

// listSource is an entry in a rule file, or the name of a file of entries.
type listSource struct {
	*yamltext.Report
	at         *yamltext.Node
	name, path string // of the file; empty for an entry
}

// parseLists reads allow and deny of a document.
func (p *Parser) parseLists(f yamltext.Fields, domain string) {
	for kind := rules.AllowList; kind <= rules.DenyList; kind++ {
		if n := f.Get(kind.String()); n != nil {
			p.parseListsOf(n, listID{domain: domain, kind: kind})
		}
	}
}

// parseListsOf reads the lists of a kind.
func (p *Parser) parseListsOf(n *yamltext.Node, id listID) {
	if n.Kind != yamltext.Map {
		p.Errorf(n, exampleList, "%q must be a mapping (attribute: list), not %s", id.kind, n.Kind)
		return
	}
	lists := p.listOptions(n, &id)
	if len(lists) == 0 {
		p.Warnf(n, exampleList, "%q has no lists", id.kind)
	}
	for _, pair := range lists {
		a, ok := p.listAttribute(pair)
		if !ok {
			continue
		}
		id.attribute = a
		if list := p.listForm(id, pair.Key); list != nil {
			p.parseEntries(pair, list)
		}
	}
}

// listOptions reads mode and status, and returns the other pairs.
func (p *Parser) listOptions(n *yamltext.Node, id *listID) (lists []yamltext.Pair) {
	if id.kind == rules.DenyList {
		id.status = deniedStatus
	}
	rows, options := p.denyKeys(id).Rows, yamltext.Fields{}
	for _, pair := range n.Pairs {
		switch text := pair.Key.Text; {
		case !slices.Contains(form.Keys(rows), text):
			lists = append(lists, pair)
		case id.kind == rules.AllowList:
			p.Errorf(pair.Key, "", "%q applies only to deny: allow has no options", text)
		case pair.Value.Kind == yamltext.Null:
			p.Errorf(pair.Key, "", "%q has no value", text)
		default:
			options[text] = pair
		}
	}
	form.ReadFields(p.Report, options, rows)
	return lists
}

// listAttribute reads what a list is of.
func (p *Parser) listAttribute(pair yamltext.Pair) (rules.Attribute, bool) {
	at := pair.Key
	a, err := rules.ParseAttribute(at.Text)
	if err != nil {
		p.Errorf(at, "", "%v", err)
		return a, false
	}
	switch a.Kind {
	case rules.Method, rules.Path, rules.Host:
		p.Errorf(at, "write a rule that matches it, with a rate of 0", "lists are of who sends a request, not of its %s", a)
		return a, false
	case rules.Other:
		if near := nearest.Word(a.Name, form.Keys(p.denyKeys(&listID{}).Rows)); near != "" && pair.Value.Kind != yamltext.List {
			p.Errorf(at, "for an attribute of that name, write a list", "unknown key %s in \"deny\", did you mean %q?", clip.Quote(a.Name), near)
			return a, false
		}
	case rules.ClientIP, rules.Header, rules.Query, rules.Cookie, rules.JWT:
	}
	p.CheckEntry(at, a)
	return a, true
}

// listForm returns the list of an id, or nil if there are too many.
func (p *Parser) listForm(id listID, at *yamltext.Node) *listForm {
	if id.domain == "" {
		return &listForm{} // to check the entries
	}
	if form := p.listsByID[id]; form != nil {
		return form
	}
	kinds := 0
	for other := range p.listsByID {
		if other.domain == id.domain && other.kind == id.kind {
			kinds++
		}
	}
	if kinds == rules.MaxLists {
		p.Errorf(at, "", "the domain has more than %d lists under %q", rules.MaxLists, id.kind)
		return nil
	}
	form := &listForm{list: &rules.List{
		Kind: id.kind, Domain: id.domain, Attribute: id.attribute, Mode: id.mode, Status: id.status,
		File: p.File, Line: at.Line, Column: at.Column,
	}}
	if p.listsByID == nil {
		p.listsByID = map[listID]*listForm{}
	}
	p.listsByID[id], p.lists = form, append(p.lists, form)
	return form
}

// parseEntries reads the entries of a list: one or several values or files.
func (p *Parser) parseEntries(pair yamltext.Pair, form *listForm) {
	name, items := pair.Key.Text, []*yamltext.Node{pair.Value}
	if pair.Value.Kind == yamltext.List {
		items = pair.Value.Items
		if len(items) == 0 {
			p.Warnf(pair.Value, "", "the list of %s has no entries", clip.Quote(name))
		}
	}
	for _, item := range items {
		switch item.Kind {
		case yamltext.Text, yamltext.Number:
			form.sources = append(form.sources, listSource{Report: p.Report, at: item})
		case yamltext.Map:
			p.parseListFile(item, form)
		case yamltext.Null:
			p.Errorf(item, exampleList, "the list of %s has an entry without a value", clip.Quote(name))
		case yamltext.Bool:
			p.Errorf(item, fmt.Sprintf("write %q in quotes", item.Text), "an entry of %s must be text, not true or false", clip.Quote(name))
		case yamltext.List:
			p.Errorf(item, "", "an entry of %s must be text or {file: NAME}, not %s", clip.Quote(name), item.Kind)
		}
	}
}

// listFileKeys are the keys of an entry of a list that is a mapping.
func (p *Parser) listFileKeys(name *string) form.Mapping {
	return form.Mapping{Def: "listFile", Doc: "A file with one entry a line.", Rows: []form.Row{{Key: "file", Doc: "A file with one entry a line; # starts a comment. The path is relative to this file.", Type: form.Text(name), Example: exampleList}}}
}

// parseListFile reads the name of a file of entries.
func (p *Parser) parseListFile(n *yamltext.Node, into *listForm) {
	var name string
	at := form.Read(p.Report, n, "an entry of a list", p.listFileKeys(&name).Rows).Get("file")
	if name == "" {
		return
	}
	s := listSource{Report: p.Report, at: at, name: name, path: name}
	if !filepath.IsAbs(name) {
		s.path = filepath.Join(filepath.Dir(p.File), name)
	}
	if p.OpenTable == nil {
		p.Errorf(at, "", "lists can be read from files only for rules that are in a file")
		return
	}
	into.sources = append(into.sources, s)
}

// readLists reads the entries of all lists, those of allow first.
func (p *Parser) readLists() {
	for kind := rules.AllowList; kind <= rules.DenyList; kind++ {
		for _, form := range p.lists {
			if form.list.Kind == kind {
				p.readList(form)
			}
		}
	}
}

// readList reads a list and adds it to the rules.
func (p *Parser) readList(form *listForm) {
	start := time.Now() //nolint:forbidigo // measures this process
	form.keys = keytable.NewBuilder()
	for i, s := range form.sources {
		if i == mostSources {
			s.Errorf(s.at, "put the entries in a file", "the list has more than %d entries in rule files", mostSources)
			return
		}
		if s.name == "" {
			p.readEntry(form, s)
		} else {
			p.readListFile(form, s)
		}
	}
	l := form.list
	l.Prefixes = form.prefixes.Table()
	l.Keys = form.keys.Table(func(keytable.Row, keytable.Row) {}) // duplicates do no harm
	l.Took = time.Since(start)                                    //nolint:forbidigo // as above
	if form.both > 0 {
		more := ""
		switch {
		case form.both == 2:
			more = "; so is another entry"
		case form.both > 2:
			more = fmt.Sprintf("; so are %d more entries", form.both-1)
		}
		s := form.bothNode
		s.Warnf(s.at, "", "%s, which wins%s", form.bothAt, more)
	}
	p.Rules.AddList(l)
}

// source returns the place of a file among the sources of the list. The path of a rule
// file is empty.
func (form *listForm) source(name, path string) uint16 {
	for i := range form.list.Sources {
		if s := &form.list.Sources[i]; s.Name == name && s.Path == path {
			return uint16(i)
		}
	}
	form.list.Sources = append(form.list.Sources, rules.ListSource{Name: name, Path: path})
	return uint16(len(form.list.Sources) - 1)
}

// readEntry adds an entry in a rule file.
func (p *Parser) readEntry(form *listForm, s listSource) {
	at := form.source(s.File, "")
	warn, err := p.addEntry(form, s, s.at.Text, keytable.Row{Value: at, Line: uint32(s.at.Line)})
	switch {
	case err != nil:
		s.Errorf(s.at, "", "%v", err)
	case warn != "":
		s.Warnf(s.at, "", "%s", warn)
	}
}

// readListFile adds the entries of a file.
func (p *Parser) readListFile(form *listForm, s listSource) {
	file, err := p.OpenTable(s.path)
	if err != nil {
		s.Errorf(s.at, "the path is relative to the folder of this rule file", "the list %s cannot be read: %v", clip.Quote(s.name), err)
		return
	}
	wrong, at, warned := &tablefile.Mistakes{File: s.path}, form.source(s.name, s.path), false
	before := form.list.Sources[at].Entries
	listfile.Read(file, wrong.Addf, func(e listfile.Entry) {
		warn, err := p.addEntry(form, s, string(e.Text), keytable.Row{Value: at, Line: uint32(e.Line)})
		switch {
		case err != nil:
			wrong.Addf(e.Line, e.Column, "", "%v", err)
		case warn != "" && !warned:
			warned = true // one a file, as others are alike
			p.TableProblems = append(p.TableProblems, diagnostic.Diagnostic{
				Severity: diagnostic.SeverityWarning, File: s.path, Line: e.Line, Column: e.Column, Message: warn,
			})
		}
	})
	_ = file.Close() // it was only read
	if wrong.Any() {
		s.Errors++
		p.TableProblems = append(p.TableProblems, wrong.List()...)
		return
	}
	if form.list.Sources[at].Entries == before {
		s.Warnf(s.at, "", "the list %s has no entries", clip.Quote(s.name))
	}
}

// addEntry adds an entry, and says what is probably a mistake.
func (p *Parser) addEntry(form *listForm, s listSource, text string, row keytable.Row) (warn string, err error) {
	if text == "" {
		return "", fmt.Errorf("an entry of the list is empty")
	}
	form.list.Sources[row.Value].Entries++
	if a := form.list.Attribute; a.Kind != rules.ClientIP {
		value := rules.ListValue(a, text)
		form.keys.Add([]byte(value), row)
		if strings.Contains(text, "*") {
			warn = fmt.Sprintf("%s is compared as it is: * stands for itself in lists", clip.Quote(text))
		}
		p.noteBoth(form, s, func(allow *rules.List) (string, bool) { return allow.KeyAt(value) }, text, row)
		return warn, nil
	}
	prefix, err := rules.ParsePrefix(text)
	if err != nil {
		return "", err
	}
	form.prefixes.Add(prefix, prefixtable.Row{Source: row.Value, Line: row.Line})
	if prefix.Bits() == 0 {
		warn = fmt.Sprintf("%s is every IPv4 address", prefix)
		if prefix.Addr().Is6() {
			warn = fmt.Sprintf("%s is every IPv6 address", prefix)
		}
	}
	p.noteBoth(form, s, func(allow *rules.List) (string, bool) { return allow.PrefixAt(prefix) }, text, row)
	return warn, nil
}

// noteBoth notes an entry of a deny list that is on the allow list too.
func (p *Parser) noteBoth(form *listForm, s listSource, find func(allow *rules.List) (string, bool), text string, row keytable.Row) {
	l := form.list
	if l.Kind == rules.AllowList {
		return
	}
	allow := p.listsByID[listID{domain: l.Domain, kind: rules.AllowList, attribute: l.Attribute}]
	if allow == nil {
		return
	}
	at, ok := find(allow.list)
	if !ok {
		return
	}
	if form.both++; form.both == 1 {
		form.bothNode = s
		form.bothAt = fmt.Sprintf("%s (%s:%d) is also on the allow list (%s)", clip.Quote(text), l.Sources[row.Value].Name, row.Line, at)
	}
}

// isListFile reports whether a file is a list of a rule.
func (p *Parser) isListFile(path string) bool {
	for _, form := range p.lists {
		for _, s := range form.sources {
			if s.name != "" && filepath.Clean(path) == filepath.Clean(s.path) {
				return true
			}
		}
	}
	return false
}
