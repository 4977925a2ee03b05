package client

import (
	"net/http"
	"time"
)

// Tokens verifies the tokens that requests carry. It is safe for use by any
// number of goroutines.
type Tokens interface {
	// Verify returns the claims of the token in h as of at. Without a token,
	// or with one that is no good and counts as none, they are nil. An error
	// means that the request is to be refused for its token; it says why in
	// words that the client may read.
	Verify(h http.Header, at time.Time) (*Claims, error)
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
	claims *Claims
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
	if !i.asked {
		i.asked = true
		if i.tokens != nil {
			i.claims, i.err = i.tokens.Verify(i.header, i.at)
		}
	}
	return i.claims.Text(name)
}

// Refusal returns why the request is to be refused for its token, and nil if it
// is not. A request whose claims nobody asked for is not.
//
// A door asks once its limits have let the request pass: they count it like
// all others without claims, so that guessing tokens is limited too.
func (i *Identity) Refusal() error { return i.err }
