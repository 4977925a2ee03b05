package spelling

import "strings"

const (
	// leastSignature is of how many digits of base64 a signature is at least: those
	// of 120 bits.
	leastSignature = 20
	// maxJSON is how much JSON a cookie may have, in bytes: browsers keep no more of
	// one.
	maxJSON = 4096
)

// tailOf returns where the signature of a signed value begins, as of a JWT or of
// what itsdangerous (Flask, Starlette) has signed: behind the last dot, in base64.
// It is 0 if there is none. isClear reports whether it has nothing but digits, and
// padding behind them.
func tailOf(text string) (at int, isClear bool) {
	at = strings.LastIndexByte(text, '.') + 1
	digits := 0
	for i := range len(text) - at {
		if digit(text[at+i]) != 0 {
			digits++
		}
	}
	if at == 0 || digits < leastSignature {
		return 0, true
	}
	return at, isClearBase64(text[at:])
}

// signed returns a signed value with its signature in one form.
func signed(text string) string {
	at, isClear := tailOf(text)
	if at == 0 || isClear && isOneForm(text[at:]) {
		return text
	}
	return withTail(text, at, decoder{})
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
