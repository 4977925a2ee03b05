package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

func matchKeys() []string {
	return []string{"method", "path", "path_case", "host", "client_ip", "headers", "query", "cookies", "jwt", "attributes"}
}

// condition builds the signature of one condition.
func condition(parts ...string) string { return string(headgate.AppendKey(nil, parts...)) }

// parseMatch reads match into m and returns a text for each condition, which
// are the same for rules that ask the same.
func (p *parser) parseMatch(n *yamltext.Node, m *matcher) []string {
	if n == nil {
		return nil
	}
	f := p.Fields(n, "match", matchKeys())
	var conditions []string
	note := func(key string, l lists) {
		slices.Sort(l.any)
		slices.Sort(l.not)
		for _, text := range slices.Compact(l.any) {
			conditions = append(conditions, condition(key, "is", text))
		}
		for _, text := range slices.Compact(l.not) {
			conditions = append(conditions, condition(key, "not", text))
		}
	}
	if n := f.Get("method"); n != nil {
		note("method", p.parseTexts(n, "method", &m.method, p.method))
	}
	note("path", p.parsePaths(f, &m.path))
	if m.path.exact {
		conditions = append(conditions, condition("path_case", "is", "sensitive"))
	}
	if n := f.Get("host"); n != nil {
		note("host", p.parseTexts(n, "host", &m.host, p.host))
	}
	if n := f.Get("client_ip"); n != nil {
		note("client_ip", p.parseAddresses(n, m))
	}
	for key, kind := range valueSections() {
		if n := f.Get(key); n != nil {
			conditions = append(conditions, p.parseValues(n, key, kind, m)...)
		}
	}
	return conditions
}

// lists are the texts of a condition, as they are compared.
type lists struct{ any, not []string }

// split tells the texts to match from those to exclude, which begin with !.
func (p *parser) split(n *yamltext.Node, key string, each func(text string, at *yamltext.Node, exclude exclusion) (string, error)) lists {
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

// warnExcluded warns of a condition that excludes what it asks for.
func (p *parser) warnExcluded(n *yamltext.Node, key string, l lists) {
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
		p.Warnf(n, "", "the rule can never match: %q excludes all that it asks for", key)
	case len(excluded) > 0:
		p.Warnf(n, "", "%q asks for %s and excludes it, so that it never matches", key, clip.Quote(excluded[0]))
	}
}

// parseTexts reads a condition whose patterns read makes, together with the
// text under which they are compared.
func (p *parser) parseTexts(n *yamltext.Node, key string, c *textCondition, read func(source string, at *yamltext.Node) (pattern, string, error)) lists {
	var any, not []pattern
	l := p.split(n, key, func(source string, at *yamltext.Node, exclude exclusion) (string, error) {
		made, plain, err := read(source, at)
		if err == nil && exclude == excluded {
			not = append(not, made)
		} else if err == nil {
			any = append(any, made)
		}
		return plain, err
	})
	c.any, c.not = newPatternList(any), newPatternList(not)
	return l
}

func (p *parser) method(source string, at *yamltext.Node) (pattern, string, error) {
	method := strings.ToUpper(source)
	if words := strings.FieldsFunc(method, func(r rune) bool { return strings.ContainsRune("|, ;/", r) }); len(words) > 1 {
		return nil, "", problemf("%s is not a method: write a list, [%s]", clip.Quote(source), strings.Join(words, ", "))
	}
	if !isToken(method) || strings.Contains(method, "*") || method == "ANY" || method == "ALL" {
		return nil, "", problemf("%s is not a method; without \"method\" a rule applies to all", clip.Quote(source))
	}
	known := knownMethods()
	if near := nearest.Word(method, known); near != "" && !slices.Contains(known, method) {
		p.Warnf(at, "", "%s is not a usual method, did you mean %q?", clip.Quote(source), near)
	}
	return &glob{source: method, parts: []string{method}}, method, nil
}

// knownMethods are those of RFC 9110, PATCH, and WebDAV's.
func knownMethods() []string {
	return []string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY", "PURGE",
		"COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "UNLOCK", "REPORT", "SEARCH", "LINK", "UNLINK",
	}
}

func (p *parser) path(source string, at *yamltext.Node) (pattern, string, error) {
	made, err := parsePath(source)
	if err == nil {
		err = anotherLanguage(source)
	}
	if err != nil {
		return nil, "", err
	}
	p.warnOfPath(source, at)
	return &made, source, nil
}

func (p *parser) host(source string, _ *yamltext.Node) (pattern, string, error) {
	made, err := parseHost(source)
	if err != nil {
		return nil, "", err
	}
	return &made, made.exact + "*" + made.suffix, nil
}

func (p *parser) parseAddresses(n *yamltext.Node, m *matcher) lists {
	var any, not []netip.Prefix
	l := p.split(n, "client_ip", func(source string, _ *yamltext.Node, exclude exclusion) (string, error) {
		prefix, err := parsePrefix(source)
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
	m.addresses, m.notAddresses = newAddressSet(any), newAddressSet(not)
	const most = 1 << 16 // comparisons that a warning is worth
	if len(any)*len(not) > most {
		return l
	}
	for _, prefix := range any {
		if !slices.Contains(not, prefix) && m.notAddresses.covers(prefix) {
			p.Warnf(n, "", "%s can never match: it lies in a prefix that is excluded", clip.Quote(prefix.String()))
		}
	}
	return l
}
