// Package yamltext reads YAML and reports mistakes with their position: in rule files,
// rule tests and the configuration. Only this package uses the YAML library. Memory and
// depth are bounded.
package yamltext

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/base/enum"
)

// Kind is what a YAML value is.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Text
	Number
	Bool
	List
	Map
)

// String names the kind for messages.
func (k Kind) String() string {
	return enum.Name(k, "kind", "empty", "text", "a number", "true or false", "a list", "a mapping")
}

// Node is a YAML value and its place in the file. Aliases share their nodes.
type Node struct {
	Kind         Kind
	Text         string // of a scalar, as it was written, without quotes
	Items        []*Node
	Pairs        []Pair
	Line, Column int
	size         int      // counts the values within, up to a little more than maxValues
	repeats      []repeat // repeats, of a document, are the keys that a mapping in it has twice
}

// IsScalar reports whether n is neither a list nor a mapping.
func (n *Node) IsScalar() bool { return n.Kind != List && n.Kind != Map }

// Value returns the value under a key of a mapping, or nil.
func (n *Node) Value(key string) *Node {
	for _, field := range n.Pairs {
		if field.Key.Text == key {
			return field.Value
		}
	}
	return nil
}

// TextOf returns the text under a key of a mapping, if there is one.
func (n *Node) TextOf(key string) string {
	if value := n.Value(key); value != nil {
		return value.Text
	}
	return ""
}

// Plain returns the value as nil, bool, int64, float64, string, []any or
// map[string]any. Numbers that fit neither type remain text.
func (n *Node) Plain() any {
	switch n.Kind {
	case Null:
		return nil
	case Bool:
		return strings.EqualFold(n.Text, "true")
	case Number:
		if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			return i
		}
		if v, err := strconv.ParseFloat(n.Text, 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	case List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = item.Plain()
		}
		return list
	case Map:
		values := make(map[string]any, len(n.Pairs))
		for _, p := range n.Pairs {
			values[p.Key.Text] = p.Value.Plain()
		}
		return values
	case Text:
	}
	return n.Text
}

// Pair is a key of a mapping with its value.
type Pair struct{ Key, Value *Node }

func (n *Node) addItem(item *Node) {
	n.Items = append(n.Items, item)
	n.grow(item.size)
}

func (n *Node) addPair(key, value *Node) {
	n.Pairs = append(n.Pairs, Pair{key, value})
	n.grow(key.size + value.size)
}

// grow adds to the size and saturates.
func (n *Node) grow(by int) { n.size = min(n.size+by, MaxValues+1) }

// Report collects the diagnostics of one file.
type Report struct {
	File string
	// Secrets says that values may be secrets: messages about invalid YAML do not
	// repeat them.
	Secrets bool
	Errors  int                            // the number of errors among the diagnostics
	Once    map[diagnostic.Diagnostic]bool // Once, if not nil, has the diagnostics that are not reported again

	list []diagnostic.Diagnostic
	left int // not kept
}

// MaxProblems is how many diagnostics of one file are kept.
const MaxProblems = 100

// Add adds a diagnostic of the file.
func (r *Report) Add(d diagnostic.Diagnostic) {
	d.File = r.File
	if r.Once != nil {
		if r.Once[d] {
			return
		}
		r.Once[d] = true
	}
	if d.Severity == diagnostic.SeverityError {
		r.Errors++
	}
	if len(r.list) >= MaxProblems {
		r.left++
		return
	}
	r.list = append(r.list, d)
}

// Errorf reports an error at n. The hint, which may be empty, says what to do.
func (r *Report) Errorf(n *Node, hint, format string, args ...any) {
	r.Add(diagnostic.Diagnostic{Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Warnf reports a warning at n: legal, but probably a mistake.
func (r *Report) Warnf(n *Node, hint, format string, args ...any) {
	r.Add(diagnostic.Diagnostic{Severity: diagnostic.SeverityWarning, Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// FileError reports an error about the whole file.
func (r *Report) FileError(message, hint string) {
	r.Add(diagnostic.Diagnostic{Message: message, Hint: hint})
}

// Sorted returns the diagnostics sorted by line.
func (r *Report) Sorted() []diagnostic.Diagnostic {
	slices.SortStableFunc(r.list, func(a, b diagnostic.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.left > 0 {
		severity := diagnostic.SeverityWarning
		if r.Errors > 0 {
			severity = diagnostic.SeverityError
		}
		return append(r.list, diagnostic.Diagnostic{
			Severity: severity, File: r.File,
			Message: fmt.Sprintf("%d more problems are not shown", r.left),
		})
	}
	return r.list
}

// checkText refuses files that are too large or not text, before the YAML reader spends
// memory on them.
func checkText(src []byte, report *Report) bool {
	if len(src) > MaxFileSize {
		report.FileError(fmt.Sprintf("the file is larger than %d MiB", MaxFileSize>>20), "split it into several files")
		return false
	}
	line, start, values := 1, 0, 0
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && size == 1 {
				report.Add(at(src, line, start, i, fmt.Sprintf("the file is not valid UTF-8 (byte 0x%02x)", c)))
				return false
			}
			i += size
			continue
		case c == '\n':
			line, start = line+1, i+1
			values++
		case c == ',' || c == '[' || c == '{' || (c == ':' || c == '-' || c == '?') && i+1 < len(src) && src[i+1] == ' ':
			// Every YAML value but the first has one of these before it.
			values++
		case c < ' ' && c != '\t' && c != '\r' || c == 0x7f:
			report.Add(at(src, line, start, i, fmt.Sprintf("the control character 0x%02x is not allowed", c)))
			return false
		}
		i++
	}
	if values > MaxValues {
		report.FileError(fmt.Sprintf("the file has more than %d values", MaxValues), "split it into several files")
		return false
	}
	return true
}

// at returns an error at byte i of a line that starts at byte start.
func at(src []byte, line, start, i int, message string) diagnostic.Diagnostic {
	return diagnostic.Diagnostic{Line: line, Column: utf8.RuneCount(bytes.ToValidUTF8(src[start:i], nil)) + 1, Message: message}
}

// HasKey reports whether a mapping has the key, even without a value.
func HasKey(n *Node, key string) bool {
	return n.Value(key) != nil
}
