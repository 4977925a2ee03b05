package queue

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"sync"
	"time"
)

// SecretSize is the length of a store's secret, in bytes.
const SecretSize = 32

const (
	idRandom  = 10          // random bytes of an id
	idProof   = 5           // bytes that follow, and prove that it was issued
	idLength  = 24          // of both as text
	secretAge = time.Minute // after which a secret is read again, in case the store lost it
)

// secret is the store's secret, once it is known.
type secret struct {
	mu    sync.Mutex
	value []byte
	read  time.Time
}

// of returns the secret. It asks the store if that was not done in the last secretAge. Callers
// do not wait for one another, only each for the store as long as its ctx allows.
func (s *secret) of(ctx context.Context, store Store, now time.Time) ([]byte, error) {
	s.mu.Lock()
	value, age := s.value, now.Sub(s.read)
	s.mu.Unlock()
	if value != nil && age >= 0 && age < secretAge {
		return value, nil
	}
	value, err := store.Secret(ctx)
	if err == nil {
		s.mu.Lock()
		s.value, s.read = value, now
		s.mu.Unlock()
	}
	return value, err
}

func encode(b []byte) string {
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b)
}

// proofOf returns what proves that the random bytes of an id were issued with a secret.
func proofOf(secret, random []byte) []byte {
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write(random) // never fails
	return h.Sum(nil)[:idProof]
}

// NewID returns an id for an entry. It cannot be guessed, since anyone who knows it may
// read the entry's status, and it proves that it was issued, so a made-up one costs the
// store nothing.
func (q *Queue) NewID(ctx context.Context) (string, error) {
	key, err := q.secret.of(ctx, q.options.Store, q.options.Clock())
	if err != nil {
		return "", err
	}
	b := make([]byte, idRandom, idRandom+idProof)
	_, _ = rand.Read(b) // never fails
	return encode(append(b, proofOf(key, b)...)), nil
}

// look returns the entry of an id that was issued; see [Entries.Look]. A store may have put
// something in front of the id.
func (q *Queue) look(ctx context.Context, id string) (*Item, error) {
	if len(id) < idLength {
		return nil, ErrNotFound
	}
	b, err := base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(id[len(id)-idLength:])
	if err != nil {
		return nil, ErrNotFound
	}
	key, err := q.secret.of(ctx, q.options.Store, q.options.Clock())
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(proofOf(key, b[:idRandom]), b[idRandom:]) {
		return nil, ErrNotFound
	}
	return q.Look(ctx, id)
}
