package ownform

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/request/reading"
	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// matchForm is a match that is being read.
type matchForm struct {
	*rules.Match

	all conditions
}

// note adds the condition under a key.
func (m *matchForm) note(key string, l lists) {
	slices.Sort(l.any)
	slices.Sort(l.not)
	l.any, l.not = slices.Compact(l.any), slices.Compact(l.not)
	m.all.add(key, l)
}

// matchKeys are the keys of match.
func (p *Parser) matchKeys(m *matchForm) form.Mapping {
	const values = "mapping of names to values"
	rows := []form.Row{
		{
			Key: "method", Doc: "The method; case is ignored. !GET excludes. Most servers answer HEAD like GET: list both.",
			Type: form.Many("method").By("`GET`, or a list", func(n *yamltext.Node) { m.note("method", p.parseTexts(n, "method", &m.Method, p.method)) }),
		},
		{
			Key: "path_case", Doc: "Whether case matters in path and in the path as part of the key. Some servers take /LOGIN for /login.",
			Type: form.Switch(&m.ExactPath, "ignore", "sensitive"),
		},
		{
			Key: "path", Doc: "The path. * matches one segment, ** any number; !/v1/health excludes.", See: "rules/rules.md#paths",
			Type: form.Many("path").By("`/v1/**`, or a list", func(n *yamltext.Node) { m.note("path", p.parsePaths(n, m.Match)) }),
		},
		{
			Key: "host", Doc: "The host, without port. *.example.com matches every name below example.com.",
			Type: form.Many("host").By("`api.example.com`, or a list", func(n *yamltext.Node) { m.note("host", p.parseTexts(n, "host", &m.Host, p.host)) }),
		},
		{
			Key: "client_ip", Doc: "The client's address, or its prefix.", See: "rules/client-ip.md",
			Type: form.Many("address").By("`10.0.0.0/8`, or a list", func(n *yamltext.Node) { m.note("client_ip", p.parseAddresses(n, m.Match)) }),
		},
		{Key: "headers", Doc: "Headers by name; case is ignored in names.", Type: named("fieldName", "").Is(values)},
		{Key: "query", Doc: "Query parameters, decoded.", Type: named("valueName", "").Is(values)},
		{Key: "cookies", Doc: "Cookies by name.", Type: named("valueName", "").Is(values)},
		{Key: "jwt", Doc: "Claims of a verified token.", See: "rules/identity.md", Type: named("valueName", "").Is(values)},
		{Key: "attributes", Doc: "Any other attribute that the caller sends by name, such as tenant.", Type: named("given", "").Is(values)},
	}
	for key, kind := range ValueSections() {
		i := slices.IndexFunc(rows, func(row form.Row) bool { return row.Key == key })
		rows[i].Type = rows[i].By(values, func(n *yamltext.Node) { p.parseValues(n, key, kind, m.Match, m.all) })
	}
	return form.Mapping{Def: "match", Doc: "The requests that the rule applies to: those for which every condition holds. Default: all.", Rows: rows}
}

// named is a mapping from names, of a type that the schema has, to conditions.
func named(names, more string) form.Type {
	schema := `"type":"object","maxProperties":64,"propertyNames":{"$ref":"#/$defs/` + names + `"},"additionalProperties":{"$ref":"#/$defs/condition"}`
	if more != "" {
		schema += "," + more
	}
	return form.Type{Schema: schema}
}

// conditions are the conditions of a rule by attribute. Rules with the same conditions
// have equal values.
type conditions map[string]lists

// add adds a condition, unless it is empty.
func (c conditions) add(name string, l lists) {
	if was := c[name]; len(l.any)+len(l.not) > 0 || l.presence != rules.AnyPresence {
		c[name] = lists{append(was.any, l.any...), append(was.not, l.not...), max(was.presence, l.presence)}
	}
}

// parseMatch reads match into m and returns its conditions.
func (p *Parser) parseMatch(n *yamltext.Node, m *rules.Match) conditions {
	read := matchForm{Match: m, all: conditions{}}
	form.Read(p.Report, n, "match", p.matchKeys(&read).Rows)
	if m.ExactPath {
		read.all.add("path_case", lists{any: []string{"sensitive"}})
	}
	return read.all
}

// lists are the texts of a condition, in comparable form.
type lists struct {
	any, not []string
	presence rules.Presence
}

// split separates the texts to match from exclusions, which start with !.
func (p *Parser) split(n *yamltext.Node, key string, each func(text string, at *yamltext.Node, exclude exclusion) (string, error)) lists {
	var l lists
	for _, t := range p.Texts(n, key) {
		text, exclude := t.Text, included
		if rest, ok := strings.CutPrefix(text, "!"); ok {
			text, exclude = rest, excluded
		}
		plain, err := each(text, t.At, exclude)
		switch {
		case err != nil:
			p.Errorf(t.At, "", "%v", err)
		case exclude == excluded:
			l.not = append(l.not, plain)
		default:
			l.any = append(l.any, plain)
		}
	}
	p.warnExcluded(n, key, l)
	return l
}

