// Package jwt verifies the JSON Web Tokens that requests carry (RFC 7519), for
// the claims that rules count by. Signatures are checked by golang-jwt; where
// tokens and keys come from, and for how long they are believed, is here.
//
// The contract is in docs/identity.md.
package jwt
