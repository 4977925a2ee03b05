package client

import (
	"net/http"
	"slices"
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
	First *Claims
	// Others are those of the others that are good.
	Others []*Claims
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
