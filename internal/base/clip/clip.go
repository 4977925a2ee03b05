// Package clip shortens texts of others for messages and logs.
package clip

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text, or of one that is longer its first most bytes at most, at a
// letter's end, and an ellipsis. Bytes that are no UTF-8 are taken out of a text
// that is shortened, and left in others.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Append appends to b what one may show of text: no more than most bytes of it,
// at a letter's end and then an ellipsis, and a replacement character in place of
// each control character and of each byte that is no UTF-8. It allocates nothing
// if there is room in b.
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
