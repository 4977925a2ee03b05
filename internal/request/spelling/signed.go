package spelling

import "strings"

const (
	// leastSignature is of how many digits of base64 a part of a signed value is at
	// least that matters: those of 120 bits.
	leastSignature = 20
	maxJSON        = 4096 // how much JSON a cookie may have, in bytes: browsers keep no more of one
)

// A signed value is texts with dots between them, some of which are base64: a JWT,
// one that is encrypted, or what itsdangerous (Flask, Starlette) has signed.

// isClearSigned reports whether what is base64 in a signed value has nothing but
// digits, and padding behind them.
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

// leastOf is from how many digits on a part of text is base64. A JWT that is
// encrypted has five parts, all of which are.
func leastOf(text string) int {
	if strings.HasPrefix(text, objectBegins) && strings.Count(text, ".") == 4 {
		return 1
	}
	return leastSignature
}

// signed returns a signed value with what is base64 in it in one form, as d reads it.
func signed(text string, d decoder) string {
	if strings.IndexByte(text, '.') < 0 {
		return text
	}
	least := leastOf(text)
	var changed []byte // once a part is
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
