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
	"sync"
)

// ErrBadToken says that a lease or a reservation from outside is none that an
// Engine with the same secret has given.
var ErrBadToken = errors.New("unknown or damaged token")

// Secret returns what tokens are sealed with: at least 16 bytes that all nodes
// have in common, and nobody else.
type Secret func(ctx context.Context) ([]byte, error)

// WithSecret lets the tokens of one Engine be good at all others that have the
// same secret. It is asked for with the first token, and until it has been
// known once. Without it tokens are good at this Engine only.
func WithSecret(s Secret) Option { return func(e *Engine) { e.seal.source = s } }

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 16

// seal encrypts and authenticates tokens: who holds one can neither read the
// key that it counts by nor make another of it.
type seal struct {
	source Secret // nil: random

	mu   sync.Mutex
	aead cipher.AEAD
}

func (s *seal) cipher(ctx context.Context) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, nil
	}
	secret := make([]byte, sha256.Size)
	if s.source == nil {
		_, _ = rand.Read(secret) // never fails
	} else {
		var err error
		if secret, err = s.source(ctx); err != nil {
			return nil, unavailable(err)
		}
		if len(secret) < minSecret {
			return nil, fmt.Errorf("the secret for tokens has %d bytes, it must have at least %d", len(secret), minSecret)
		}
	}
	key := sha256.Sum256(append([]byte("headgate tokens\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	s.aead, err = cipher.NewGCMWithRandomNonce(block)
	return s.aead, err
}

// close makes a token of plain. Tokens of different kinds are not mistaken for
// each other.
func (s *seal) close(ctx context.Context, kind tokenKind, plain []byte) (string, error) {
	aead, err := s.cipher(ctx)
	if err != nil {
		return "", err
	}
	sealed := aead.Seal(nil, nil, plain, []byte{byte(kind)}) //nolint:gosec // it draws the nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// open returns what a token holds.
func (s *seal) open(ctx context.Context, kind tokenKind, token string) ([]byte, error) {
	aead, err := s.cipher(ctx)
	if err != nil {
		return nil, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, ErrBadToken
	}
	plain, err := aead.Open(nil, nil, sealed, []byte{byte(kind)})
	if err != nil {
		return nil, ErrBadToken
	}
	return plain, nil
}

// tokenKind is what a token is for, and its version.
type tokenKind byte

const (
	leaseToken       tokenKind = 'l'
	reservationToken tokenKind = 'r'
)

// tokenReader reads what a token holds. What is missing reads as zero, and bad
// says so.
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
