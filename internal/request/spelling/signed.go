package spelling

import "strings"

const (
	// leastSignature is how many base64 digits a part of a signed value must have to be a
	// signature: those of 120 bits.
	leastSignature = 20
	maxJSON        = 4096 // longest JSON in a cookie, in bytes, which is all that browsers store
)

// A signed value consists of texts with dots between them, some of which are base64: a
// JWT, an encrypted one, or what itsdangerous (Flask, Starlette) has signed.

// isClearSigned reports whether the base64 in a signed value has only digits, and padding
// at its end.
func isClearSigned(text string) bool {
	if strings.IndexByte(text, '.') < 0 {
		return true
	}
	least := leastOf(text)
	for part := range strings.SplitSeq(text, ".") {
		if digitsOf(part) >= least && !isClearBase64(part) {
			return false
		}
	}
	return true
}

// leastOf returns how many digits a part of text must have to be base64. All five parts
// of an encrypted JWT are.
func leastOf(text string) int {
	if strings.HasPrefix(text, objectBegins) && strings.Count(text, ".") == 4 {
		return 1
	}
	return leastSignature
}

// signed returns a signed value with its base64 in one form, as d reads it.
func signed(text string, d decoder) string {
	if strings.IndexByte(text, '.') < 0 {
		return text
	}
	least := leastOf(text)
	var changed []byte // nil until a part changes
	done := 0
	for at := 0; at <= len(text); {
		end := strings.IndexByte(text[at:], '.')
		if end < 0 {
			end = len(text)
		} else {
			end += at
		}
		if part := text[at:end]; digitsOf(part) >= least && (!isClearBase64(part) || !isOneForm(part)) {
			changed = append(append(changed, text[done:at]...), inOneForm(part, d)...)
			done = end
		}
		at = end + 1
	}
	if changed == nil {
		return text
	}
	return string(append(changed, text[done:]...))
}

// digitsOf counts the base64 digits in text.
func digitsOf(text string) (n int) {
	for i := range len(text) {
		if digit(text[i]) != 0 {
			n++
		}
	}
	return n
}

// isOneForm reports whether digits are of the URL alphabet without padding, and the
// unused bits of the last one are zero.
func isOneForm(digits string) bool {
	if strings.ContainsAny(digits, "+/=") {
		return false
	}
	last := value64(digit(digits[len(digits)-1]))
	switch len(digits) % 4 {
	case 1:
		return false
	case 2:
		return last&15 == 0
	case 3:
		return last&3 == 0
	}
	return true
}
