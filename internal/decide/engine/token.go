package engine

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
)

// ErrBadToken means that a lease or reservation token was not issued by an Engine with
// the same secret.
var ErrBadToken = errors.New("unknown or damaged token")

// Secret returns the secret that tokens are sealed with: at least 16 bytes, shared by
// all nodes.
type Secret func(ctx context.Context) ([]byte, error)

// Secrets provides several secrets: new tokens are sealed with the first, and tokens
// sealed with any of them are valid.
type Secrets interface {
	// Known returns the known secrets, and fetches them if there are none.
	Known(ctx context.Context) ([][]byte, error)
	// All fetches the currently valid secrets. With an error, it returns the known
	// ones. It must limit how often it calls a server.
	All(ctx context.Context) ([][]byte, error)
}

// WithSecret makes the tokens of an Engine valid in all others with the same secret.
// The secret is fetched for the first token, until it is known. Without it, tokens are
// valid only in this Engine.
func WithSecret(s Secret) Option {
	return func(e *Engine) {
		e.seal.source = func(ctx context.Context) ([][]byte, error) {
			secret, err := s(ctx)
			return [][]byte{secret}, err
		}
		e.seal.others = nil
	}
}

// WithSecrets is [WithSecret] for nodes that may have started with different secrets.
// They are fetched again for every token that no known secret opens.
func WithSecrets(s Secrets) Option {
	return func(e *Engine) { e.seal.source, e.seal.others = s.Known, s.All }
}

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 16

// secrets is a function that returns secrets.
type secrets func(ctx context.Context) ([][]byte, error)

// seal encrypts and authenticates tokens, so that clients can neither read the key in
// one nor forge another.
type seal struct {
	source secrets // nil for a random secret
	others secrets // also fetches secrets that source did not know; may be nil

	mu    sync.Mutex
	aeads []cipher.AEAD // for the secrets, in order; the first never changes
	known map[string]bool
	own   []cipher.AEAD // see owned; nil until needed
}

// ciphers returns the ciphers of the known secrets; if there are none, it fetches some.
func (s *seal) ciphers(ctx context.Context) ([]cipher.AEAD, error) {
	s.mu.Lock()
	var err error
	if len(s.aeads) == 0 && s.source == nil {
		err = s.add(randomSecret())
	}
	known := s.aeads
	s.mu.Unlock()
	if len(known) > 0 || err != nil {
		return known, err
	}
	return s.fetch(ctx)
}

func randomSecret() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// errNoSecret is returned if a source has no secret.
var errNoSecret = errors.New("no secret for lease and reservation tokens")

