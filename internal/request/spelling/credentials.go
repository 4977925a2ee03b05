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
	case shape == named:
		return Several
	case scheme == "Basic" && (!isClearBase64(word) || strings.ContainsAny(word, "-_")):
		return Unclear
	case scheme == "Basic" && isLogin(word, decoder{}):
		return Clear
	case scheme != "Basic" && (!isClearSigned(word) || isJWT(word) && !isClearBase64(word[strings.LastIndexByte(word, '.')+1:])):
		return Unclear
	case scheme == "Bearer" && !isAnyLogin(word) && !isPair(word):
		return Clear
	}
	return Several
}

// maxReadings is how many readings of credentials are told apart; more mean that a
// request is refused.
const maxReadings = 9

// AppendCredentials appends to dst what servers read in credentials that are not
// clear, besides what [Credentials] says.
func AppendCredentials(dst []string, text string) []string {
	scheme, word, shape := parse(text)
	r := readings{list: dst, from: len(dst), own: Credentials(text), basic: scheme == "Basic"}
	switch shape {
	case parameters, named:
		areParameters(word, func(value string) bool { return r.word(value) })
	case anything:
		if name, rest := split(text); name == "Basic" {
			for _, d := range decoders() {
				r.add("Basic " + basic(rest, d))
			}
		}
		for word := range strings.FieldsFuncSeq(text, divides) {
			if at := indexFold(word, "bearer"); at >= 0 { // some cut there
				r.word(word[:at])
				r.word(word[at+len("bearer"):])
			}
			if !r.word(word) {
				break
			}
		}
	case alone, pair:
		r.word(word)
	}
	text = strings.Trim(text, " \t")
	knownScheme := shape == parameters || scheme == "Bearer" || r.basic && isAnyLogin(word)
	if !knownScheme && len(text) > len("Bearer ") {
		r.add("Bearer " + bearer(text[len("Bearer "):], decoder{})) // of those who cut off as much, whatever it is
	}
	return r.list
}

// readings are those of one text.
type readings struct {
	list  []string
	from  int
	own   string
	basic bool // the scheme is
}

func (r *readings) add(one string) {
	if one != r.own && len(r.list)-r.from < maxReadings && !slices.Contains(r.list[r.from:], one) {
		r.list = append(r.list, one)
	}
}

// word adds what servers read in a word. It reports false if no more are needed.
func (r *readings) word(word string) bool {
	if word == "" {
		return true
	}
	for _, d := range decoders() {
		login := isLogin(word, d)
		if r.basic || login {
			r.add("Basic " + basic(word, d))
		}
		if !r.basic || !login && isClearBase64(word) {
			r.add("Bearer " + bearer(word, decoder{padding: d.padding}))
		}
	}
	if !r.basic && isPair(word) { // as Rails reads token=...
		_, value, _ := strings.Cut(word, "=")
		r.add("Bearer " + bearer(value, decoder{}))
	}
	return len(r.list)-r.from < maxReadings
}

// isPair reports whether text is name=value, and not just base64 with its padding.
func isPair(text string) bool {
	at := strings.IndexByte(text, '=')
	return at > 0 && strings.Trim(text[at:], "=") != ""
}

// shape is what credentials consist of.
type shape uint8

const (
	alone      shape = iota // one word
	pair                    // a scheme and a word
	parameters              // a scheme that is known to have them, and parameters: name=value, name="value"
	named                   // another scheme and parameters, one of which may be the token
	anything
)

// parse takes credentials apart: word is what follows the scheme.
func parse(text string) (scheme, word string, s shape) {
	text = strings.Trim(text, " \t")
	for i := range len(text) {
		if text[i] < ' ' && text[i] != '\t' || text[i] >= 0x7f {
			return "", "", anything
		}
	}
	scheme, word = split(text)
	spaced := false
	switch {
	case scheme == "":
		s = alone
	case !strings.ContainsAny(word, " \t,;\"'"):
		s = pair
	case scheme == "Basic":
		return "", "", anything
	case !areParameters(word, func(value string) bool {
		spaced = spaced || strings.ContainsAny(value, " \t")
		return true
	}):
		return "", "", anything
	case hasParameters(scheme) && text[len(scheme)] == ' ':
		s = parameters
	case spaced:
		return "", "", anything
	default:
		s = named
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

// hasParameters reports whether a scheme is one of those that have parameters, and
// no token among them.
func hasParameters(scheme string) bool {
	return slices.ContainsFunc([]string{
		"Digest", "OAuth", "Hawk", "MAC", "Signature", "HOBA", "vapid", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "EG1-HMAC-SHA256", "SCRAM-SHA-256",
	}, func(known string) bool { return strings.EqualFold(known, scheme) })
}

// divides reports whether some server may take c for what stands between words.
func divides(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(",;\"'", c) }

// mentionsScheme reports whether somebody who looks for Bearer or Basic finds it.
func mentionsScheme(text string) bool {
	return indexFold(text, "bearer") >= 0 || indexFold(text, "basic ") >= 0
}

// indexFold is [strings.Index] for letters of either case.
func indexFold(text, part string) int {
	for i := range len(text) - len(part) + 1 {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

// areParameters reports whether text is a list of name=value, the value perhaps in
// quotes (RFC 9110, 11.2), without spaces around the equals signs, and tells f the
// values until it reports false.
func areParameters(text string, f func(value string) bool) bool {
	for more := true; ; {
		name, rest, ok := strings.Cut(strings.TrimLeft(text, " \t"), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t,;\"'") {
			return false
		}
		value := ""
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			end := endOfQuoted(quoted)
			if end < 0 {
				return false
			}
			value, rest = quoted[:end], quoted[end+1:]
		} else {
			end := strings.IndexAny(rest, " \t,;\"")
			if end < 0 {
				end = len(rest)
			}
			if value, rest = rest[:end], rest[end:]; value == "" {
				return false
			}
		}
		more = more && f(value)
		if text = strings.TrimLeft(rest, " \t"); text == "" {
			return true
		}
		if text, ok = strings.CutPrefix(text, ","); !ok {
			return false
		}
		if text == "" {
			return true
		}
	}
}

// endOfQuoted returns where the quote is that ends a text in quotes, or -1.
func endOfQuoted(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
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
