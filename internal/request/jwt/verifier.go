// Package jwt verifies the JSON Web Tokens of requests (RFC 7519), for rules that count
// by claims. golang-jwt checks signatures; this package finds the tokens, loads the keys
// and remembers verified tokens.
//
// The contract is in docs/identity.md.
package jwt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/spelling"
)

// maxToken is the length of the longest accepted token, in bytes.
const maxToken = 16 << 10

// minSecret is the length of the shortest accepted secret, in bytes.
const minSecret = 32

// Options say which tokens are valid, and where requests have them.
type Options struct {
	Keys       string   // a file (JWKS or PEM) or the URL of a JWKS; empty for none
	SecretFile string   // file with the secret of the HS algorithms; empty for none
	Issuer     string   // required iss; empty for any
	Audience   []string // accepted values of aud; empty for any
	// Algorithms are the accepted algorithms. If empty, they are all that public keys
	// support if there are Keys, and HS256 if there is a secret.
	Algorithms []string
	// Header is the header field with the token, Cookie the cookie. Either may be empty.
	// If a request has both, the header field comes first.
	Header, Cookie string
	Leeway         time.Duration     // allowed clock difference
	Refresh        time.Duration     // how often keys are read again; 0 means 10 minutes
	Refuse         bool              // makes Verify return an error for an invalid token
	Transport      http.RoundTripper // fetches keys; nil means http.DefaultTransport
	Logger         *slog.Logger      // logs changes of the keys; required
}

// Verifier verifies tokens. It implements client.Tokens.
type Verifier struct {
	options Options
	header  string // canonical
	methods []string
	secret  []byte
	keys    *source // nil if there is only a secret
	seen    cache
}

var _ client.Tokens = (*Verifier)(nil)

// New returns a Verifier. Keys in a file must exist and be valid; Start fetches those of
// a URL.
func New(o Options) (*Verifier, error) {
	v := &Verifier{options: o, header: http.CanonicalHeaderKey(o.Header), methods: o.Algorithms}
	if len(v.methods) == 0 {
		if o.Keys != "" {
			v.methods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
		}
		if o.SecretFile != "" {
			v.methods = append(v.methods, "HS256")
		}
	}
	if o.SecretFile != "" {
		secret, err := os.ReadFile(o.SecretFile)
		if err != nil {
			return nil, err
		}
		v.secret = bytes.TrimRight(secret, "\r\n")
		if len(v.secret) < minSecret {
			return nil, fmt.Errorf("the secret in %s is shorter than %d bytes", o.SecretFile, minSecret)
		}
	}
	if o.Keys != "" {
		if v.options.Refresh <= 0 {
			v.options.Refresh = 10 * time.Minute
		}
		v.keys = newSource(o.Keys, o.Transport, o.Logger)
		if !v.keys.remote() {
			if err := v.keys.load(); err != nil {
				return nil, fmt.Errorf("keys in %s: %w", o.Keys, err)
			}
		}
	}
	return v, nil
}

// Start fetches the keys and keeps them up to date in the background until Close. If they
// cannot be fetched, tokens are invalid until they can.
func (v *Verifier) Start(ctx context.Context) {
	if v.keys == nil {
		return
	}
	v.keys.mu.Lock()
	done := v.keys.start()
	v.keys.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	v.keys.tasks.Go(func() { v.keys.follow(v.options.Refresh) })
}

// Close stops the background tasks.
func (v *Verifier) Close() {
	if v.keys != nil {
		v.keys.close()
	}
}

// Verify implements client.Tokens.
func (v *Verifier) Verify(h http.Header, at time.Time) (client.Verified, error) {
	var room [maxTokens + 1]string
	found, plain, tooMany := v.find(room[:0], h)
	if tooMany {
		return client.Verified{}, errTooMany // the upstream may use any of them
	}
	var out client.Verified
	for i, token := range found {
		claims, err := v.verify(token, at)
		switch {
		case err != nil && i == 0 && plain > 0 && v.options.Refuse:
			return client.Verified{}, err
		case err != nil: // counts as no token
		case i == 0 && plain > 0:
			out.First = claims
		default:
			out.Others = append(out.Others, claims)
		}
	}
	return out, nil
}

