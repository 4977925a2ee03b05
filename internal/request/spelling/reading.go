package spelling

import (
	"encoding/json"
	"strings"
)

// Form is where a text is from, which decides how it is read.
type Form uint8

// The forms.
const (
	Plain Form = iota // has one spelling
	// InField is the value of a header field, InCredentials of one with credentials,
	// InCookie of a cookie, InParameter of a parameter of a raw query.
	InField
	InCredentials
	InCookie
	InParameter
)

// FormOf returns the form of the values of a header field, by its canonical name.
func FormOf(field string) Form {
	if IsCredentials(field) {
		return InCredentials
	}
	return InField
}

// Read reads a text as it was sent. It returns false if the text is unclear: servers may
// read something else in it. It does not allocate if there is nothing to decode.
func (f Form) Read(sent string) (text string, isClear bool) {
	switch f {
	case InField:
		text = strings.Trim(sent, " \t")
		return text, isTrimmed(text) && isStrict(text)
	case InCredentials:
		return credentials(sent)
	case InCookie:
		return cookie(sent)
	case InParameter:
		text = strings.Trim(Unescape(sent, PlusIsSpace), " \t")
		return text, IsEscaped(sent) && isTrimmed(text) && isStrict(text) && !endsInBracket(sent)
	case Plain:
	}
	return sent, true
}

// Key returns what to count of a text that Read has returned. Some servers read a + in a
// cookie as a space, and some take a token whatever the scheme before it is.
func (f Form) Key(text string) string {
	switch f {
	case InCookie:
		return strings.ReplaceAll(text, "+", " ")
	case InCredentials:
		return tokenOf(text)
	case Plain, InField, InParameter:
	}
	return text
}

// cookie reads a cookie: trimmed, without quotes around it, and percent-decoded once.
func cookie(sent string) (text string, isClear bool) {
	text = strings.Trim(sent, " \t")
	if strings.HasPrefix(text, `"`) {
		inner := strings.TrimSuffix(text[1:], `"`)
		isClear = len(inner)+2 == len(text) && !strings.ContainsAny(inner, `"\`)
		text = inner
	} else { // unless it is JSON, Python ends it at a space, and Go drops it for the others
		isClear = !strings.ContainsAny(text, ` "\`) || json.Valid([]byte(strings.TrimPrefix(text, "j:")))
	}
	isClear = isClear && isASCII(text) && IsEscaped(text)
	text = Unescape(text, PlusIsPlus)
	if rest, ok := strings.CutPrefix(text, "j:"); ok && !strings.HasPrefix(rest, "{") {
		return text, false // JSON to Express, which is a text in many spellings
	}
	return text, isClear && isTrimmed(text) && isStrict(text)
}

// endsInBracket reports whether part of a raw value may belong to the name: qs, which
// Express uses, ends names at the first ]=.
func endsInBracket(value string) bool {
	return strings.Contains(value, "=") && (strings.Contains(value, "]=") || strings.Contains(value, "%5D=") || strings.Contains(value, "%5d="))
}
