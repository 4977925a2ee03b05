package yamltext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
)

// MaxFileSize is the size of the largest rule file that is read, in bytes.
const MaxFileSize = 8 << 20

const (
	maxDepth = 32 // how deep values may be nested. The rules themselves need 6.
	// MaxValues is the maximum number of values in a file, counting each use of an
	// alias. It bounds memory (about 400 bytes per value while a file is read), also
	// with aliases that multiply; 60,000 rules fit.
	MaxValues = 1_000_000
)

// Read returns the documents of a file, up to the first syntax error. YAML errors go to
// report.
func Read(src []byte, report *Report) []*Node {
	docs := ReadDocuments(src, report)
	for _, doc := range docs {
		report.RefuseRepeats(doc)
	}
	return docs
}

// repeat is a key that a mapping has had before.
type repeat struct {
	in         *Node
	first      int // its place among the pairs of in
	key, value *Node
}

// RefuseRepeats reports duplicate keys.
func (r *Report) RefuseRepeats(doc *Node) {
	for _, again := range doc.repeats {
		r.Errorf(again.key, "", "duplicate key %s, first on line %d", clip.Quote(again.key.Text), again.in.Pairs[again.first].Key.Line)
	}
}

// TakeLast keeps the last of duplicate keys, as Envoy's service does, with a warning. A
// further rate_limit adds to the first.
func (r *Report) TakeLast(doc *Node) {
	for _, again := range doc.repeats {
		first := &again.in.Pairs[again.first]
		if again.key.Text == "rate_limit" && first.Value.Kind == Map && again.value.Kind == Map {
			r.Warnf(again.key, "", "duplicate key %s: its keys are merged into those on line %d", clip.Quote(again.key.Text), first.Key.Line)
			first.Value = first.Value.with(again.value)
			continue
		}
		r.Warnf(again.key, "", "duplicate key %s: the one on line %d is ignored", clip.Quote(again.key.Text), first.Key.Line)
		*first = Pair{again.key, again.value}
	}
}

// with returns a mapping of the pairs of n and other. Where both have a key, other's
// value counts.
func (n *Node) with(other *Node) *Node {
	both := *n
	both.Pairs = slices.Clone(n.Pairs)
	both.size += other.size
	for _, field := range other.Pairs {
		at := slices.IndexFunc(both.Pairs, func(p Pair) bool { return p.Key.Text == field.Key.Text })
		if at < 0 {
			both.Pairs = append(both.Pairs, field)
		} else {
			both.Pairs[at] = field
		}
	}
	return &both
}

// ReadDocuments is Read without reporting duplicate keys; see RefuseRepeats and
// TakeLast.
func ReadDocuments(src []byte, report *Report) []*Node {
	return readDocumentsBut(src, report, func(*yaml.Node, error) bool { return false })
}

// ReadFirst is ReadDocuments as Envoy's service does it: what follows the first document
// is ignored, with a warning, unless it has one of Headgate's own keys.
func ReadFirst(src []byte, report *Report) []*Node {
	first, hint := true, "move it to a separate file"
	return readDocumentsBut(src, report, func(doc *yaml.Node, err error) bool {
		switch {
		case first:
			first = err == nil && doc.ShortTag() == "!!null"
			return false
		case err != nil:
			report.Warnf(&Node{Line: 1, Column: 1}, hint, "compat: envoy reads only the first document of a file, and the rest is not valid YAML")
			return true
		case hasOwnKey(doc):
			return false
		}
		report.Warnf(&Node{Line: doc.Line, Column: doc.Column}, hint, "compat: envoy reads only the first document of a file, as envoyproxy/ratelimit does")
		return true
	})
}

// hasOwnKey reports whether a document has a key that only Headgate has.
func hasOwnKey(doc *yaml.Node) bool {
	if doc.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(doc.Content); i += 2 {
		if key := doc.Content[i].Value; slices.Contains([]string{"limits", "compat", "allow", "deny"}, key) {
			return true
		}
	}
	return false
}

// readDocumentsBut is ReadDocuments without those for which leave is true. If it is true
// for an error, the error is not reported.
func readDocumentsBut(src []byte, report *Report, leave func(*yaml.Node, error) bool) []*Node {
	if !checkText(src, report) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(src), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		report.FileError("the YAML reader failed: "+err.Error(), "")
		return nil
	}
	var docs []*Node
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
		c := converter{report: report, done: map[*yaml.Node]*Node{}}
		n := c.convert(doc.Content[0])
		if n.size > MaxValues {
			report.Errorf(n, "", "the document has more than %d values once its aliases are expanded", MaxValues)
			return docs
		}
		n.repeats = c.repeats
		docs = append(docs, n)
	}
}

// syntaxError reports an error of the YAML library at its position.
func syntaxError(src []byte, err error, report *Report) {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		report.FileError("not valid YAML: "+err.Error(), "")
		return
	}
	message := "not valid YAML: " + e.Message
	hint := syntaxHint(src, e.Mark.Line, e.Message)
	switch {
	case report.Secrets && strings.HasPrefix(e.Message, "unknown anchor "):
		message = "not valid YAML: unknown anchor: text that starts with * needs quotes"
	case report.Secrets:
	case strings.HasPrefix(e.Message, "exceeded max depth"):
		message = "values are nested too deeply"
	case hint == "" && e.ContextMsg != "":
		message += " " + e.ContextMsg
	}
	report.Add(diagnostic.Diagnostic{Line: e.Mark.Line, Column: e.Mark.Column, Message: message, Hint: hint})
}

