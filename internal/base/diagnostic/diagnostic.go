// Package diagnostic is how this program tells what is wrong in a file: where, what,
// and what to do about it, with the line itself.
package diagnostic

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity is how bad a Diagnostic is.
type Severity uint8

// The severities. With an error there is no Ruleset; a warning is about a rule
// that works, but hardly as it was meant.
const (
	SeverityError Severity = iota
	SeverityWarning
)

// String returns error or warning.
func (s Severity) String() string {
	if s == SeverityWarning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one thing that is wrong in a rule file.
type Diagnostic struct {
	Severity Severity
	// File is the name of the Source. Line and Column count from 1, the
	// column in characters; both are 0 where only the file is known.
	File          string
	Line, Column  int
	Message, Hint string // Message says what is wrong, Hint what to do about it. Hint may be empty.
}

// Position returns file:line:column, or the file alone if the line is unknown.
func (d Diagnostic) Position() string {
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
}

// String returns "file:line:column: message", with the hint, if there is one,
// after a semicolon, and "warning: " before the message of a warning.
func (d Diagnostic) String() string {
	text := d.Message
	if d.Severity == SeverityWarning {
		text = "warning: " + text
	}
	if p := d.Position(); p != "" {
		text = p + ": " + text
	}
	if d.Hint != "" {
		text += "; " + d.Hint
	}
	return text
}

// Problems is the error that [Load] returns: all that is wrong, in the order
// of files and lines.
type Problems []Diagnostic //nolint:errname // a list for people to read, named for what is in it

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, d := range p {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// HasErrors reports whether one of them is no mere warning.
func HasErrors(list []Diagnostic) bool {
	return slices.ContainsFunc(list, func(d Diagnostic) bool { return d.Severity == SeverityError })
}

// Excerpt returns the line of src that d is about, with its number and a caret
// below the column, such as
//
//	5 |     rate: 5/minuet
//	  |           ^
//
// or an empty string if d has no line. Of a long line it shows the part around
// the column; what a terminal could not print becomes a dot.
func Excerpt(src []byte, d Diagnostic) string {
	line, ok := lineOf(src, d.Line)
	if !ok {
		return ""
	}
	text, caret := window(printable(line), max(d.Column, 1)-1)
	number := fmt.Sprint(d.Line)
	blank := strings.Repeat(" ", len(number))
	return fmt.Sprintf("%s | %s\n%s | %s^\n", number, string(text), blank, strings.Repeat(" ", caret))
}

// lineOf returns the line with that number, counted from 1.
func lineOf(src []byte, number int) ([]byte, bool) {
	if number < 1 {
		return nil, false
	}
	for ; number > 1; number-- {
		i := bytes.IndexByte(src, '\n')
		if i < 0 {
			// A parser that runs into the end of the file may point at the
			// line after the last.
			return nil, number == 2
		}
		src = src[i+1:]
	}
	if i := bytes.IndexByte(src, '\n'); i >= 0 {
		src = src[:i]
	}
	return bytes.TrimSuffix(src, []byte("\r")), true
}

// printable decodes a line into characters that take one column each.
func printable(line []byte) []rune {
	out := make([]rune, 0, min(len(line), 4096))
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		line = line[size:]
		switch {
		case r == '\t':
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			r = '·'
		}
		out = append(out, r)
	}
	return out
}

// window cuts what is too long for one line of a terminal and returns where
// column has moved to.
func window(text []rune, column int) ([]rune, int) {
	const before, most = 60, 100
	column = min(column, len(text))
	if start := column - before; start > 0 && len(text) > most {
		text = append([]rune("…"), text[start:]...)
		column = before + 1
	}
	if len(text) > most {
		text = append(text[:most:most], '…')
	}
	return text, column
}