// fetch fetches the secrets.
func (s *seal) fetch(ctx context.Context) ([]cipher.AEAD, error) {
	secrets, err := s.source(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.addAll(secrets); err != nil {
		return nil, err
	}
	if len(s.aeads) == 0 {
		return nil, errNoSecret
	}
	return s.aeads, nil
}

// more returns the ciphers of secrets that are not among the first n. With an error
// there may be others that are not known here.
func (s *seal) more(ctx context.Context, n int) ([]cipher.AEAD, error) {
	if s.others == nil {
		return nil, nil
	}
	secrets, err := s.others(ctx)
	if err != nil {
		err = unavailable(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(err, s.addAll(secrets))
	return s.aeads[n:], err
}

// addAll requires s.mu to be held.
func (s *seal) addAll(secrets [][]byte) error {
	for _, secret := range secrets {
		if err := s.add(secret); err != nil {
			return err
		}
	}
	return nil
}

// add requires s.mu to be held.
func (s *seal) add(secret []byte) error {
	if s.known[string(secret)] {
		return nil
	}
	if len(secret) < minSecret {
		return fmt.Errorf("the secret for lease and reservation tokens is %d bytes long, want at least %d", len(secret), minSecret)
	}
	aead, err := newCipher(secret)
	if err != nil {
		return err
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.aeads, s.known[string(secret)] = append(s.aeads, aead), true
	return nil
}

func newCipher(secret []byte) (cipher.AEAD, error) {
	key := sha256.Sum256(append([]byte("headgate tokens\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// owned returns the ciphers for tokens about this process's memory, which no other
// process can reach. If no secret is known yet, the process uses its own.
func (s *seal) owned(context.Context) ([]cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.aeads) > 0 {
		return s.aeads, nil
	}
	if s.own == nil {
		aead, err := newCipher(randomSecret())
		if err != nil {
			return nil, err
		}
		s.own = []cipher.AEAD{aead}
	}
	return s.own, nil
}

// close makes a token of plain, which is about data in the given store. Tokens of
// different kinds cannot be confused.
func (s *seal) close(ctx context.Context, kind tokenKind, plain []byte, in origin) (string, error) {
	find := s.ciphers
	if in == fromFallback {
		find = s.owned
	}
	aeads, err := find(ctx)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aeads[0].Seal(nil, nil, plain, []byte{byte(kind)})), nil //nolint:gosec // it draws the nonce itself
}

// open returns the content of a token.
func (s *seal) open(ctx context.Context, kind tokenKind, token string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, ErrBadToken
	}
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	if plain, ok := openAny(own, kind, sealed); ok {
		return plain, nil
	}
	aeads, err := s.ciphers(ctx)
	if err != nil {
		return nil, err
	}
	if plain, ok := openAny(aeads, kind, sealed); ok {
		return plain, nil
	}
	aeads, err = s.more(ctx, len(aeads))
	if plain, ok := openAny(aeads, kind, sealed); ok {
		return plain, nil
	}
	if err == nil {
		err = ErrBadToken
	}
	return nil, err
}

func openAny(aeads []cipher.AEAD, kind tokenKind, sealed []byte) ([]byte, bool) {
	for _, aead := range aeads {
		if plain, err := aead.Open(nil, nil, sealed, []byte{byte(kind)}); err == nil {
			return plain, true
		}
	}
	return nil, false
}

// tokenKind is the purpose of a token and its version.
type tokenKind byte

const (
	leaseToken       tokenKind = 'l'
	reservationToken tokenKind = 's' // 'r' was a version with a single record
	reportToken      tokenKind = 'a'
)

// tokenReader reads the content of a token. Missing values read as zero and set bad.
type tokenReader struct {
	in  []byte
	bad bool
}

func (r *tokenReader) number() int64 {
	n, size := binary.Varint(r.in)
	if size <= 0 {
		r.bad, r.in = true, nil
		return 0
	}
	r.in = r.in[size:]
	return n
}

func (r *tokenReader) text() string {
	n := r.number()
	if n < 0 || n > int64(len(r.in)) {
		r.bad, r.in = true, nil
		return ""
	}
	text := string(r.in[:n])
	r.in = r.in[n:]
	return text
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}

// Ending is the outcome of releasing, renewing, committing or cancelling a token.
type Ending uint8

// The values of Ending.
const (
	Done    Ending = iota // the call had an effect
	Gone                  // it was done before or has expired; nothing was changed
	Expired               // the reservation has expired; what it took stays charged
	Settled               // the reservation was already committed or cancelled; nothing was changed
)

// String returns the word used in answers, such as settled.
func (e Ending) String() string { return enum.Name(e, "ending", "done", "gone", "expired", "settled") }

// LeaseToken returns a token for the slots that v has taken, with which an external
// caller reports the end of the request. It is empty if there are none. Call it before
// Release. An error means that no secret is available; the leases then expire.
func (e *Engine) LeaseToken(ctx context.Context, v *Verdict) (string, error) {
	if !v.Allowed {
		return "", nil
	}
	leases := v.Leases(nil)
	if len(leases) == 0 {
		return "", nil
	}
	return e.closeLeases(ctx, leases)
}

// closeLeases returns a token for leases.
func (e *Engine) closeLeases(ctx context.Context, leases []Lease) (string, error) {
	shared := slices.ContainsFunc(leases, func(l Lease) bool { return !l.Local })
	return e.seal.close(ctx, leaseToken, e.appendLeases(nil, leases), origin(!shared))
}

// warnEvery is how often a missing token is logged.
const warnEvery = time.Minute

// WarnsOfToken reports whether to log a warning that v got no token. As this may affect
// every request, it is true at most once a minute for all doors.
func (e *Engine) WarnsOfToken(v *Verdict) bool {
	last := e.warned.Load()
	return (last == 0 || elapsed(last, v.at) >= warnEvery) && e.warned.CompareAndSwap(last, max(v.at, 1))
}

// appendLeases encodes leases; local ones are marked with this process's identity.
func (e *Engine) appendLeases(dst []byte, leases []Lease) []byte {
	dst = binary.AppendVarint(dst, int64(len(leases)))
	for i := range leases {
		l := &leases[i]
		dst = appendText(appendText(appendText(dst, l.Rule.Domain), l.Rule.Name), l.Key)
		dst = binary.AppendVarint(binary.AppendVarint(dst, l.Name), l.Count)
		local := int64(0)
		if l.Local {
			local = e.home
		}
		dst = binary.AppendVarint(dst, local)
	}
	return dst
}

// leases reads the leases whose rules still exist. If a rule is gone or no longer
// limits concurrency, its leases are skipped, as are those in the memory of another
// process.
func (e *Engine) leases(r *tokenReader, at int64) []Lease {
	rs, x := e.Rules(), e.exceptions.Load()
	var list []Lease
	for n := r.number(); n > 0 && !r.bad; n-- {
		domain, name := r.text(), r.text()
		l := Lease{Key: r.text(), Name: r.number(), Count: r.number()}
		home := r.number()
		l.Local = home != 0
		l.Rule = rs.Rule(domain, name)
		if r.bad || l.Rule == nil || !l.Rule.Concurrent() || l.Count < 0 || l.Local && home != e.home {
			continue
		}
		_, l.Rule = x.of(l.Rule, l.Key, x.orNow(at))
		list = append(list, l)
	}
	return list
}

// orNow is at for an x that may be nil.
func (x *Exceptions) orNow(at int64) int64 {
	if x == nil {
		return at
	}
	return x.at(at)
}

// ReleaseToken releases the leases of a token. It returns Done, or Gone if they were
// already released, have ended, or their rules no longer exist. The error is
// ErrBadToken, or wraps headgate.ErrUnavailable.
func (e *Engine) ReleaseToken(ctx context.Context, token string, at int64) (Ending, error) {
	leases, err := e.openLeases(ctx, token, at)
	if err != nil {
		return Gone, err
	}
	ended, err := e.ReleaseLeases(ctx, leases, at)
	if ended == 0 {
		return Gone, err
	}
	return Done, err
}

// RenewToken makes the leases of a token last their full time from now, and returns a
// new token for them; the old one is then Gone. Gone means that at least one of the
// slots was already free.
func (e *Engine) RenewToken(ctx context.Context, token string, at int64) (renewed string, ending Ending, err error) {
	leases, err := e.openLeases(ctx, token, at)
	if err != nil {
		return "", Gone, err
	}
	n, err := e.RenewLeases(ctx, leases, at)
	if n == 0 {
		return "", Gone, err
	}
	// Even after an error, or if some had ended: the others have new names.
	renewed, sealErr := e.closeLeases(ctx, leases)
	if n < len(leases) {
		ending = Gone
	}
	if err == nil {
		err = sealErr
	}
	return renewed, ending, err
}

func (e *Engine) openLeases(ctx context.Context, token string, at int64) ([]Lease, error) {
	plain, err := e.seal.open(ctx, leaseToken, token)
	if err != nil {
		return nil, err
	}
	r := &tokenReader{in: plain}
	leases := e.leases(r, at)
	if r.bad {
		return nil, ErrBadToken
	}
	return leases, nil
}
