package client

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Tokens verifies the tokens of requests. It is safe for concurrent use.
type Tokens interface {
	// Verify returns the claims of the tokens in h at the given time. An error means that
	// the request must be refused; its text is shown to the client. by is asked before the
	// first signature is checked.
	Verify(h http.Header, at time.Time, by Sender) (Verified, error)
}

// Sender is who sent the tokens. Checking a signature takes a thousand times as long as
// counting a request, so it is not done for senders that are refused anyway.
type Sender interface {
	// Refused reports whether the request is refused whatever its tokens say.
	Refused() bool
}

// Verified are the claims of the tokens in a request. A request can have several, and its
// upstream may use any of them.
type Verified struct {
	// First are the claims of the first token. Nil if there is none, or if it is invalid
	// and counts as none.
	First  *Claims
	Others []*Claims // of the other valid tokens
	// Unchecked reports that a token was not checked, since its sender is refused.
	Unchecked bool
}

// Identity gives access to the claims of a request's tokens. Tokens are verified when the
// first claim is read, so requests without such rules cost nothing. The zero Identity has
// no claims. An Identity belongs to one request and is not safe for concurrent use.
type Identity struct {
	tokens Tokens
	header http.Header
	at     time.Time
	by     Sender
	asked  bool
	claims Verified
	err    error
}

// Identify returns the identity of a request with the header h that arrived at the given
// time. If tokens is nil, it has no claims.
func Identify(tokens Tokens, h http.Header, at time.Time) Identity {
	return Identity{tokens: tokens, header: h, at: at}
}

// From sets who sent the tokens; nil means that they are verified in any case.
func (i *Identity) From(by Sender) { i.by = by }

// Claim returns the value of a claim as text; see [Claims.Text]. It returns false if
// there is no valid token or the token does not have the claim.
func (i *Identity) Claim(name string) (value string, ok bool) {
	i.verify()
	return i.claims.First.Text(name)
}

// Read is Claim, and reports whether another token of the request has another value.
func (i *Identity) Read(name string) (v Value) {
	if text, ok := i.Claim(name); ok {
		v.add(text)
	}
	for _, claims := range i.claims.Others {
		if text, ok := claims.Text(name); ok {
			v.Unclear = v.Unclear || !v.OK || text != v.Text
		}
	}
	return v
}

func (i *Identity) verify() {
	if !i.asked {
		i.asked = true // also while by matches the rules that read no claims
		if i.tokens != nil {
			i.claims, i.err = i.tokens.Verify(i.header, i.at, i.by)
		}
	}
}

// Recheck reports whether a token was not checked, since its sender seemed to be refused.
// If so, the next claim is read from tokens that are checked.
func (i *Identity) Recheck() bool {
	if !i.claims.Unchecked {
		return false
	}
	i.asked, i.by, i.claims, i.err = false, nil, Verified{}, nil
	return true
}

// Refusal returns why the request must be refused for its token, or nil. It is nil if no
// claim was read.
//
// Doors call it after their limits allowed the request. The request was counted like one
// without claims, so guessing tokens is limited too.
func (i *Identity) Refusal() error { return i.err }

// Claims are the claims of a verified token. Nil has none. They must not change once in
// use.
type Claims struct {
	values map[string]any
}

// NewClaims returns claims with values as encoding/json decodes them, with
// json.Number or float64 for numbers. It keeps the map.
func NewClaims(values map[string]any) *Claims { return &Claims{values: values} }

// Text returns the value of a claim as text: strings unchanged, numbers as in the token
// (as short as possible for a float64), true or false. It reports false if the claim is
// missing, null, an array or an object.
//
// A dot leads into an object, as in realm.role. Names that contain dots are found too: at
// every level the whole name is tried first, then the shortest part before a dot that
// leads to a value.
func (c *Claims) Text(name string) (value string, ok bool) {
	if c == nil {
		return "", false
	}
	return claimText(c.values, name)
}

// claimText visits every object at most once, so the work is bounded by the size of the
// token, however many dots the name has.
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