// verify returns the claims of a token, or why it is invalid.
func (v *Verifier) verify(token string, at time.Time) (*client.Claims, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	if strings.Count(token, ".") != 2 {
		return nil, errors.New("the token is not a signed JWT")
	}
	var set *keySet
	if v.keys != nil {
		set = v.keys.set.Load()
	}
	id := sha256.Sum256([]byte(token))
	if claims := v.seen.get(id, set, at); claims != nil {
		return claims, nil
	}
	values := jwt.MapClaims{}
	if _, err := v.parser(at).ParseWithClaims(token, values, func(t *jwt.Token) (any, error) { return v.keyOf(t, at) }); err != nil {
		return nil, reason(err)
	}
	claims := client.NewClaims(values)
	until := at.Add(maxAge)
	if expires, err := values.GetExpirationTime(); err == nil && expires != nil {
		if last := expires.Add(v.options.Leeway); last.Before(until) {
			until = last
		}
	}
	v.seen.put(id, entry{claims: claims, set: set, until: until, size: len(token)})
	return claims, nil
}

func (v *Verifier) parser(at time.Time) *jwt.Parser {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(v.methods), jwt.WithJSONNumber(), jwt.WithLeeway(v.options.Leeway),
		jwt.WithTimeFunc(func() time.Time { return at }),
	}
	if v.options.Issuer != "" {
		options = append(options, jwt.WithIssuer(v.options.Issuer))
	}
	if len(v.options.Audience) > 0 {
		options = append(options, jwt.WithAudience(v.options.Audience...))
	}
	return jwt.NewParser(options...)
}

// keyOf returns the key that the signature of t is checked with.
func (v *Verifier) keyOf(t *jwt.Token, at time.Time) (any, error) {
	if _, there := t.Header["crit"]; there {
		return nil, errors.New("the token requires an unsupported extension") // RFC 7515, 4.1.11
	}
	algorithm := t.Method.Alg()
	if !slices.Contains(v.methods, algorithm) {
		return nil, errNoKeys
	}
	if strings.HasPrefix(algorithm, "HS") {
		if v.secret == nil {
			return nil, errNoKeys
		}
		return v.secret, nil
	}
	if v.keys == nil {
		return nil, errNoKeys
	}
	id, _ := t.Header["kid"].(string)
	found := v.keys.find(id, algorithm)
	if len(found) == 0 {
		v.keys.hasten(at)
		found = v.keys.find(id, algorithm)
	}
	switch len(found) {
	case 0:
		return nil, errNoKeys
	case 1:
		return found[0].public, nil
	}
	var all jwt.VerificationKeySet
	for _, k := range found {
		all.Keys = append(all.Keys, k.public)
	}
	return all, nil
}

// reason returns the error that the client sees for an invalid token.
func reason(err error) error {
	for _, known := range []struct {
		is   error
		text string
	}{
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenInvalidIssuer, "the token is from another issuer"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
		{jwt.ErrTokenMalformed, "the token is malformed"},
		{errNoKeys, "the token is signed with an unknown key"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks a required claim"},
		{jwt.ErrTokenUnverifiable, "the token cannot be verified"},
	} {
		if errors.Is(err, known.is) {
			return errors.New(known.text)
		}
	}
	return errors.New("the token's signature is invalid")
}

const (
	maxAge = 5 * time.Minute // how long a verified token is remembered
	// maxEntries and maxBytes limit each of the two halves of the cache. maxBytes is the
	// total length of the tokens.
	maxEntries = 4096
	maxBytes   = 4 << 20
)

// cache remembers verified tokens. Its zero value is empty.
//
// It has two halves. When the young half is full it becomes the old one, and entries of
// the previous old half that were not used again are dropped. Only tokens with a valid
// signature are added, so clients cannot fill it with others.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]entry
	bytes      int // of young
}

