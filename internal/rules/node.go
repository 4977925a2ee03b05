package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// nodeKind is what a YAML value is.
type nodeKind uint8

const (
	nullKind nodeKind = iota
	textKind
	numberKind
	boolKind
	listKind
	mapKind
)

// String names the kind for messages.
func (k nodeKind) String() string {
	switch k {
	case nullKind:
		return "empty"
	case textKind:
		return "text"
	case numberKind:
		return "a number"
	case boolKind:
		return "true or false"
	case listKind:
		return "a list"
	case mapKind:
		return "a mapping"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// node is a YAML value and its place in the file. Aliases share their nodes.
type node struct {
	kind         nodeKind
	text         string // of a scalar, as it was written, without quotes
	items        []*node
	pairs        []pair
	line, column int
	// size counts the values within, up to a little more than maxValues.
	size int
	// repeats, of a document, are the keys that a mapping in it has twice.
	repeats []repeat
}

// plain returns the value as nil, bool, int64, float64, string, []any or
// map[string]any. Numbers that are no such numbers remain text.
func (n *node) plain() any {
	switch n.kind {
	case nullKind:
		return nil
	case boolKind:
		return strings.EqualFold(n.text, "true")
	case numberKind:
		if i, err := strconv.ParseInt(n.text, 10, 64); err == nil {
			return i
		}
		if v, err := strconv.ParseFloat(n.text, 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	case listKind:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.plain()
		}
		return list
	case mapKind:
		values := make(map[string]any, len(n.pairs))
		for _, p := range n.pairs {
			values[p.key.text] = p.value.plain()
		}
		return values
	case textKind:
	}
	return n.text
}

type pair struct{ key, value *node }

func (n *node) addItem(item *node) {
	n.items = append(n.items, item)
	n.grow(item.size)
}

func (n *node) addPair(key, value *node) {
	n.pairs = append(n.pairs, pair{key, value})
	n.grow(key.size + value.size)
}

// grow adds to the size and saturates.
func (n *node) grow(by int) { n.size = min(n.size+by, maxValues+1) }

// reporter collects the diagnostics of one file.
type reporter struct {
	file   string
	list   []Diagnostic
	errors int
	left   int // diagnostics that were not kept
	// once, if not nil, are those that have been said and need not be again.
	once map[Diagnostic]bool
}

// maxProblems is how many diagnostics of one file are kept.
const maxProblems = 100

func (r *reporter) add(d Diagnostic) {
	d.File = r.file
	if r.once != nil {
		if r.once[d] {
			return
		}
		r.once[d] = true
	}
	if d.Severity == SeverityError {
		r.errors++
	}
	if len(r.list) >= maxProblems {
		r.left++
		return
	}
	r.list = append(r.list, d)
}

func (r *reporter) errorf(n *node, hint, format string, args ...any) {
	r.add(Diagnostic{Line: n.line, Column: n.column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (r *reporter) warnf(n *node, hint, format string, args ...any) {
	r.add(Diagnostic{Severity: SeverityWarning, Line: n.line, Column: n.column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// fileError reports what is wrong with the file as a whole.
func (r *reporter) fileError(message, hint string) {
	r.add(Diagnostic{Message: message, Hint: hint})
}

// sorted returns what was collected in the order of the lines.
func (r *reporter) sorted() []Diagnostic {
	slices.SortStableFunc(r.list, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.left > 0 {
		severity := SeverityWarning
		if r.errors > 0 {
			severity = SeverityError
		}
		return append(r.list, Diagnostic{
			Severity: severity, File: r.file,
			Message: fmt.Sprintf("%d more problems are not shown", r.left),
		})
	}
	return r.list
}

// checkText refuses what is too large, or no text, before the YAML reader
// spends memory on it.
func checkText(src []byte, report *reporter) bool {
	if len(src) > MaxFileSize {
		report.fileError(fmt.Sprintf("the file is larger than %d MiB", MaxFileSize>>20), "split it into several")
		return false
	}
	line, start, values := 1, 0, 0
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && size == 1 {
				report.add(at(src, line, start, i, fmt.Sprintf("the file is not UTF-8 (byte 0x%02x)", c)))
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
			report.add(at(src, line, start, i, fmt.Sprintf("the control character 0x%02x is not allowed", c)))
			return false
		}
		i++
	}
	if values > maxValues {
		report.fileError(fmt.Sprintf("the file holds more than %d values", maxValues), "split it into several")
		return false
	}
	return true
}

// at returns an error at byte i of a line that begins at byte start.
func at(src []byte, line, start, i int, message string) Diagnostic {
	return Diagnostic{Line: line, Column: utf8.RuneCount(bytes.ToValidUTF8(src[start:i], nil)) + 1, Message: message}
}
