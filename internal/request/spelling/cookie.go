package spelling

import "strings"

// IsClearCookie reports whether all servers read the value of a cookie alike, apart from
// percent escapes and quotes around it. They disagree about bytes that RFC 6265 forbids:
// Python reads "r\145al" as real, old versions of cookie-parser trim all Unicode spaces,
// and Go drops the cookie. In the signature of a signed value, Python skips bytes that
// are not base64.
func IsClearCookie(text string) bool {
	text = strings.Trim(text, " \t")
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	for i := range len(text) {
		if text[i] < 0x20 || text[i] >= 0x7f || text[i] == '"' || text[i] == '\\' {
			return false
		}
	}
	if len(text) > maxJSON && strings.HasPrefix(Unescape(text[:6], PlusIsPlus), "j:") {
		return false
	}
	if strings.IndexByte(text, '%') >= 0 {
		text = Unescape(text, PlusIsPlus)
	}
	return isClearSigned(text)
}

// AppendCookies appends to dst what servers read in the value of a cookie that is not
// clear, or needlessly spelled, apart from what [Cookie] returns.
func AppendCookies(dst []string, text string) []string {
	if trimmed := trimLatin(text); trimmed != text {
		dst = append(dst, Cookie(trimmed))
	}
	if IsNeedless(text, Cookie(text)) {
		dst = append(dst, text)
	}
	text = strings.Trim(text, " \t")
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		dst = append(dst, withoutBackslashes(text[1:n-1]))
	}
	text = Unescape(text, PlusIsPlus)
	if !isClearSigned(text) {
		for _, p := range [...]padding{endsInPlace, endsNever} {
			dst = append(dst, signed(text, decoder{padding: p}))
		}
	}
	return dst
}

// trimLatin trims text as JavaScript and Python trim Latin-1: 0xa0 is a space, and in
// Python 0x85 too.
func trimLatin(text string) string {
	isSpace := func(c byte) bool { return c <= ' ' || c == 0x7f || c == 0x85 || c == 0xa0 }
	for text != "" && isSpace(text[0]) {
		text = text[1:]
	}
	for text != "" && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// withoutBackslashes decodes text as Python's http.cookies does: \ooo is a byte in octal,
// and \c the character c.
func withoutBackslashes(text string) string {
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch rest := text[i+1:]; {
		case text[i] != '\\' || rest == "":
			b = append(b, text[i])
		case len(rest) >= 3 && rest[0] <= '3' && isOctal(rest[0]) && isOctal(rest[1]) && isOctal(rest[2]):
			b = append(b, (rest[0]-'0')<<6|(rest[1]-'0')<<3|(rest[2]-'0'))
			i += 3
		default:
			b = append(b, rest[0])
			i++
		}
	}
	return string(b)
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }
