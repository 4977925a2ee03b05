// Package token asks callers over HTTP for a token.
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

// Header is the field for a token where Authorization belongs to somebody else,
// as with forward-auth, where it is the client's.
const Header = "X-Headgate-Token"

// Set are tokens of which a caller has to know one.
type Set struct{ hashes [][sha256.Size]byte }

// New returns the set of tokens, of which empty ones do not count.
func New(tokens ...string) *Set {
	s := new(Set)
	for _, t := range tokens {
		if t != "" {
			s.hashes = append(s.hashes, sha256.Sum256([]byte(t)))
		}
	}
	return s
}

// Empty reports whether there is no token, so that nobody has to be asked.
func (s *Set) Empty() bool { return len(s.hashes) == 0 }

// Knows reports whether r has one of the tokens: as a bearer token, as the
// password of any user, or in the field Header, which it takes out of r. Hashes
// are compared, all of them, so that the time it takes tells neither a token
// nor its length.
func (s *Set) Knows(r *http.Request) bool {
	known := s.KnowsByField(r)
	if text, ok := bearer(r.Header.Get("Authorization")); ok {
		return s.has(text) || known
	}
	_, password, _ := r.BasicAuth()
	return s.has(password) || known
}

// Admits is Knows, and notes a caller that said a wrong token in failures, which
// may be nil. One that said none, as browsers do first, is no failure.
func (s *Set) Admits(r *http.Request, failures *Failures) bool {
	given := r.Header.Get("Authorization") != "" || r.Header.Get(Header) != ""
	known := s.Knows(r)
	if given && !known {
		failures.Note(r.RemoteAddr)
	}
	return known
}

// KnowsValues is Knows for what is no HTTP request: authorization and field are
// the values of Authorization, which takes a bearer token, and of Header.
func (s *Set) KnowsValues(authorization, field string) bool {
	text, _ := bearer(authorization)
	byField := s.has(field)
	return s.has(text) || byField
}

// bearer returns the token of a value of Authorization, if it is of that scheme.
func bearer(authorization string) (text string, ok bool) {
	scheme, rest, found := strings.Cut(authorization, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// KnowsByField reports whether r has one of the tokens in the field Header,
// which it takes out of r. It is for where Authorization is somebody else's.
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

// Challenge tells in the header of an answer how a caller may say the token.
func Challenge(h http.Header) {
	// Basic is for browsers, which have no other way to ask.
	h.Set("WWW-Authenticate", `Basic realm="headgate", charset="UTF-8"`)
	h.Add("WWW-Authenticate", `Bearer realm="headgate"`)
}

// quiet is how long further failures are only counted after one was logged.
const quiet = time.Minute

// Failures counts wrong tokens and passwords at a door. The log hears of the
// first, and then at most once a minute, with how many there were.
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

// Total returns how many there were. It is 0 for nil.
func (f *Failures) Total() int64 {
	if f == nil {
		return 0
	}
	return f.total.Load()
}

// Note counts one from an address. It does nothing for nil.
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