// syntaxHint returns a hint for a message of the YAML library about a line of src, or
// nothing.
func syntaxHint(src []byte, line int, message string) string {
	bare := colonless(src, line)
	switch {
	case tabbed(src, line):
		return "indent with spaces, not tabs"
	case strings.Contains(message, "cannot start any token"):
		return "indent with spaces, not tabs, and put values that start with @, % or ` in quotes"
	case (strings.Contains(message, "mapping values") || strings.Contains(message, "<document start>")) && bare > 0:
		return fmt.Sprintf("write a colon and a space after the key on line %d", bare)
	case strings.Contains(message, "mapping values are not allowed"):
		return "check the indentation, and put values that contain \": \" in quotes"
	case strings.Contains(message, "did not find expected ',' or"):
		return "close the bracket, and put values that contain [ ] { } or a comma in quotes"
	case strings.Contains(message, "could not find expected ':'"):
		return "write key: value, with a space after the colon, on this line or the one before"
	case strings.Contains(message, "unknown anchor"):
		return "put values that start with * in quotes"
	}
	return ""
}

// colonless returns the number of the last line with content before a line, counted from
// 1, if it has no colon, or 0.
func colonless(src []byte, line int) int {
	n, found := 0, 0
	for text := range bytes.Lines(src) {
		if n++; n >= line {
			break
		}
		content := bytes.TrimSpace(text)
		switch {
		case len(content) == 0 || content[0] == '#':
		case bytes.IndexByte(content, ':') < 0:
			found = n
		default:
			found = 0
		}
	}
	return found
}

// tabbed reports whether a line, counted from 1, or the one before it is indented with a
// tab.
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
	report *Report
	// done holds every node that an alias may refer to; nil while the node
	// itself is being converted, so that an alias inside it shows as a cycle.
	done map[*yaml.Node]*Node
	// merged counts the values that were looked at to merge mappings.
	merged  int
	repeats []repeat
}

func (c *converter) convert(y *yaml.Node) *Node {
	if y.Kind == yaml.AliasNode {
		return c.alias(y)
	}
	n := &Node{Line: y.Line, Column: y.Column, size: 1}
	if y.Anchor != "" {
		c.done[y] = nil
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.Kind = List
		for _, item := range y.Content {
			n.addItem(c.convert(item))
		}
	case yaml.MappingNode:
		n.Kind = Map
		c.convertPairs(n, y.Content)
	default:
		c.convertScalar(n, y)
	}
	if y.Anchor != "" {
		c.done[y] = n
	}
	return n
}

// alias returns the node of an alias, shared and not copied, at the position of the
// alias.
func (c *converter) alias(y *yaml.Node) *Node {
	n, known := c.done[y.Alias]
	if !known || n == nil {
		bad := &Node{Line: y.Line, Column: y.Column, Kind: Null, size: 1}
		c.report.Errorf(bad, "", "the alias %s refers to itself", clip.Quote("*"+y.Value))
		return bad
	}
	here := *n
	here.Line, here.Column = y.Line, y.Column
	return &here
}

func (c *converter) convertScalar(n *Node, y *yaml.Node) {
	n.Text = y.Value
	switch tag := y.ShortTag(); tag {
	case "!!str", "!!timestamp", "!!merge":
		n.Kind = Text
	case "!!int", "!!float":
		n.Kind = Number
	case "!!bool":
		n.Kind = Bool
	case "!!null":
		n.Kind = Null
	default:
		n.Kind = Text
		if c.report.Secrets {
			tag = "!"
		}
		c.report.Errorf(n, "put values that start with ! in quotes", "the tag %s is not supported", clip.Quote(tag))
	}
}

// convertPairs adds a mapping's pairs to n, and after them those that it
// merges in by <<, which never replace its own.
func (c *converter) convertPairs(n *Node, content []*yaml.Node) {
	seen := make(map[string]*Node, len(content)/2)
	var merged []*Node
	for i := 0; i+1 < len(content); i += 2 {
		isMerge := content[i].ShortTag() == "!!merge"
		key, value := c.convert(content[i]), c.convert(content[i+1])
		switch {
		case isMerge:
			merged = append(merged, value)
		case key.Kind == List || key.Kind == Map:
			c.report.Errorf(key, "", "a key must be text")
		case seen[key.Text] != nil:
			first := slices.IndexFunc(n.Pairs, func(p Pair) bool { return p.Key.Text == key.Text })
			c.repeats = append(c.repeats, repeat{n, first, key, value})
		default:
			seen[key.Text] = key
			n.addPair(key, value)
		}
	}
	for _, m := range merged {
		c.merge(n, m, seen)
	}
}

// merge adds to n the keys of m, a mapping or a list of them, that n does not have.
func (c *converter) merge(n, m *Node, seen map[string]*Node) {
	c.merged += m.size
	if c.merged > MaxValues {
		n.grow(c.merged) // and so the document is refused
		return
	}
	switch m.Kind {
	case Map:
		for _, p := range m.Pairs {
			if seen[p.Key.Text] == nil {
				seen[p.Key.Text] = p.Key
				n.addPair(p.Key, p.Value)
			}
		}
	case List:
		for _, item := range m.Items {
			if item.Kind == List {
				c.report.Errorf(item, "", "<< needs a mapping or a list of mappings")
				continue
			}
			c.merge(n, item, seen)
		}
	case Text, Number, Bool, Null:
		c.report.Errorf(m, "", "<< needs a mapping or a list of mappings")
	}
}
