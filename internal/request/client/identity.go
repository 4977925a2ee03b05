package client

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Tokens verifies the tokens that requests carry. It is safe for use by any
// number of goroutines.
type Tokens interface {
	// Verify returns the claims of the tokens in h at the time at. An error
	// means that the request is to be refused for its token; it says why in
	// words that the client may read.
	Verify(h http.Header, at time.Time) (Verified, error)
}

// Verified are the claims of a request's tokens. A request may have several, of
// which its upstream believes one or another.
type Verified struct {
	// First are those of the first token; nil without one, or if it is no good
	// and counts as none.
	First  *Claims
	Others []*Claims // those of the others that are good
}

// Identity is what a request's token says of its sender. The token is verified
// when the first claim is asked for, and only then: a request that no rule asks
// about its claims costs nothing. The zero Identity has no claims; one belongs
// to one request and to one goroutine at a time.
type Identity struct {
	tokens Tokens
	header http.Header
	at     time.Time
	asked  bool
	claims Verified
	err    error
}

// Identify returns the identity of a request with the header h that came at
// at. Tokens may be nil: then nobody has claims.
func Identify(tokens Tokens, h http.Header, at time.Time) Identity {
	return Identity{tokens: tokens, header: h, at: at}
}

// Claim returns the value of a claim as text, and false if there is no valid
// token or it does not have the claim; see [Claims.Text].
func (i *Identity) Claim(name string) (value string, ok bool) {
	i.verify()
	return i.claims.First.Text(name)
}

// AppendOthers appends to dst the values of a claim besides that of Claim, in the
// other tokens of the request.
func (i *Identity) AppendOthers(dst []string, name string) []string {
	i.verify()
	if len(i.claims.Others) == 0 {
		return dst
	}
	first, has := i.claims.First.Text(name)
	for _, claims := range i.claims.Others {
		if text, ok := claims.Text(name); ok && (!has || text != first) && !slices.Contains(dst, text) {
			dst = append(dst, text)
		}
	}
	return dst
}

func (i *Identity) verify() {
	if !i.asked {
		i.asked = true
		if i.tokens != nil {
			i.claims, i.err = i.tokens.Verify(i.header, i.at)
		}
	}
}

// Refusal returns why the request is to be refused for its token, and nil if it
// is not. A request whose claims nobody asked for is not.
//
// A door asks once its limits have let the request pass: they count it like
// all others without claims, so that guessing tokens is limited too.
func (i *Identity) Refusal() error { return i.err }

// Claims are those of a verified token. Nil has none. They are not to be
// changed once they are in use.
type Claims struct {
	values map[string]any
}

// NewClaims returns claims with values as encoding/json decodes them, with
// json.Number or float64 for numbers. It keeps the map.
func NewClaims(values map[string]any) *Claims { return &Claims{values: values} }

// Text returns the value of a claim as text: a string as it is, a number as
// the token writes it (as short as possible if it is a float64), true or
// false. It reports false for a claim that is not there, and for null, arrays
// and objects, which nothing can be counted by.
//
// A dot leads into an object, as in realm.role; names that have dots themselves
// are found as well. At every level a name that is there as a whole wins, then
// the shortest part before a dot that leads to a value.
func (c *Claims) Text(name string) (value string, ok bool) {
	if c == nil {
		return "", false
	}
	return claimText(c.values, name)
}

// claimText visits an object at most once, since there is but one way to each:
// however many dots there are, the work is bounded by the token's size.
func claimText(values map[string]any, name string) (string, bool) {
	if v, there := values[name]; there {
		if text, ok := scalar(v); ok {
			return text, true
		}
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if inner, is := values[name[:i]].(map[string]any); is {
			if text, ok := claimText(inner, name[i+1:]); ok {
				return text, true
			}
		}
	}
	return "", false
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
