// Package jwt verifies the JSON Web Tokens of requests (RFC 7519), for rules that count
// by claims. golang-jwt checks signatures; this package finds the tokens, loads the keys
// and remembers verified tokens.
//
// The contract is in docs/rules/identity.md.
package jwt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/base/secretfile"
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
	invalid cache // tokens with an invalid signature, which anybody can make
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
		secret, _, err := secretfile.Read(o.SecretFile)
		if err != nil {
			return nil, err
		}
		v.secret = []byte(secret)
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

// Start fetches the keys and keeps them up to date in the background until Close. It waits
// for them for two seconds. Until they are fetched, tokens are invalid.
func (v *Verifier) Start(ctx context.Context) {
	if v.keys == nil {
		return
	}
	v.keys.mu.Lock()
	done := v.keys.start()
	v.keys.mu.Unlock()
	await(done, startPatience, ctx.Done())
	v.keys.tasks.Go(func() { v.keys.follow(v.options.Refresh) })
}

// Close stops the background tasks.
func (v *Verifier) Close() {
	if v.keys != nil {
		v.keys.close()
	}
}

// Verify implements client.Tokens.
func (v *Verifier) Verify(h http.Header, at time.Time, by client.Sender) (client.Verified, error) {
	var room [maxTokens + 1]string
	found, plain, tooMany := v.find(room[:0], h)
	if tooMany {
		return client.Verified{}, errTooMany // the upstream may use any of them
	}
	var out client.Verified
	left := checks{at: at, left: maxChecks, by: by}
	for i, token := range found {
		claims, err := v.verify(token, &left)
		switch {
		case left.short:
			return client.Verified{}, err // as above
		case err != nil && i == 0 && plain > 0 && v.options.Refuse:
			return client.Verified{Unchecked: left.saved}, err
		case err != nil: // counts as no token
		case i == 0 && plain > 0:
			out.First = claims
		default:
			out.Others = append(out.Others, claims)
		}
	}
	out.Unchecked = left.saved
	return out, nil
}

// verify returns the claims of a token, or why it is invalid.
func (v *Verifier) verify(token string, left *checks) (*client.Claims, error) {
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
	id, at := sha256.Sum256([]byte(token)), left.at
	if known := v.seen.get(id, set, at); known.claims != nil {
		return known.claims, nil
	}
	if known := v.invalid.get(id, set, at); known.err != nil {
		return nil, known.err
	}
	values, before := jwt.MapClaims{}, left.left
	if _, err := v.parser(at).ParseWithClaims(token, values, func(t *jwt.Token) (any, error) { return v.keyOf(t, left) }); err != nil {
		why := reason(err)
		if left.left < before && !left.short && !errors.Is(err, jwt.ErrTokenNotValidYet) {
			v.invalid.put(id, entry{err: why, set: set, until: at.Add(maxAge)})
		}
		return nil, why
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

// maxChecks is how many signatures are checked for a request: one of ES512 takes 3 ms.
// Tokens that are known from an earlier request need no check.
const maxChecks = 2

// checks are the signature checks that are left to a request.
type checks struct {
	at    time.Time
	left  int
	by    client.Sender // who sent it; nil once asked
	saved bool          // the request is refused anyway
	short bool          // more checks were needed, so a token is neither valid nor invalid
	// waited says that the request has waited for keys: it does so once, however many of
	// its tokens name unknown ones.
	waited bool
}

// spared reports whether the sender is refused anyway, so that nothing is done for it.
func (c *checks) spared() bool {
	if c.by != nil {
		c.saved, c.by = c.by.Refused(), nil
	}
	return c.saved
}

// keysToTry returns n keys that a signature may be checked with, or why it is not checked.
func (c *checks) keysToTry(found []key) (any, error) {
	switch {
	case c.spared():
		return nil, errUnchecked
	case len(found) > c.left:
		if c.short = true; len(found) > maxChecks {
			return nil, errManyKeys
		}
		return nil, errTooMany
	}
	if c.left -= len(found); len(found) == 1 {
		return found[0].public, nil
	}
	var all jwt.VerificationKeySet
	for _, k := range found {
		all.Keys = append(all.Keys, k.public)
	}
	return all, nil
}

// keyOf returns the key, or the keys, that the signature of t is checked with.
func (v *Verifier) keyOf(t *jwt.Token, left *checks) (any, error) {
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
		return left.keysToTry([]key{{public: v.secret}})
	}
	if v.keys == nil {
		return nil, errNoKeys
	}
	id, _ := t.Header["kid"].(string)
	found := v.keys.find(id, algorithm)
	if len(found) == 0 && !left.waited {
		if left.spared() {
			return nil, errUnchecked
		}
		left.waited = true
		v.keys.hasten(left.at)
		found = v.keys.find(id, algorithm)
	}
	if len(found) == 0 {
		return nil, errNoKeys
	}
	return left.keysToTry(found)
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
		{errTooMany, errTooMany.Error()},
		{errManyKeys, errManyKeys.Error()},
		{errUnchecked, errUnchecked.Error()},
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

// cache remembers tokens whose signature was checked. Its zero value is empty.
//
// It has two halves. When the young half is full it becomes the old one, and entries of
// the previous old half that were not used again are dropped. Valid and invalid tokens have
// a cache each, so nobody can fill that of the valid ones with others.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]entry
	bytes      int // of young
}

// entry is a token: its claims, or why it is invalid.
type entry struct {
	claims *client.Claims
	err    error
	set    *keySet // that it was checked with
	until  time.Time
	size   int
}

// get returns the entry of a token, or the zero entry if it was not checked with the keys
// of set, or has expired at the given time.
func (c *cache) get(id [sha256.Size]byte, set *keySet, at time.Time) entry {
	c.mu.RLock()
	e, young := c.young[id]
	if !young {
		e = c.old[id]
	}
	c.mu.RUnlock()
	if e.claims == nil && e.err == nil || e.set != set || !at.Before(e.until) {
		return entry{}
	}
	if !young {
		c.put(id, e)
	}
	return e
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

var (
	errTooMany   = errors.New("the request has too many tokens")
	errManyKeys  = errors.New("the token does not name its key (kid), and more than two fit")
	errUnchecked = errors.New("the token was not checked, since the client is over a limit")
)

// find appends to dst the different tokens of a request: those of each line of the header
// field, then those of the configured cookie. plain
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
	dst = v.inCookies(dst, h)
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

// inCookies appends to dst the tokens in cookies.
func (v *Verifier) inCookies(dst []string, h http.Header) []string {
	if v.options.Cookie == "" {
		return dst
	}
	var room [maxTokens]string
	for _, sent := range client.AppendCookies(room[:0], h, v.options.Cookie) {
		token, _ := spelling.InCookie.Read(sent)
		dst = addToken(dst, token)
	}
	return dst
}

// addToken appends a token, unless it is there or there are too many.
func addToken(dst []string, token string) []string {
	if token == "" || len(dst) > maxTokens || slices.Contains(dst, token) {
		return dst
	}
	return append(dst, token)
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