type exclusion bool

const (
	included exclusion = false
	excluded exclusion = true
)

// warnExcluded warns about a condition that excludes what it includes.
func (p *Parser) warnExcluded(n *yamltext.Node, key string, l lists) {
	if len(l.any) == 0 {
		return
	}
	not := make(map[string]bool, len(l.not))
	for _, text := range l.not {
		not[text] = true
	}
	var excluded []string
	for _, text := range l.any {
		if not[text] {
			excluded = append(excluded, text)
		}
	}
	switch {
	case len(excluded) == len(l.any):
		p.Warnf(n, "", "the rule can never match: %q excludes everything it includes", key)
	case len(excluded) > 0:
		p.Warnf(n, "", "%q includes %s but also excludes it, so it never matches", key, clip.Quote(excluded[0]))
	}
}

// parseTexts reads a condition. read makes its patterns and their comparable text.
func (p *Parser) parseTexts(n *yamltext.Node, key string, c *rules.Texts, read func(source string, at *yamltext.Node) (rules.Pattern, string, error)) lists {
	return p.split(n, key, func(source string, at *yamltext.Node, exclude exclusion) (string, error) {
		made, plain, err := read(source, at)
		if err == nil && exclude == excluded {
			c.Not = append(c.Not, made)
		} else if err == nil {
			c.Any = append(c.Any, made)
		}
		return plain, err
	})
}

func (p *Parser) method(source string, at *yamltext.Node) (rules.Pattern, string, error) {
	method := strings.ToUpper(source)
	if words := strings.FieldsFunc(method, func(r rune) bool { return strings.ContainsRune("|, ;/", r) }); len(words) > 1 {
		return nil, "", fmt.Errorf("%s is not a method: write a list, such as [%s]", clip.Quote(source), strings.Join(words, ", "))
	}
	if !spelling.IsToken(method) || strings.Contains(method, "*") || method == "ANY" || method == "ALL" {
		return nil, "", fmt.Errorf("%s is not a method; to match all methods, leave \"method\" out", clip.Quote(source))
	}
	known := knownMethods()
	if near := nearest.Word(method, known); near != "" && !slices.Contains(known, method) {
		p.Warnf(at, "", "unknown method %s, did you mean %q?", clip.Quote(source), near)
	}
	return rules.Literal(method), method, nil
}

// knownMethods are those of RFC 9110, PATCH, and WebDAV's.
func knownMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY", "PURGE",
		"COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "UNLOCK", "REPORT", "SEARCH", "LINK", "UNLINK",
	}
}

func (p *Parser) path(source string, at *yamltext.Node) (rules.Pattern, string, error) {
	made, err := rules.ParsePath(source)
	if err == nil {
		err = anotherLanguage(source)
	}
	if err != nil {
		return nil, "", err
	}
	p.warnOfPath(source, at)
	return made, source, nil
}

func (p *Parser) host(source string, _ *yamltext.Node) (rules.Pattern, string, error) {
	return rules.ParseHost(source)
}

func (p *Parser) parseAddresses(n *yamltext.Node, m *rules.Match) lists {
	var any, not []netip.Prefix
	l := p.split(n, "client_ip", func(source string, _ *yamltext.Node, exclude exclusion) (string, error) {
		prefix, err := rules.ParsePrefix(source)
		if err != nil {
			return "", err
		}
		if exclude {
			not = append(not, prefix)
		} else {
			any = append(any, prefix)
		}
		return prefix.String(), nil
	})
	m.Addresses, m.NotAddresses = any, not
	const most = 1 << 16 // comparisons that a warning is worth
	if len(any)*len(not) > most {
		return l
	}
	for _, prefix := range any {
		around := func(q netip.Prefix) bool { return q.Bits() <= prefix.Bits() && q.Contains(prefix.Addr()) }
		if !slices.Contains(not, prefix) && slices.ContainsFunc(not, around) {
			p.Warnf(n, "", "%s can never match: it is inside an excluded prefix", clip.Quote(prefix.String()))
		}
	}
	return l
}

// parsePaths reads path; it is known whether its case matters.
func (p *Parser) parsePaths(n *yamltext.Node, m *rules.Match) lists {
	l := p.parseTexts(n, "path", &m.Path, p.path)
	for i := range l.any {
		l.any[i] = "/" + strings.Trim(l.any[i], "/")
		if !m.ExactPath {
			l.any[i] = reading.Fold(l.any[i])
		}
	}
	return l
}