// entry is a verified token.
type entry struct {
	claims *client.Claims
	set    *keySet // that verified it
	until  time.Time
	size   int
}

// get returns the claims of a token, or nil if it was not verified with the keys of set,
// or has expired at the given time.
func (c *cache) get(id [sha256.Size]byte, set *keySet, at time.Time) *client.Claims {
	c.mu.RLock()
	e, young := c.young[id]
	if !young {
		e = c.old[id]
	}
	c.mu.RUnlock()
	if e.claims == nil || e.set != set || !at.Before(e.until) {
		return nil
	}
	if !young {
		c.put(id, e)
	}
	return e.claims
}

func (c *cache) put(id [sha256.Size]byte, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= maxEntries || c.bytes+e.size > maxBytes {
		c.young, c.old, c.bytes = make(map[[sha256.Size]byte]entry), c.young, 0
	}
	if _, there := c.young[id]; !there {
		c.bytes += e.size
	}
	c.young[id] = e
}

// maxTokens is how many tokens of a request are verified.
const maxTokens = 8

var errTooMany = errors.New("the request has too many tokens")

// find appends to dst the different tokens of a request: those of each line of the header
// field, then those of each cookie that some server takes for the configured one. plain
// is how many these are. After them come tokens that only lenient servers find in the
// header field. tooMany is set if there are, or may be, more than maxTokens.
//
// The upstream uses one of them, and only it knows which: the first, the last, or the
// first valid one, from the header or the cookie.
func (v *Verifier) find(dst []string, h http.Header) (found []string, plain int, tooMany bool) {
	if v.header != "" {
		for _, value := range h[v.header] {
			if token, ok := v.inHeader(value); ok {
				dst = addToken(dst, token)
			}
		}
	}
	dst, tooMany = v.inCookies(dst, h)
	plain = len(dst)
	if v.header != "" {
		for _, value := range h[v.header] {
			var room [maxTokens]string
			tokens, all := spelling.AppendTokens(room[:0], value)
			for _, token := range tokens {
				dst = addToken(dst, token)
			}
			if !all {
				tooMany = true
			}
		}
	}
	return dst, plain, tooMany || len(dst) > maxTokens
}

// inCookies appends to dst the tokens in cookies. It reports whether there may be more.
func (v *Verifier) inCookies(dst []string, h http.Header) (found []string, more bool) {
	if v.options.Cookie == "" || len(h["Cookie"]) == 0 {
		return dst, false
	}
	var values client.Values
	values.Cookie(h, v.options.Cookie)
	for _, text := range values.All {
		read := spelling.InCookie.Read(text)
		for _, token := range read.AppendOthers([]string{read.Text}) {
			dst = addToken(dst, token)
		}
	}
	return dst, len(values.All) > client.MaxValues
}

// addToken appends a token and, if its signature can be written in other ways, the tokens
// that servers read in it.
func addToken(dst []string, token string) []string {
	const scheme = "Bearer "
	read, one := spelling.InCredentials.Read(scheme+token), []string{scheme + token}
	if read.Text != scheme+token {
		one = read.AppendOthers(append(one, read.Text))
	}
	for _, text := range one {
		text = strings.TrimPrefix(text, scheme)
		if text != "" && len(dst) <= maxTokens && !slices.Contains(dst, text) {
			dst = append(dst, text)
		}
	}
	return dst
}

// inHeader returns the token in a header field: after "Bearer", which may only be omitted
// in fields other than Authorization.
func (v *Verifier) inHeader(value string) (string, bool) {
	value = strings.Trim(value, " \t")
	end := strings.IndexAny(value, " \t")
	if end >= 0 && strings.EqualFold(value[:end], "Bearer") {
		return strings.TrimLeft(value[end:], " \t"), true
	}
	if v.header == "Authorization" || end >= 0 {
		return "", false // another scheme
	}
	return value, value != ""
}
