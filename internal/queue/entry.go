// Package queue saves requests that are over a limit and sends them later, as fast as the
// limit allows.
//
// A [Queue] accepts an [Entry] when its [Store] has saved it, and delivers it at least once.
// Entries of one key are sent in the order in which they were accepted; different keys do not
// wait for each other. Failed deliveries are retried, and become dead letters when their
// policy says so.
//
// The contract is in docs/more/queue.md.
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

// Entry is an accepted request. It is immutable.
type Entry struct {
	ID           string // its name for senders and operators
	Domain, Rule string // of the limit that refused it
	// Scope and Key are what the limit counts by. Entries with the same Scope and Key are sent
	// in order.
	Scope, Key string
	Claims     []Claim // all limits that must allow it
	// Method, URI (path and query) and Host are the request's. Header has no hop-by-hop
	// fields.
	Method, URI, Host string
	Header            http.Header
	Body              []byte
	IdempotencyKey    string    // the sender's, or empty
	Accepted, Expires time.Time // when it was accepted, and when it becomes a dead letter
}

// Claim is the cost of an entry under one limit. It has the fields of the engine's, to which it is
// converted, so that none is forgotten.
type Claim struct {
	Rule, Key string
	Cost      int64
	Given     string // what the request gave of the limit, if anything
	Member    uint64 // the value that a limit of different values counts; else 0
	Class     uint8  // the index of the request's class, for a limit with headroom
	Owner     string // whose share it is, of a limit that is shared fairly
	Weight    int64  // of the owner; 0 without a share
}

// NewID returns a random id, which cannot be guessed. Senders get one of [Queue.NewID].
func NewID() string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// Size returns the bytes that count against [Policy].MaxBytes.
func (e *Entry) Size() int64 {
	n := len(e.Method) + len(e.URI) + len(e.Host) + len(e.Body) + len(e.Key) + len(e.IdempotencyKey)
	for name, values := range e.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return int64(n)
}

// Idempotency returns a hash that repeats of the same request share, and false if the entry
// has no idempotency key. The same idempotency key from different senders gives different
// hashes, as far as the limit's key and header fields tell senders apart. So no sender gets
// the answer of another, or loses a request to one.
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

// mayName reports whether a header field may identify the sender. Other fields may change
// between retries. Authorization and Cookie are part of Fingerprint instead, because repeating
// an idempotency key with different ones is an error.
func mayName(field string) bool {
	field = strings.ToLower(field)
	switch field {
	case "authorization", "cookie", "idempotency-key", "accept", "range", "date", "user-agent", "cache-control", "pragma",
		"connection", "keep-alive", "te", "dnt", "priority", "origin", "referer", "from", "upgrade-insecure-requests",
		"save-data", "forwarded", "via", "x-real-ip", "x-request-start", "x-queue-start", "x-timer", "x-unique-id",
		"traceparent", "tracestate", "baggage", "b3", "newrelic", "sentry-trace", "x-cloud-trace-context",
		// Of CDNs; others of theirs name the user.
		"cf-ray", "cf-ipcountry", "cf-visitor", "cdn-loop", "x-amz-cf-id", "x-azure-ref", "x-azure-socketip", "x-vercel-id",
		"x-varnish", "x-dynatrace", "singularityheader", "grpc-timeout",
		// Of X-Forwarded-*, others name the user (-User, -Email) or the client's certificate.
		"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port":
		return false
	}
	return !slices.ContainsFunc([]string{
		"accept-", "content-", "if-", "sec-", "x-b3-", "uberctx-", "x-datadog-", "x-envoy-", "x-stainless-", "amz-sdk-", "x-retry-", "retry-", "x-attempt-",
		"cloudfront-viewer-", "x-instana-", "x-newrelic-", "ot-tracer-",
	}, func(begin string) bool { return strings.HasPrefix(field, begin) }) && !slices.ContainsFunc([]string{
		"request-id", "correlation-id", "trace-id", "traceparent", "request-log-id", "transaction-id", "span-id", "-attempt", "client-ip", "clientip", "connecting-ip",
	}, func(end string) bool { return strings.HasSuffix(field, end) })
}

