// Package diagnostic is how this program tells what is wrong in a file: where, what,
// and what to do about it, with the line itself.
package diagnostic

import (
	"fmt"
	"slices"
	"strings"
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
	File         string
	Line, Column int
	// Message says what is wrong, Hint what to do about it. Hint may be
	// empty.
	Message, Hint string
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
