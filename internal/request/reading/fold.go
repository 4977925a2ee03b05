package reading

import (
	"unicode"
	"unicode/utf8"
)

// Fold returns text with each letter in one form for all its cases: the lower
// one, as a rule. Two texts that differ in case alone are the same folded.
func Fold(text string) string {
	if isFolded(text) {
		return text
	}
	return string(appendFolded(nil, text))
}

// isFolded reports whether folding changes nothing: of texts beyond ASCII it
// does not look.
func isFolded(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func appendFolded(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, c) // not UTF-8: as it is
		} else {
			dst = utf8.AppendRune(dst, foldRune(r))
		}
		i += n
	}
	return dst
}

// foldRune returns the same for all cases of a letter: the least of them, but
// never an upper case letter of ASCII.
func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	if least >= 'A' && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}
