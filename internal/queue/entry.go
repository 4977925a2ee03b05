// Package queue keeps requests that were over a limit and sends them later, as
// fast as the limit allows.
//
// A [Queue] accepts an [Entry] once its [Store] has it where a crash does not
// reach it, and delivers it at least once. Entries of one key are sent in the
// order in which they were accepted; those of different keys do not wait for
// each other. What the backend does not take is tried again, and put aside as a
// dead letter when its policy says so.
//
// The contract is in docs/queue.md.
package queue

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/enum"
)

// Entry is a request that was accepted. It never changes.
type Entry struct {
	ID           string // names it to its sender and to operators
	Domain, Rule string // those of the limit that it was over
	// Scope and Key say what the limit counts by: entries that have both in
	// common are kept in order.
	Scope, Key string
	Claims     []Claim // all limits that have to let it through
	// Method, URI (path and query) and Host are those of the request. Header has
	// no hop-by-hop fields.
	Method, URI, Host string
	Header            http.Header
	Body              []byte
	IdempotencyKey    string    // the sender's own, if it gave one
	Accepted, Expires time.Time // Accepted is when it came, Expires when it becomes a dead letter
}

// Claim is what an entry takes of one limit.
type Claim struct {
	Rule, Key string
	Cost      int64
}

// NewID returns a name for an entry. Who knows it may ask what became of the
// entry, so it cannot be guessed.
func NewID() string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// Size is how many bytes the entry counts as.
func (e *Entry) Size() int64 {
	n := len(e.Method) + len(e.URI) + len(e.Host) + len(e.Body) + len(e.Key) + len(e.IdempotencyKey)
	for name, values := range e.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return int64(n)
}

// Idempotency returns what entries with the same idempotency key have in
// common, and false if the entry has none. Keys of other senders, as far as the
// limit or a header field that may name the sender tells them apart, are other keys:
// nobody gets another's answer, or has a request swallowed by another's.
func (e *Entry) Idempotency() (hash [32]byte, ok bool) {
	if e.IdempotencyKey == "" {
		return hash, false
	}
	parts := []string{e.Scope, e.Key, e.IdempotencyKey}
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		if mayName(name) {
			parts = append(append(parts, name), e.Header[name]...)
		}
	}
	return digest(parts...), true
}

// mayName reports whether a header field may name the sender: others may change from
// one try to the next. Authorization and Cookie are left to Fingerprint, since to
// repeat a key under another one is a mistake.
func mayName(field string) bool {
	field = strings.ToLower(field)
	switch field {
	case "authorization", "cookie", "idempotency-key", "accept", "range", "date", "user-agent", "cache-control", "pragma",
		"connection", "keep-alive", "te", "dnt", "priority", "origin", "referer", "from", "upgrade-insecure-requests",
		"save-data", "forwarded", "via", "x-real-ip", "x-request-id", "x-request-start", "x-correlation-id", "request-id",
		"correlation-id", "traceparent", "tracestate", "baggage", "b3", "uber-trace-id", "sentry-trace", "x-amzn-trace-id",
		"x-cloud-trace-context":
		return false
	}
	return !slices.ContainsFunc([]string{
		"accept-", "content-", "if-", "sec-", "x-forwarded-", "x-b3-", "uberctx-", "x-datadog-", "x-retry-", "retry-", "x-attempt-",
	}, func(begin string) bool { return strings.HasPrefix(field, begin) })
}

// Fingerprint is equal for requests that ask for the same, in the name of the
// same user.
func (e *Entry) Fingerprint() [32]byte {
	parts := []string{e.Method, e.Host, e.URI, string(e.Body)}
	for _, name := range []string{"Authorization", "Cookie", "Content-Type"} {
		parts = append(parts, e.Header[name]...)
		parts = append(parts, "") // the end of the list
	}
	return digest(parts...)
}

func digest(parts ...string) [32]byte {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return [32]byte(h.Sum(nil))
}

// Lane names the entries that are kept in order.
type Lane struct{ Scope, Key string }

// Ref is what a Queue knows of an entry that it has not loaded.
type Ref struct {
	ID           string
	Domain, Rule string
	Lane         Lane
	Claims       []Claim
	Accepted     time.Time
	Expires      time.Time
	Size         int64
	Order        [2]uint64 // grows within a lane
	Partition    string    // the part of the store that the entry is in
}

// Lane is what its order is kept in.
func (e *Entry) Lane() Lane { return Lane{e.Scope, e.Key} }

// RefOf returns that of e.
func RefOf(e *Entry) Ref {
	return Ref{
		ID: e.ID, Domain: e.Domain, Rule: e.Rule, Lane: e.Lane(), Claims: e.Claims,
		Accepted: e.Accepted, Expires: e.Expires, Size: e.Size(),
	}
}

func (r *Ref) compare(other *Ref) int { return slices.Compare(r.Order[:], other.Order[:]) }

// Attempts is how sending an entry has gone so far.
type Attempts struct {
	Count int       `json:"count"`         // how many there were
	Next  time.Time `json:"next,omitzero"` // when to try again
	// Status is the backend's last answer; 0 if it gave none. Error says what
	// went wrong.
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
	Ended  time.Time `json:"ended,omitzero"` // when the entry became a dead letter, zero if it has not
}

// Result is what became of an entry that was delivered.
type Result struct {
	// Status is that of the backend's answer, ContentType and Body the begin of
	// it, as far as the policy keeps it.
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        []byte `json:"body,omitempty"`
	Cut         bool   `json:"cut,omitempty"` // there was more
	Attempts    int    `json:"attempts"`      // how often it was sent
	// Accepted is when it came, Delivered when the answer did.
	Accepted  time.Time `json:"accepted"`
	Delivered time.Time `json:"delivered"`
}

// State is where an entry is.
type State uint8

// The states.
const (
	Pending   State = iota // still to be sent
	Delivered              // was taken by the backend
	Dead                   // was given up
)

// String returns pending, delivered or dead.
func (s State) String() string { return enum.Name(s, "state", "pending", "delivered", "dead") }

// ParseState is the inverse of [State.String].
func ParseState(text string) (State, bool) { return enum.Parse(text, Dead) }

// Item is all that is known of an entry.
type Item struct {
	State State
	Entry *Entry // nil of one that was delivered
	// Attempts is of those pending or dead, Result of those delivered.
	Attempts Attempts
	Result   Result
}

// Receipt says that an entry has been accepted.
type Receipt struct {
	// ID is the entry's, or that of an earlier one with the same idempotency
	// key; Again is then set.
	ID       string
	Again    bool
	Position int64 // how many of its lane are pending, itself included; 0 if that is not known
}

// Errors of a Store and a Queue.
var (
	// ErrFull says that there is no room for another entry of the rule, or of its
	// key.
	ErrFull        = errors.New("the queue is full")
	ErrUnavailable = errors.New("the queue is unavailable") // an entry could not be kept safely
	// ErrConflict says that another request had the same idempotency key.
	ErrConflict = errors.New("the idempotency key was used for a different request")
	ErrNotFound = errors.New("no such queued request")                 // there is no such entry any more
	ErrLost     = errors.New("another server is sending this request") // another process has taken over an entry
	ErrDamaged  = errors.New("damaged record")                         // a record is not what was written
	ErrClosed   = errors.New("the queue is closed")                    // the queue has been closed
)
