package rules

// This is the only file that knows the YAML library.

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	// maxDepth is how deep values may be nested. The rules themselves need 6.
	maxDepth = 32
	// maxValues is how many values a file may hold, aliases counted as often
	// as they are used. It bounds memory (about 400 bytes each while a file
	// is read) and stops aliases that multiply; 60,000 rules fit.
	maxValues = 1_000_000
)

// readYAML returns the documents of a file. What is wrong with it as YAML goes
// to report; the documents before the first syntax error are returned.
func readYAML(src []byte, report *reporter) []*node {
	docs := readDocuments(src, report)
	for _, doc := range docs {
		report.refuseRepeats(doc)
	}
	return docs
}

// repeat is a key that a mapping has had before.
type repeat struct {
	in         *node
	first      int // its place among the pairs of in
	key, value *node
}

// refuseRepeats reports the keys that are there twice.
func (r *reporter) refuseRepeats(doc *node) {
	for _, again := range doc.repeats {
		r.errorf(again.key, "", "duplicate key %s, first on line %d", quote(again.key.text), again.in.pairs[again.first].key.line)
	}
}

// takeLast lets the last of the keys that are there twice count, as Envoy's
// service does; a further rate_limit there adds to the first.
func (r *reporter) takeLast(doc *node) {
	for _, again := range doc.repeats {
		first := &again.in.pairs[again.first]
		if again.key.text == "rate_limit" && first.value.kind == mapKind && again.value.kind == mapKind {
			r.warnf(again.key, "", "duplicate key %s: its keys are added to those of the one on line %d", quote(again.key.text), first.key.line)
			first.value = first.value.with(again.value)
			continue
		}
		r.warnf(again.key, "", "duplicate key %s: the one on line %d does not count", quote(again.key.text), first.key.line)
		*first = pair{again.key, again.value}
	}
}

// with returns a mapping of the pairs of n and of other, whose values count where both
// have a key.
func (n *node) with(other *node) *node {
	both := *n
	both.pairs = slices.Clone(n.pairs)
	both.size += other.size
	for _, field := range other.pairs {
		at := slices.IndexFunc(both.pairs, func(p pair) bool { return p.key.text == field.key.text })
		if at < 0 {
			both.pairs = append(both.pairs, field)
		} else {
			both.pairs[at] = field
		}
	}
	return &both
}

// readDocuments is readYAML but for keys that are there twice, which stand in
// the documents' repeats.
func readDocuments(src []byte, report *reporter) []*node {
	return readDocumentsBut(src, report, func(*yaml.Node, error) bool { return false })
}

// readFirst is readDocuments as Envoy's service does it: what follows the first
// document is left out, with a warning, be it valid or not, unless it has a key
// of Headgate's own, of which no file of that service has any.
func readFirst(src []byte, report *reporter) []*node {
	first, hint := true, "put it into a file of its own"
	return readDocumentsBut(src, report, func(doc *yaml.Node, err error) bool {
		switch {
		case first:
			first = err == nil && doc.ShortTag() == "!!null"
			return false
		case err != nil:
			report.warnf(&node{line: 1, column: 1}, hint, "compat: envoy leaves out what follows the first document, and it is not valid YAML")
			return true
		case hasOwnKey(doc):
			return false
		}
		report.warnf(&node{line: doc.Line, column: doc.Column}, hint, "compat: envoy leaves out all documents of a file but the first, as envoyproxy/ratelimit does")
		return true
	})
}

// hasOwnKey reports whether a document has a key that only Headgate has.
func hasOwnKey(doc *yaml.Node) bool {
	if doc.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(doc.Content); i += 2 {
		if key := doc.Content[i].Value; key == "limits" || key == "compat" {
			return true
		}
	}
	return false
}

// readDocumentsBut is readDocuments without those that leave is true for. Where
// it is for an error that ends the documents.
func readDocumentsBut(src []byte, report *reporter, leave func(*yaml.Node, error) bool) []*node {
	if !checkText(src, report) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		report.fileError("the YAML reader failed: "+err.Error(), "")
		return nil
	}
	var docs []*node
	for {
		var doc yaml.Node
		err := loader.Load(&doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			if !leave(nil, err) {
				syntaxError(src, err, report)
			}
			return docs
		}
		if len(doc.Content) == 0 || leave(doc.Content[0], nil) {
			continue
		}
		c := converter{report: report, done: map[*yaml.Node]*node{}}
		n := c.convert(doc.Content[0])
		if n.size > maxValues {
			report.errorf(n, "", "the document holds more than %d values once its aliases are resolved", maxValues)
			return docs
		}
		n.repeats = c.repeats
		docs = append(docs, n)
	}
}

// syntaxError reports an error of the YAML library at its place.
func syntaxError(src []byte, err error, report *reporter) {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		report.fileError("not valid YAML: "+err.Error(), "")
		return
	}
	message := "not valid YAML: " + e.Message
	hint := SyntaxHint(src, e.Mark.Line, e.Message)
	switch {
	case strings.HasPrefix(e.Message, "exceeded max depth"):
		message = "values are nested too deeply"
	case hint == "" && e.ContextMsg != "":
		message += " " + e.ContextMsg
	}
	report.add(Diagnostic{Line: e.Mark.Line, Column: e.Mark.Column, Message: message, Hint: hint})
}

