package spelling

import "strings"

const (
	// leastSignature is of how many digits of base64 a part of a signed value is at
	// least that matters: those of 120 bits.
	leastSignature = 20
	// maxJSON is how much JSON a cookie may have, in bytes: browsers keep no more of
	// one.
	maxJSON = 4096
)

// A signed value is texts with dots between them, some of which are base64: a JWT,
// one that is encrypted, or what itsdangerous (Flask, Starlette) has signed.

// isClearSigned reports whether what is base64 in a signed value has nothing but
// digits, and padding behind them.
func isClearSigned(text string) bool {
	if strings.IndexByte(text, '.') < 0 {
		return true
	}
	for part := range strings.SplitSeq(text, ".") {
		if digitsOf(part) >= leastSignature && !isClearBase64(part) {
			return false
		}
	}
	return true
}

// signed returns a signed value with what is base64 in it in one form, as d reads it.
func signed(text string, d decoder) string {
	if strings.IndexByte(text, '.') < 0 {
		return text
	}
	changed := ""
	for i := 0; i <= len(text); {
		end := strings.IndexByte(text[i:], '.')
		if end < 0 {
			end = len(text)
		} else {
			end += i
		}
		part := text[i:end]
		if digitsOf(part) < leastSignature || isClearBase64(part) && isOneForm(part) {
			i = end + 1
			continue
		}
		one := inOneForm(part, d)
		changed = text[:i] + one + text[end:]
		text, i = changed, i+len(one)+1
	}
	return text
}

// digitsOf counts the digits of base64 in text.
func digitsOf(text string) (n int) {
	for i := range len(text) {
		if digit(text[i]) != 0 {
			n++
		}
	}
	return n
}

// isOneForm reports whether digits are those of URLs without padding, and the bits
// of the last that stand for nothing are zero.
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
