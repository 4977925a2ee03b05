// Package diagnostic describes errors and warnings in a file: position, message, hint,
// and the line itself.
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

// The severities. An error prevents loading; a warning is about something that works,
// but probably not as intended.
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

// Diagnostic is one error or warning in a file.
type Diagnostic struct {
	Severity Severity
	// File is the name of the file. Line and Column count from 1, the column in
	// characters; both are 0 if only the file is known.
	File          string
	Line, Column  int
	Message, Hint string // Message says what is wrong, Hint what to do, or is empty
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

// Problems is an error with all diagnostics, in the order of files and lines.
type Problems []Diagnostic //nolint:errname // a list for people to read

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, d := range p {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// HasErrors reports whether list has an error, not only warnings.
func HasErrors(list []Diagnostic) bool {
	return slices.ContainsFunc(list, func(d Diagnostic) bool { return d.Severity == SeverityError })
}

// Excerpt returns the line of src that d is about, with its number and a caret
// below the column, such as
//
//	5 |     rate: 5/minuet
//	  |           ^
//
// or an empty string if d has no line. Long lines are cut to the part around the
// column; unprintable characters become dots.
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
			// A parser may report an unexpected end of file on the line after the last.
			return nil, number == 2
		}
		src = src[i+1:]
	}
	if i := bytes.IndexByte(src, '\n'); i >= 0 {
		src = src[:i]
	}
	return bytes.TrimSuffix(src, []byte("\r")), true
}

// printable decodes a line into characters of one column each.
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

// window cuts a long line for a terminal, and returns the new position of column.
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
