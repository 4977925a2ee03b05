// Package clip shortens untrusted text for messages and logs.
package clip

import (
	"fmt"
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
