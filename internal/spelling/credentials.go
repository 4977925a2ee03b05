package spelling

import (
	"slices"
	"strings"
)

// IsCredentials reports whether a header field, by its canonical name, has
// credentials: a scheme and what belongs to it.
func IsCredentials(field string) bool {
	return field == "Authorization" || field == "Proxy-Authorization"
}

// Credentials returns the value of an Authorization field with its scheme in
// one form, such as Bearer, and one space after it. What follows Basic is encoded
// again, for there are many ways to write the same in base64, and so is the
// signature of a Bearer token that has three parts, as a JWT. It allocates
// nothing if text is so already.
func Credentials(text string) string {
	text = strings.Trim(text, " \t")
	name, rest := split(text)
	if name == "" {
		return text
	}
	one := rest
	switch name {
	case "Basic":
		one = basic(rest, decoder{})
	case "Bearer":
		one = bearer(rest, decoder{})
	}
	if n := len(name); len(text) == n+1+len(one) && text[:n] == name && text[n] == ' ' && text[n+1:] == one {
		return text
	}
	return name + " " + one
}

// split returns the scheme of credentials, in one form, and what follows it. The
// scheme is empty if there is none, or nothing else.
func split(text string) (scheme, rest string) {
	text = strings.Trim(text, " \t")
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return "", text
	}
	return schemeOf(text[:end]), strings.TrimLeft(text[end:], " \t")
}

// ClarityOfCredentials says how far servers agree on who sends text as credentials.
//
// Many take the second word for the token, whatever the first is; many look for
// "Bearer" wherever it is; and what is a space differs: to JavaScript and Python
// the byte 0xa0 is one. So another scheme than Basic and Bearer may be one of
// these, and what is neither a scheme and a word nor a scheme and its parameters
// may be anything. In base64, of bytes that are none of its digits, or any behind
// the padding, some read what is before them, some skip them, and some refuse it.
func ClarityOfCredentials(text string) Clarity {
	scheme, word, shape := parse(text)
	switch {
	case text == "" || shape == parameters:
		return Clear
	case shape == anything:
		return Unclear
	case scheme == "Basic" && (!isClearBase64(word) || strings.ContainsAny(word, "-_")):
		return Unclear
	case scheme == "Basic" && isLogin(word, decoder{}):
		return Clear
	case scheme != "Basic" && isJWT(word) && !isClearBase64(word[strings.LastIndexByte(word, '.')+1:]):
		return Unclear
	case scheme == "Bearer" && !isAnyLogin(word):
		return Clear
	}
	return Several
}

// AppendCredentials appends to dst what servers read in credentials that are not
// clear, besides what [Credentials] says.
func AppendCredentials(dst []string, text string) []string {
	scheme, word, shape := parse(text)
	from, own := len(dst), Credentials(text)
	add := func(one string) {
		if one != own && !slices.Contains(dst[from:], one) {
			dst = append(dst, one)
		}
	}
	read := func(word string) {
		for _, d := range decoders() {
			if scheme == "Basic" || isLogin(word, d) {
				add("Basic " + basic(word, d))
			}
			if scheme != "Basic" || !isLogin(word, d) && isClearBase64(word) {
				add("Bearer " + bearer(word, decoder{padding: d.padding}))
			}
		}
	}
	if shape != anything {
		read(word)
		return dst
	}
	for word := range strings.FieldsFuncSeq(text, divides) {
		read(word)
	}
	return dst
}

// OneCredential returns what to count credentials by for those who have one count
// for a request, and false if servers that nobody knows may read anything.
func OneCredential(text string) (one string, ok bool) {
	switch ClarityOfCredentials(text) {
	case Clear:
		return Credentials(text), true
	case Several:
		return AppendCredentials(nil, text)[0], true
	case Unclear:
	}
	return "", false
}

// AppendTokens appends to dst all that some server may take for a JWT in a header
// field, whatever stands around it.
func AppendTokens(dst []string, text string) []string {
	for run := range strings.FieldsFuncSeq(text, func(c rune) bool {
		return c >= 0x7f || digit(byte(c)) == 0 && c != '.' && c != '='
	}) {
		if at := strings.Index(run, objectBegins); at > 0 {
			run = run[at:]
		}
		if isJWT(run) {
			dst = append(dst, run)
		}
	}
	return dst
}

// objectBegins is how an object in JSON begins in base64.
const objectBegins = "eyJ"

// isJWT reports whether token has the three parts of a JWT that is signed.
func isJWT(token string) bool {
	return strings.Count(token, ".") == 2
}

// shape is what credentials consist of.
type shape uint8

const (
	alone      shape = iota // one word
	pair                    // a scheme and a word
	parameters              // a scheme and its parameters: name=value, name="value"
	anything
)

// parse takes credentials apart.
func parse(text string) (scheme, word string, s shape) {
	text = strings.Trim(text, " \t")
	for i := range len(text) {
		if text[i] < ' ' && text[i] != '\t' || text[i] >= 0x7f {
			return "", "", anything
		}
	}
	scheme, word = split(text)
	switch {
	case scheme == "":
		s = alone
	case !strings.ContainsAny(word, " \t,;\"'"):
		s = pair
	case areParameters(word):
		s, word = parameters, ""
	default:
		return "", "", anything
	}
	rest := scheme
	if scheme == "Basic" || scheme == "Bearer" {
		rest = ""
	}
	if mentionsScheme(rest) || s != pair && mentionsScheme(text[len(scheme):]) {
		return "", "", anything
	}
	return scheme, word, s
}

// divides reports whether some server may take c for what stands between words.
func divides(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(",;\"'", c) }

// mentionsScheme reports whether somebody who looks for Bearer or Basic finds it.
func mentionsScheme(text string) bool {
	for i := range len(text) {
		for _, name := range [...]string{"bearer", "basic"} {
			if len(text)-i >= len(name) && strings.EqualFold(text[i:i+len(name)], name) {
				return true
			}
		}
	}
	return false
}

// areParameters reports whether text is a list of name=value, the value perhaps in
// quotes (RFC 9110, 11.2).
func areParameters(text string) bool {
	for {
		name, rest, ok := strings.Cut(strings.TrimLeft(text, " \t"), "=")
		name = strings.TrimRight(name, " \t")
		if !ok || name == "" || strings.ContainsAny(name, " \t,;\"'") {
			return false
		}
		rest = strings.TrimLeft(rest, " \t")
		end := 0
		if strings.HasPrefix(rest, `"`) {
			if end = strings.IndexByte(rest[1:], '"') + 2; end < 2 {
				return false
			}
		} else if end = strings.IndexAny(rest, " \t,\"'"); end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return false
		}
		if text = strings.TrimLeft(rest[end:], " \t"); text == "" {
			return true
		}
		if text, ok = strings.CutPrefix(text, ","); !ok {
			return false
		}
	}
}

// schemeOf returns a scheme with its first letter large and the others small.
func schemeOf(scheme string) string {
	for _, known := range [...]string{"Bearer", "Basic", "Digest", "Token", "Negotiate"} {
		if strings.EqualFold(scheme, known) {
			return known
		}
	}
	small := strings.ToLower(scheme)
	return strings.ToUpper(small[:1]) + small[1:]
}
