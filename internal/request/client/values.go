package client

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/internal/request/spelling"
)

// Value is what a request has under a name.
type Value struct {
	Text string
	OK   bool // there is a value
	// Unclear means that servers may read another value or none: there are several, or
	// they are malformed or under another spelling of the name.
	Unclear bool
}

// add adds the value of another occurrence of the name.
func (v *Value) add(text string) {
	v.Unclear = v.Unclear || v.OK && text != v.Text
	if !v.OK {
		v.Text, v.OK = text, true
	}
}

// mostRead is how many parameters, or cookies, some servers read at most.
const mostRead = 1000

// ReadQuery returns the value of the parameter name of a raw query.
func ReadQuery(raw, name string) (v Value) {
	for n := 0; raw != ""; n++ {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if strings.IndexByte(pair, ';') >= 0 { // some servers drop it, some split it
			for part := range strings.SplitSeq(pair, ";") {
				key, _, _ := strings.Cut(part, "=")
				v.Unclear = v.Unclear || isNamed(key, name, spelling.PlusIsSpace)
			}
			continue
		}
		switch key, value, _ := strings.Cut(pair, "="); {
		case key == name:
			text, isClear := spelling.InParameter.Read(value)
			v.add(text)
			v.Unclear = v.Unclear || !isClear || n >= mostRead
		case isNamed(key, name, spelling.PlusIsSpace):
			v.Unclear = true
		}
	}
	return v
}

// isNamed reports whether some server may read key, as sent, as name.
func isNamed(key, name string, plus spelling.Plus) bool {
	return key != "" && spelling.SameName(spelling.Unescape(key, plus), name)
}

// ReadCookie returns the value of the cookie name, as sent; [spelling.InCookie] reads it.
func ReadCookie(h http.Header, name string) (v Value) {
	n := 0
	for _, line := range h["Cookie"] {
		for ; line != ""; n++ {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			key, value, ok := strings.Cut(textproto.TrimString(pair), "=")
			switch inner := textproto.TrimString(value); {
			case ok && key == name:
				v.add(inner)
				v.Unclear = v.Unclear || inner != value || n >= mostRead // some servers trim it
			case isNamed(key, name, spelling.PlusIsPlus) || hasWithin(pair, name):
				v.Unclear = true
			}
		}
	}
	return v
}

// hasWithin reports whether there is a cookie name in a pair for servers that split it
// further, at spaces and commas.
func hasWithin(pair, name string) bool {
	divides := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ',' }
	if strings.IndexFunc(textproto.TrimString(pair), divides) < 0 {
		return false
	}
	for part := range strings.FieldsFuncSeq(pair, divides) {
		if key, _, _ := strings.Cut(part, "="); isNamed(key, name, spelling.PlusIsPlus) {
			return true
		}
	}
	return false
}

// ReadHeader returns the value of a header field, by its canonical name. It is unclear
// next to a name that CGI takes for the same.
func ReadHeader(h http.Header, name string) (v Value) {
	for _, text := range h[name] {
		v.add(text)
	}
	v.Unclear = v.Unclear || spelling.IsCredentials(name) && len(h[name]) > 1 // some servers join them
	for other := range h {
		if strings.ContainsAny(other, "_.") && other != name && spelling.SameField(other, name) {
			v.Unclear = true
		}
	}
	return v
}

// AppendCookies appends to dst the different values of the cookie name, as sent.
func AppendCookies(dst []string, h http.Header, name string) []string {
	for _, line := range h["Cookie"] {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			if key, value, _ := strings.Cut(textproto.TrimString(pair), "="); textproto.TrimString(key) == name {
				dst = append(dst, textproto.TrimString(value))
			}
		}
	}
	return dst
}

// MaxParameters is how many parameters a query may have. Go reads none if there are more.
const MaxParameters = 10_000

// MaxFields is how many header fields a request may have. Node silently drops those
// beyond 1000.
const MaxFields = 500

// TooManyFields reports whether h has more than [MaxFields].
func TooManyFields(h http.Header) bool {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n > MaxFields
}
