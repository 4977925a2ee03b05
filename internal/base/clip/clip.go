// Package clip shortens untrusted text for messages and logs.
package clip

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text, cut to at most most bytes, without splitting a character, and an
// ellipsis. A text that is cut also loses invalid UTF-8.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Append appends text to b, cut to at most most bytes, without splitting a character,
// and an ellipsis. Control characters and invalid bytes become replacement characters.
// It does not allocate if b has the capacity.
func Append(b []byte, text string, most int) []byte {
	for i := 0; i < len(text); {
		letter, size := utf8.DecodeRuneInString(text[i:])
		if i+size > most {
			return append(b, "…"...)
		}
		if unicode.IsControl(letter) {
			letter = utf8.RuneError
		}
		b = utf8.AppendRune(b, letter)
		i += size
	}
	return b
}

// Quote returns text in quotes for a message, cut if it is long.
func Quote(text string) string {
	const most = 60
	if len(text) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:most], ""))
	}
	return fmt.Sprintf("%q", text)
}

// Escape returns text from clients with all that is not seen, or changes how the rest is
// seen, as \x1b, \u202e or \U000e0001: otherwise one key can look like another. A backslash
// that would read as such an escape is \x5c, so that Unescape returns the text. Invalid
// bytes become U+FFFD. The dashboard does the same (web/src/ui/format.ts).
func Escape(text string) string {
	if !strings.ContainsFunc(text, isUnseen) && !strings.Contains(text, `\`) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for rest := text; rest != ""; {
		letter, size := utf8.DecodeRuneInString(rest)
		_, length := escapeAt(rest)
		switch {
		case length > 0:
			b.WriteString(`\x5c`)
		case !isUnseen(letter):
			b.WriteRune(letter)
		case letter < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, letter)
		case letter < 1<<16:
			fmt.Fprintf(&b, `\u%04x`, letter)
		default:
			fmt.Fprintf(&b, `\U%08x`, letter)
		}
		rest = rest[size:]
	}
	return b.String()
}

// Unescape returns the text that Escape has shown as text. What Escape does not write, such
// as \u0041 or a backslash alone, stays as it is.
func Unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for text != "" {
		letter, length := escapeAt(text)
		if length == 0 {
			length = 1
			b.WriteByte(text[0])
		} else {
			b.WriteRune(letter)
		}
		text = text[length:]
	}
	return b.String()
}

// escapeAt returns the character of an escape at the start of text, and its length; 0 if
// there is none that Escape writes.
func escapeAt(text string) (letter rune, length int) {
	if len(text) < 2 || text[0] != '\\' {
		return 0, 0
	}
	switch text[1] {
	case 'x':
		length = 4
	case 'u':
		length = 6
	case 'U':
		length = 10
	}
	if length == 0 || len(text) < length || strings.ContainsAny(text[2:length], "ABCDEF") {
		return 0, 0
	}
	n, err := strconv.ParseUint(text[2:length], 16, 32)
	if letter = rune(n); err != nil || n > unicode.MaxRune || letter != '\\' && !isUnseen(letter) {
		return 0, 0
	}
	return letter, length
}

// isUnseen reports whether a character is not seen, or changes how others are.
func isUnseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector) ||
		strings.ContainsRune("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0", r)
}