// Fingerprint returns the same hash for requests with the same content and user. A proxy may have
// sent its own Host, and the client's in X-Forwarded-Host.
func (e *Entry) Fingerprint() [32]byte {
	parts := []string{e.Method, e.Host, e.URI, string(e.Body)}
	if at := e.Header.Get("X-Forwarded-Host"); at != "" && at != e.Host {
		parts[1] += " " + at
	}
	for _, name := range []string{"Authorization", "Cookie", "Content-Type"} {
		parts = append(parts, e.Header[name]...)
		parts = append(parts, "") // ends the list
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

// Line identifies entries that are sent in order.
type Line struct{ Scope, Key string }

// Ref is the part of an entry that a Queue keeps in memory.
type Ref struct {
	ID           string
	Domain, Rule string
	Line         Line
	Claims       []Claim
	Accepted     time.Time
	Expires      time.Time
	Size         int64
	Order        [2]uint64 // grows within a line
	Partition    string    // the partition of the store that has the entry
}

// Line returns the line of the entry.
func (e *Entry) Line() Line { return Line{e.Scope, e.Key} }

// RefOf returns the Ref of e.
func RefOf(e *Entry) Ref {
	return Ref{
		ID: e.ID, Domain: e.Domain, Rule: e.Rule, Line: e.Line(), Claims: e.Claims,
		Accepted: e.Accepted, Expires: e.Expires, Size: e.Size(),
	}
}

func (r *Ref) compare(other *Ref) int { return slices.Compare(r.Order[:], other.Order[:]) }

// Attempts is the delivery history of an entry.
type Attempts struct {
	Count int       `json:"count"`         // number of attempts
	Next  time.Time `json:"next,omitzero"` // when to try next
	// Status is the backend's last status, 0 if it did not answer. Error is the last error.
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
	Ended  time.Time `json:"ended,omitzero"` // when it became a dead letter, or zero
}

// Result is the outcome of a delivered entry.
type Result struct {
	// Status and ContentType are of the backend's answer. Body is its start, as much as the
	// policy keeps.
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        []byte `json:"body,omitempty"`
	Cut         bool   `json:"cut,omitempty"` // Body is not complete
	Attempts    int    `json:"attempts"`      // number of attempts
	// Accepted is when the request was accepted, Delivered when the answer arrived.
	Accepted  time.Time `json:"accepted"`
	Delivered time.Time `json:"delivered"`
}

// State is the state of an entry.
type State uint8

// The states of an entry.
const (
	Pending   State = iota // waiting to be sent
	Delivered              // the backend took it
	Dead                   // a dead letter
)

// String returns pending, delivered or dead.
func (s State) String() string { return enum.Name(s, "state", "pending", "delivered", "dead") }

// ParseState is the inverse of [State.String].
func ParseState(text string) (State, bool) { return enum.Parse(text, Dead) }

// Item is an entry with its state and history.
type Item struct {
	State State
	Entry *Entry // nil if delivered
	// Attempts is set for pending and dead entries, Result for delivered ones.
	Attempts Attempts
	Result   Result
}

// Receipt confirms an accepted entry.
type Receipt struct {
	// ID is the id of the entry, or if Again is set, of an earlier one with the same
	// idempotency key.
	ID       string
	Again    bool
	Position int64 // number of pending entries of the line, this one included; 0 if unknown
}

// Errors of Store and Queue.
var (
	// ErrFull: the queue, or the key's share of it, is full.
	ErrFull        = errors.New("the queue is full")
	ErrUnavailable = errors.New("the queue is unavailable") // the entry could not be saved, or the store does not answer
	// ErrConflict: a different request has the same idempotency key.
	ErrConflict = errors.New("the idempotency key was used for a different request")
	ErrNotFound = errors.New("no such queued request")
	// ErrUnsure is of an entry that may still be withdrawn: its sender has not been told.
	ErrUnsure  = fmt.Errorf("%w: the request has not been confirmed to its sender yet", ErrUnavailable)
	ErrLost    = errors.New("another server is sending this request")
	ErrDamaged = errors.New("damaged record")
	ErrClosed  = errors.New("the queue is closed")
)
