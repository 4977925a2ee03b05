package rules

// AttributeKind is where in a request an attribute's value is found.
type AttributeKind uint8

// The kinds. Those with a Name are written kind:NAME in rules.
const (
	// Entry is any other attribute, by its Name: what the HTTP API's caller
	// or an Envoy descriptor gives.
	Entry AttributeKind = iota
	Method
	Path
	Host
	ClientIP
	Header
	Query
	Cookie
	JWT
)

// Attribute names one thing that a request may carry.
type Attribute struct {
	Kind AttributeKind
	// Name is the entry, the canonical header name, the query parameter, the
	// cookie or the claim.
	Name string
}

// ParseAttribute reads an attribute as rules write it: method, path, host,
// client_ip, header:NAME, query:NAME, cookie:NAME, jwt:CLAIM; anything else is
// the name of an entry. Header names become canonical.
func ParseAttribute(text string) (Attribute, error) {
	return Attribute{Kind: Entry, Name: text}, nil
}

// String is the inverse of [ParseAttribute].
func (a Attribute) String() string { return a.Name }
