// Package token authenticates HTTP callers by a token.
package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Header is the header field for a token where Authorization is not that of the caller:
// in forward-auth it is that of the client.
const Header = "X-Headgate-Token"

// Set is a set of accepted tokens.
type Set struct{ hashes [][sha256.Size]byte }

// New returns the set of tokens. Empty ones are ignored.
func New(tokens ...string) *Set {
	s := new(Set)
	for _, t := range tokens {
		if t != "" {
			s.hashes = append(s.hashes, sha256.Sum256([]byte(t)))
		}
	}
	return s
}

// Empty reports whether the set is empty, so callers are not authenticated.
func (s *Set) Empty() bool { return len(s.hashes) == 0 }

// Knows reports whether r has one of the tokens: as a bearer token, as the password of
// any user, or in the field Header, which it removes from r. All hashes are compared, so
// the time taken reveals neither a token nor its length.
func (s *Set) Knows(r *http.Request) bool {
	known := s.KnowsByField(r)
	if text, ok := bearer(r.Header.Get("Authorization")); ok {
		return s.has(text) || known
	}
	_, password, _ := r.BasicAuth()
	return s.has(password) || known
}

// Admits is Knows, and counts a wrong token in failures, which may be nil. A request
// without any token, as browsers send first, is not counted.
func (s *Set) Admits(r *http.Request, failures *Failures) bool {
	given := r.Header.Get("Authorization") != "" || r.Header.Get(Header) != ""
	known := s.Knows(r)
	if given && !known {
		failures.Note(r.RemoteAddr)
	}
	return known
}

// KnowsValues is Knows for callers not over HTTP. authorization is the value of
// Authorization with a bearer token, field that of Header.
func (s *Set) KnowsValues(authorization, field string) bool {
	text, _ := bearer(authorization)
	byField := s.has(field)
	return s.has(text) || byField
}

// bearer returns the bearer token in a value of Authorization, if it has one.
func bearer(authorization string) (text string, ok bool) {
	scheme, rest, found := strings.Cut(authorization, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// KnowsByField reports whether r has one of the tokens in the field Header, which it
// removes from r.
func (s *Set) KnowsByField(r *http.Request) bool {
	token := r.Header.Get(Header)
	r.Header.Del(Header)
	return s.has(token)
}

func (s *Set) has(token string) bool {
	hash, same := sha256.Sum256([]byte(token)), 0
	for i := range s.hashes {
		same |= subtle.ConstantTimeCompare(hash[:], s.hashes[i][:])
	}
	return same == 1 && token != ""
}

// Challenge sets the header fields of an answer that ask for a token.
func Challenge(h http.Header) {
	// Browsers only support Basic.
	h.Set("WWW-Authenticate", `Basic realm="headgate", charset="UTF-8"`)
	h.Add("WWW-Authenticate", `Bearer realm="headgate"`)
}

// quiet is the least time between log entries about failures.
const quiet = time.Minute

// Failures counts wrong tokens and passwords at a door. It logs the first one, and then
// at most one a minute, with their number.
type Failures struct {
	log   *slog.Logger
	clock func() time.Time
	total atomic.Int64

	mu     sync.Mutex
	logged time.Time
	since  int64 // total when it was logged
}

// NewFailures returns a counter that logs to log.
func NewFailures(log *slog.Logger, clock func() time.Time) *Failures {
	return &Failures{log: log, clock: clock}
}

// Total returns the number of failures. It is 0 for nil.
func (f *Failures) Total() int64 {
	if f == nil {
		return 0
	}
	return f.total.Load()
}

// Note counts a failure of a client at an address. It does nothing for nil.
func (f *Failures) Note(remote string) {
	if f == nil {
		return
	}
	total, now := f.total.Add(1), f.clock()
	f.mu.Lock()
	say := f.logged.IsZero() || now.Sub(f.logged) >= quiet || now.Before(f.logged)
	before := f.since
	if say {
		f.logged, f.since = now, total
	}
	f.mu.Unlock()
	if say {
		f.log.Warn("wrong token or password", "remote", remote, "count", total-before)
	}
}