// SyntaxHint returns what to do about src, in a line of which is what the YAML
// library calls message, or nothing.
func SyntaxHint(src []byte, line int, message string) string {
	switch {
	case tabbed(src, line):
		return "indent with spaces, not tabs"
	case strings.Contains(message, "cannot start any token"):
		return "indent with spaces, not tabs, and put values that begin with @, % or ` into quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		return "check the indentation, and put values that contain \": \" into quotes"
	case strings.Contains(message, "could not find expected ':'"):
		return "write key: value, with a space behind the colon, here or in the line before"
	case strings.Contains(message, "unknown anchor"):
		return "put values that begin with * into quotes"
	}
	return ""
}

// tabbed reports whether a line, the first of which is 1, or the one before it is
// indented with a tab.
func tabbed(src []byte, line int) bool {
	n := 0
	for text := range bytes.Lines(src) {
		if n++; n > line {
			return false
		}
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if n >= line-1 && bytes.IndexByte(indent, '\t') >= 0 {
			return true
		}
	}
	return false
}

// converter turns the library's tree into nodes.
type converter struct {
	report *reporter
	// done holds every node that an alias may refer to; nil while the node
	// itself is being converted, so that an alias inside it shows as a cycle.
	done map[*yaml.Node]*node
	// merged counts the values that were looked at to merge mappings.
	merged  int
	repeats []repeat
}

func (c *converter) convert(y *yaml.Node) *node {
	if y.Kind == yaml.AliasNode {
		return c.alias(y)
	}
	n := &node{line: y.Line, column: y.Column, size: 1}
	if y.Anchor != "" {
		c.done[y] = nil
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind = listKind
		for _, item := range y.Content {
			n.addItem(c.convert(item))
		}
	case yaml.MappingNode:
		n.kind = mapKind
		c.convertPairs(n, y.Content)
	default:
		c.convertScalar(n, y)
	}
	if y.Anchor != "" {
		c.done[y] = n
	}
	return n
}

// alias returns the node that an alias stands for, shared and not copied, at
// the place of the alias.
func (c *converter) alias(y *yaml.Node) *node {
	n, known := c.done[y.Alias]
	if !known || n == nil {
		bad := &node{line: y.Line, column: y.Column, kind: nullKind, size: 1}
		c.report.errorf(bad, "", "the alias %s refers to the value that it is in", quote("*"+y.Value))
		return bad
	}
	here := *n
	here.line, here.column = y.Line, y.Column
	return &here
}

func (c *converter) convertScalar(n *node, y *yaml.Node) {
	n.text = y.Value
	switch tag := y.ShortTag(); tag {
	case "!!str", "!!timestamp", "!!merge":
		n.kind = textKind
	case "!!int", "!!float":
		n.kind = numberKind
	case "!!bool":
		n.kind = boolKind
	case "!!null":
		n.kind = nullKind
	default:
		n.kind = textKind
		c.report.errorf(n, "put values that begin with ! into quotes", "the tag %s is not supported", quote(tag))
	}
}

// convertPairs adds a mapping's pairs to n, and after them those that it
// merges in by <<, which never replace its own.
func (c *converter) convertPairs(n *node, content []*yaml.Node) {
	seen := make(map[string]*node, len(content)/2)
	var merged []*node
	for i := 0; i+1 < len(content); i += 2 {
		isMerge := content[i].ShortTag() == "!!merge"
		key, value := c.convert(content[i]), c.convert(content[i+1])
		switch {
		case isMerge:
			merged = append(merged, value)
		case key.kind == listKind || key.kind == mapKind:
			c.report.errorf(key, "", "a key must be text")
		case seen[key.text] != nil:
			first := slices.IndexFunc(n.pairs, func(p pair) bool { return p.key.text == key.text })
			c.repeats = append(c.repeats, repeat{n, first, key, value})
		default:
			seen[key.text] = key
			n.addPair(key, value)
		}
	}
	for _, m := range merged {
		c.merge(n, m, seen)
	}
}

// merge adds to n what m, a mapping or a list of them, has more.
func (c *converter) merge(n, m *node, seen map[string]*node) {
	c.merged += m.size
	if c.merged > maxValues {
		n.grow(c.merged) // and so the document is refused
		return
	}
	switch m.kind {
	case mapKind:
		for _, p := range m.pairs {
			if seen[p.key.text] == nil {
				seen[p.key.text] = p.key
				n.addPair(p.key, p.value)
			}
		}
	case listKind:
		for _, item := range m.items {
			if item.kind == listKind {
				c.report.errorf(item, "", "<< takes a mapping or a list of mappings")
				continue
			}
			c.merge(n, item, seen)
		}
	case textKind, numberKind, boolKind, nullKind:
		c.report.errorf(m, "", "<< takes a mapping or a list of mappings")
	}
}
