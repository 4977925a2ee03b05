// Package body has response bodies of rules: templates with a few variables, whose
// values are escaped for the type of text, and the choice among several bodies by the
// Accept header.
package body

import (
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Values are the values of the variables of a Template.
type Values struct {
	Rule             string // the name of the rule that refused
	RequestID        string // the client's request ID; any text
	Limit, Remaining int64  // of the refusal
	RetryAfterMS     int64  // when to try again, in milliseconds; negative means never
	ResetAfterMS     int64  // when the limit is fully available again, in milliseconds
	Status           int    // of the answer
}

// Escape is the kind of text of a Template, which decides how values are escaped.
type Escape uint8

// The kinds of text.
const (
	Plain Escape = iota // removes control characters
	JSON                // escapes for JSON strings, and writes missing numbers as null
	HTML                // escapes for HTML, including quotes
)

// EscapeOf returns the Escape for a content type, such as
// application/problem+json or text/html; charset=utf-8.
func EscapeOf(contentType string) Escape {
	switch kind := mediaType(contentType); {
	case strings.HasSuffix(kind, "json"):
		return JSON
	case strings.HasSuffix(kind, "html"), strings.HasSuffix(kind, "xml"):
		return HTML
	}
	return Plain
}

// variable is a variable of a template.
type variable uint8

const (
	literal variable = iota
	varRule
	varRequestID
	varLimit
	varRemaining
	varRetryAfter
	varRetryAfterMS
	varResetAfter
	varStatus
)

// Variables returns the names that a template may use.
func Variables() []string {
	return []string{"Rule", "RequestID", "Limit", "Remaining", "RetryAfter", "RetryAfterMS", "ResetAfter", "Status"}
}

// part is a text or a variable.
type part struct {
	text string
	is   variable
}

// Template is a text with variables, such as {{.RetryAfter}}. The zero value
// is the empty text. It is immutable.
type Template struct {
	parts  []part
	escape Escape
}

// SyntaxError is an error in a template and its position.
type SyntaxError struct {
	Offset int    // the byte at which the variable starts
	Found  string // the text at that position
}

// Error names the unknown variable.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("unknown variable %q", e.Found)
}

// Parse reads a template: text in which {{.Name}}, with or without spaces
// inside, is one of the Variables. Everything else is literal text. The
// error is a *SyntaxError.
func Parse(text string, escape Escape) (Template, error) {
	t := Template{escape: escape}
	offset := 0
	for {
		before, rest, found := strings.Cut(text[offset:], "{{")
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !found {
			return t, nil
		}
		start := offset + len(before)
		inside, _, closed := strings.Cut(rest, "}}")
		is := variable(1 + slices.Index(Variables(), strings.TrimPrefix(strings.TrimSpace(inside), ".")))
		if !closed || is == literal || !strings.HasPrefix(strings.TrimSpace(inside), ".") {
			const most = 40
			return Template{}, &SyntaxError{start, text[start:min(start+len(inside)+4, start+most, len(text))]}
		}
		t.parts = append(t.parts, part{is: is})
		offset = start + len(inside) + 4
	}
}

// Static returns the text of a template without variables, and false for any
// other.
func (t *Template) Static() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].is == literal:
		return t.parts[0].text, true
	}
	return "", false
}

// Append appends the text with the values in place.
func (t *Template) Append(dst []byte, v *Values) []byte {
	for i := range t.parts {
		switch p := &t.parts[i]; p.is {
		case literal:
			dst = append(dst, p.text...)
		case varRule:
			dst = t.appendText(dst, v.Rule)
		case varRequestID:
			dst = t.appendText(dst, v.RequestID)
		case varLimit:
			dst = strconv.AppendInt(dst, v.Limit, 10)
		case varRemaining:
			dst = strconv.AppendInt(dst, v.Remaining, 10)
		case varRetryAfter:
			dst = t.appendTime(dst, v.RetryAfterMS, 1000)
		case varRetryAfterMS:
			dst = t.appendTime(dst, v.RetryAfterMS, 1)
		case varResetAfter:
			dst = t.appendTime(dst, v.ResetAfterMS, 1000)
		case varStatus:
			dst = strconv.AppendInt(dst, int64(v.Status), 10)
		}
	}
	return dst
}

// appendTime appends milliseconds in a unit, rounded up.
func (t *Template) appendTime(dst []byte, ms, unit int64) []byte {
	switch {
	case ms >= 0:
		return strconv.AppendInt(dst, (ms+unit-1)/unit, 10)
	case t.escape == JSON:
		return append(dst, "null"...)
	}
	return append(dst, "never"...)
}

func (t *Template) appendText(dst []byte, text string) []byte {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, text)
	switch t.escape {
	case JSON:
		quoted, err := json.Marshal(text)
		if err != nil { // cannot be: a text is a JSON string
			return dst
		}
		return append(dst, quoted[1:len(quoted)-1]...)
	case HTML:
		return append(dst, html.EscapeString(text)...)
	case Plain:
	}
	return append(dst, text...)
}

// IsJSON reports whether the text is valid JSON for all values of its variables.
func (t *Template) IsJSON() bool {
	for _, v := range [...]Values{{}, {Rule: "a", RequestID: `"b\`, RetryAfterMS: -1}} {
		if !json.Valid(t.Append(nil, &v)) {
			return false
		}
	}
	return true
}

// Variant is a body in one content type.
type Variant struct {
	// ContentType is its media type, with parameters.
	ContentType string
	Template    Template
}

// Choose returns the index of the variant that a client with these Accept headers
// prefers (RFC 9110, section 12.5.1): the first one with the highest weight, or the
// first of all if there is no Accept header. It returns -1 if none is acceptable.
func Choose(accept []string, variants []Variant) int {
	if len(accept) == 0 {
		return min(len(variants), 1) - 1
	}
	best, most := -1, 0
	for i := range variants {
		if q := Weight(accept, variants[i].ContentType); q > most {
			best, most = i, q
		}
	}
	return best
}

// Weight returns the weight that Accept headers give a content type: from 0, not
// acceptable, to 1000. The most specific matching range counts.
func Weight(accept []string, contentType string) int {
	want := mediaType(contentType)
	kind, _, _ := strings.Cut(want, "/")
	weight, specific := 0, -1
	for _, field := range accept {
		for item := range strings.SplitSeq(field, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			level := -1
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "*/*":
				level = 0
			case kind + "/*":
				level = 1
			case want:
				level = 2
			}
			if level >= 0 && level >= specific {
				if q := quality(parameters); level > specific || q > weight {
					weight = q
				}
				specific = level
			}
		}
	}
	return weight
}

// mediaType returns a content type without its parameters, in lower case.
func mediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// quality returns the weight among the parameters of a range, in thousandths.
// One that is no number counts as none at all: 1000.
func quality(parameters string) int {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0) {
			return 1000
		}
		return int(min(q, 1)*1000 + 0.5)
	}
	return 1000
}
