package clip

import (
	"unicode"
	"unicode/utf8"
)

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
