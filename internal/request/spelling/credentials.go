package spelling

import (
	"slices"
	"strings"
)

// IsCredentials reports whether a header field, by its canonical name, holds credentials:
// a scheme, and a token or parameters.
func IsCredentials(field string) bool {
	return field == "Authorization" || field == "Proxy-Authorization"
}

// Credentials returns the value of an Authorization field with its scheme in one form,
// such as Bearer, and one space after it. What follows Basic is encoded again, since
// base64 can be written in many ways, and so is the signature of a Bearer token with
// three parts. It does not allocate if text has this form.
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

// split returns the scheme of credentials, in one form, and what follows it. The scheme
// is empty if text is a single word.
func split(text string) (scheme, rest string) {
	text = strings.Trim(text, " \t")
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		return "", text
	}
	return schemeOf(text[:end]), strings.TrimLeft(text[end:], " \t")
}

// ClarityOfCredentials returns how far servers agree on credentials.
//
// Many take the second word for the token, whatever the first one is. Many look for
// "Bearer" anywhere. They disagree about spaces: in JavaScript and Python 0xa0 is one. So
// schemes other than Basic and Bearer may be taken for one of them, and text that is
// neither a scheme with a word nor a scheme with parameters may be read in any way. In
// base64 with other bytes, or with bytes after the padding, some servers read what is
// before those, some skip them, and some refuse the credentials.
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

// maxReadings is how many readings of credentials are collected. Requests with more are
// refused.
const maxReadings = 9

// AppendCredentials appends to dst what servers read in credentials that are not clear,
// apart from what [Credentials] returns.
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
			if at := indexFold(word, "bearer"); at >= 0 { // some servers cut here
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
		r.add("Bearer " + bearer(text[len("Bearer "):], decoder{})) // some servers cut off that many bytes, whatever they are
	}
	return r.list
}

// readings collects the readings of one text.
type readings struct {
	list  []string
	from  int
	own   string
	basic bool // the scheme is Basic
}

func (r *readings) add(one string) {
	if one != r.own && len(r.list)-r.from < maxReadings && !slices.Contains(r.list[r.from:], one) {
		r.list = append(r.list, one)
	}
}

// word adds what servers read in a word. It reports false if there is no space for more.
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

// isPair reports whether text is name=value, and not base64 with padding.
func isPair(text string) bool {
	at := strings.IndexByte(text, '=')
	return at > 0 && strings.Trim(text[at:], "=") != ""
}

// shape is the structure of credentials.
type shape uint8

const (
	alone      shape = iota // one word
	pair                    // a scheme and a word
	parameters              // a scheme known to have parameters: name=value, name="value"
	named                   // another scheme with parameters, one of which may be the token
	anything
)

// parse splits credentials. word is what follows the scheme.
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

// hasParameters reports whether scheme is known to have parameters, none of which is a
// token.
func hasParameters(scheme string) bool {
	return slices.ContainsFunc([]string{
		"Digest", "OAuth", "Hawk", "MAC", "Signature", "HOBA", "vapid", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "EG1-HMAC-SHA256", "SCRAM-SHA-256",
	}, func(known string) bool { return strings.EqualFold(known, scheme) })
}

// divides reports whether some server takes c for a separator of words.
func divides(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(",;\"'", c) }

// mentionsScheme reports whether a server that searches for Bearer or Basic finds it.
func mentionsScheme(text string) bool {
	return indexFold(text, "bearer") >= 0 || indexFold(text, "basic ") >= 0
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

// areParameters reports whether text is a list of name=value, with values perhaps in
// quotes (RFC 9110, 11.2), and no spaces around the equals signs. It calls f with each
// value until f returns false.
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

// endOfQuoted returns the index of the closing quote of a quoted text, or -1.
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
