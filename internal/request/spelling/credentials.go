package spelling

import (
	"encoding/base64"
	"slices"
	"strings"
)

// IsCredentials reports whether a header field, by its canonical name, holds credentials:
// a scheme, and a token or parameters.
func IsCredentials(field string) bool {
	return field == "Authorization" || field == "Proxy-Authorization"
}

// credentials reads an Authorization field. Clear are a token with or without a scheme,
// Basic in strict base64, and the parameters of a scheme that is known to have some, in
// visible ASCII. The scheme gets one form, such as Bearer, and one space after it.
func credentials(sent string) (text string, isClear bool) {
	sent = strings.Trim(sent, " \t")
	scheme, rest := split(sent)
	if text = sent; scheme != "" && sent != scheme+" "+rest {
		text = scheme + " " + rest
	}
	single := !strings.ContainsAny(rest, " \t,;\"'")
	switch {
	case !isASCII(text) || indexFold(rest, "bearer") >= 0 || scheme != "Bearer" && indexFold(scheme, "bearer") >= 0 || indexFold(rest, "basic ") >= 0:
		return text, false // some servers look for the word anywhere
	case scheme == "Basic":
		return text, single && isLogin(rest)
	case single:
		return text, isStrict(rest) && !isAnyLogin(rest)
	}
	first, _, _ := strings.Cut(rest, " ")
	return text, hasParameters(scheme) && strings.Contains(first, "=")
}

// tokenOf returns a token in credentials with the scheme Bearer, whatever scheme or none
// it has. Other credentials stay.
func tokenOf(text string) string {
	scheme, rest := split(text)
	if rest == "" || scheme == "Bearer" || scheme == "Basic" || strings.ContainsAny(rest, " \t,") {
		return text
	}
	return "Bearer " + rest
}

// split returns the scheme of credentials, in one form, and what follows it. The scheme
// is empty if text is a single word.
func split(text string) (scheme, rest string) {
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return "", text
	}
	return schemeOf(text[:end]), strings.TrimLeft(text[end:], " \t")
}

// isLogin reports whether text is a name and a password in strict base64. A NUL in it ends
// the password for some servers.
func isLogin(text string) bool {
	var room [512]byte
	login, err := base64.StdEncoding.Strict().AppendDecode(room[:0], []byte(text))
	return err == nil && isPair(login)
}

// isPair reports whether login is a name and a password.
func isPair(login []byte) bool {
	return slices.Contains(login, ':') && !slices.ContainsFunc(login, func(c byte) bool { return c < ' ' || c == 0x7f })
}

// isAnyLogin reports whether some server that skips what is no base64 reads a name and a
// password in text, whatever the scheme.
func isAnyLogin(text string) bool {
	if strings.HasPrefix(text, objectBegins) {
		return false
	}
	var room, out [512]byte
	digits := room[:0]
	for i := range len(text) {
		switch c := text[i]; {
		case c == '-':
			digits = append(digits, '+')
		case c == '_':
			digits = append(digits, '/')
		case isDigit(c):
			digits = append(digits, c)
		}
	}
	if len(digits)%4 == 1 {
		digits = digits[:len(digits)-1]
	}
	login, err := base64.RawStdEncoding.AppendDecode(out[:0], digits)
	return err == nil && isPair(login)
}

// hasParameters reports whether scheme is known to have parameters, none of which is a
// token.
func hasParameters(scheme string) bool {
	return slices.ContainsFunc([]string{
		"Digest", "OAuth", "Hawk", "MAC", "Signature", "HOBA", "vapid", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "EG1-HMAC-SHA256", "SCRAM-SHA-256",
	}, func(known string) bool { return strings.EqualFold(known, scheme) })
}

// indexFold is [strings.Index], ignoring case.
func indexFold(text, part string) int {
	for i := range len(text) - len(part) + 1 {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

// schemeOf returns a scheme with its first letter in upper case and the others in lower
// case.
func schemeOf(scheme string) string {
	for _, known := range [...]string{"Bearer", "Basic", "Digest", "Token", "Negotiate"} {
		if strings.EqualFold(scheme, known) {
			return known
		}
	}
	small := strings.ToLower(scheme)
	return strings.ToUpper(small[:1]) + small[1:]
}
