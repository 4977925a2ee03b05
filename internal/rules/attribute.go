package rules

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/request/spelling"
)

// AttributeKind is where in a request an attribute's value is found.
type AttributeKind uint8

// The kinds. Those with a Name are written kind:NAME in rules.
const (
	// Other is any other attribute, by its Name: what the HTTP API's caller
	// or an Envoy descriptor gives.
	Other AttributeKind = iota
	Method
	Path
	Host
	ClientIP
	Header
	Query
	Cookie
	JWT
)

// String returns the word that rules use, such as client_ip.
func (k AttributeKind) String() string {
	if k <= JWT {
		return [...]string{
			Other: "entry", Method: "method", Path: "path", Host: "host",
			ClientIP: "client_ip", Header: "header", Query: "query", Cookie: "cookie", JWT: "jwt",
		}[k]
	}
	return fmt.Sprintf("attribute(%d)", uint8(k))
}

// Attribute names one thing that a request may carry.
type Attribute struct {
	Kind AttributeKind
	Name string // the entry, the canonical header name, the query parameter, the cookie or the claim
}

// maxName is the longest name of an attribute in bytes.
const maxName = 256

// ParseAttribute reads an attribute as rules write it: method, path, host,
// client_ip, header:NAME, query:NAME, cookie:NAME, jwt:CLAIM; anything else is
// the name of an entry. Header names become canonical: x-api-key and X-API-KEY
// are X-Api-Key. A prefix that is nearly one of those known, such as headers:,
// is refused, and so is hash:, which only keys have (see [ParseKeyAttribute]);
// any other colon belongs to the name of an entry.
func ParseAttribute(text string) (Attribute, error) {
	if text == "" {
		return Attribute{}, errors.New("the attribute is empty")
	}
	for k := Method; k <= ClientIP; k++ {
		if text == k.String() {
			return Attribute{Kind: k}, nil
		}
	}
	if err := checkName(text); err != nil {
		return Attribute{}, err
	}
	prefix, name, ok := strings.Cut(text, ":")
	if !ok {
		if named, is := namedKind(text); is {
			return Attribute{}, fmt.Errorf("%q needs a name, such as %s", text, exampleOf(named))
		}
		return Attribute{Kind: Other, Name: text}, nil
	}
	if prefix == HashWord {
		return Attribute{}, fmt.Errorf("%s: hash: works only in the key of a rule; write the attribute itself, such as header:X-Api-Key", clip.Quote(text))
	}
	if number, is := cutSegment(text); is {
		if n, err := parseSegmentNumber(text, number); err == nil {
			return Attribute{}, fmt.Errorf("%s, segment %d of the path, works only in the key of a rule", clip.Quote(text), n)
		}
	}
	kind, ok := namedKind(prefix)
	if !ok {
		if near := nearest.Word(prefix, []string{"header", "query", "cookie", "jwt"}); near != "" {
			return Attribute{}, fmt.Errorf("unknown attribute prefix %s, did you mean %q?", clip.Quote(prefix+":"), near+":")
		}
		return Attribute{Kind: Other, Name: text}, nil
	}
	return NamedAttribute(kind, name)
}

// NamedAttribute returns the attribute of a kind that has names.
func NamedAttribute(kind AttributeKind, name string) (Attribute, error) {
	if name == "" {
		return Attribute{}, fmt.Errorf("%q needs a name, such as %s", kind.String()+":", exampleOf(kind))
	}
	if err := checkName(name); err != nil {
		return Attribute{}, err
	}
	if kind == Header {
		canonical, ok := CanonicalHeader(name)
		if !ok {
			return Attribute{}, fmt.Errorf("invalid header name %s", clip.Quote(name))
		}
		name = canonical
	}
	return Attribute{Kind: kind, Name: name}, nil
}

// String is the inverse of [ParseAttribute].
func (a Attribute) String() string {
	switch {
	case a.Kind == Other:
		return a.Name
	case a.Kind >= Header:
		return a.Kind.String() + ":" + a.Name
	}
	return a.Kind.String()
}

func namedKind(prefix string) (AttributeKind, bool) {
	for k := Header; k <= JWT; k++ {
		if prefix == k.String() {
			return k, true
		}
	}
	return 0, false
}

func exampleOf(kind AttributeKind) string {
	return [...]string{Header: "header:X-Api-Key", Query: "query:token", Cookie: "cookie:session", JWT: "jwt:sub"}[kind]
}

// checkName refuses names that nothing could carry.
func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the name %s is longer than %d bytes", clip.Quote(name), maxName)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("the name %s is not UTF-8", clip.Quote(name))
	}
	if strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("the name %s has control characters, or spaces at its start or end", clip.Quote(name))
	}
	return nil
}

// CanonicalHeader returns name as net/http writes it, and false if it is no
// header name (RFC 9110, section 5.1).
func CanonicalHeader(name string) (string, bool) {
	return textproto.CanonicalMIMEHeaderKey(name), spelling.IsToken(name)
}
