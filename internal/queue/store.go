package queue

import (
	"context"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// Store saves entries so that a crash does not lose them. It is safe for concurrent use.
type Store interface {
	Entries
	// Put saves e if p has space for it in the queue and in its line. On success e survives a
	// crash. After ErrFull, ErrConflict or ErrUnavailable e is not saved.
	Put(ctx context.Context, e *Entry, p *Policy) (Receipt, error)
	// Load returns an entry just before it is sent. After ErrLost or ErrNotFound it must not
	// be sent.
	Load(ctx context.Context, r *Ref) (*Entry, error)
	// Deliver removes a delivered entry and keeps its result for keep.
	Deliver(ctx context.Context, r *Ref, result *Result, keep time.Duration) error
	// Postpone records a failed attempt.
	Postpone(ctx context.Context, r *Ref, a *Attempts) error
	// Bury makes an entry a dead letter. If there are more dead letters than p allows, it
	// deletes the oldest, and dropped is their number.
	Bury(ctx context.Context, r *Ref, a *Attempts, p *Policy) (dropped int, err error)
	// Retry makes dead letters pending again, with a new time to live, and returns the ids it
	// found.
	Retry(ctx context.Context, ids []string, now time.Time, ttl func(domain, rule string) time.Duration) ([]string, error)
	// Depths returns the size of each rule's queue.
	Depths(ctx context.Context) ([]Depth, error)
	// Waiting reports whether a line has pending entries.
	Waiting(ctx context.Context, lane Line) (bool, error)
	// Run passes entries that this process must send to sink, until ctx is done.
	Run(ctx context.Context, sink Sink)
	// Secret returns SecretSize random bytes, the same as long as it keeps its entries.
	Secret(ctx context.Context) ([]byte, error)
	// Close releases the resources of the store.
	Close() error
}

// Entries is the operator's view of a Store.
type Entries interface {
	// Find returns an entry, or ErrNotFound.
	Find(ctx context.Context, id string) (*Item, error)
	// Look is Find without the request: of Item.Entry it sets Accepted, and perhaps more. It
	// costs the same for a request of any size.
	Look(ctx context.Context, id string) (*Item, error)
	// List returns the oldest entries that match q, at most q.Limit.
	List(ctx context.Context, q Query) ([]Item, error)
	// Drop deletes pending entries and dead letters, and returns the ids it found.
	Drop(ctx context.Context, ids []string) ([]string, error)
}

// Query selects entries to list.
type Query struct {
	State        State  // Pending or Dead
	Domain, Rule string // all if empty
	// Line selects one line, if not nil.
	Lane  *Line
	Limit int
}

// Matches reports whether q selects entries of this rule.
func (q *Query) Matches(domain, rule string) bool {
	return (q.Domain == "" || q.Domain == domain) && (q.Rule == "" || q.Rule == rule)
}

// MatchesLane reports whether q selects entries of this line.
func (q *Query) MatchesLane(l Line) bool { return q.Lane == nil || *q.Lane == l }

// Depth is the size of one rule's queue.
type Depth struct {
	Domain, Rule         string
	Entries, Bytes, Dead int64     // Entries and Bytes of pending entries; number of dead letters
	Oldest               time.Time // when the oldest pending entry was accepted; zero if there is none
}

// Sink receives entries from a Store. Calls for one line come from one goroutine at a time.
type Sink interface {
	// Add passes an entry to send. Entries of one line come in order.
	Add(r Ref, a Attempts)
	// Remove takes back an entry.
	Remove(r Ref)
	// Forget takes back all entries of a partition.
	Forget(partition string)
	// Busy reports whether an entry of a partition is in flight.
	Busy(partition string) bool
	// Count returns the number of entries of a partition.
	Count(partition string) int64
}

// Policy says how entries of one rule are kept and sent. Its limits apply to pending entries
// and, separately, to dead letters. With more than one entry of a key in flight their order is
// not kept.
type Policy rules.Queueing

// DefaultPolicy returns the policy of a rule without settings.
func DefaultPolicy() Policy { return Policy(rules.DefaultQueueing()) }

// Room returns how much may be pending in one line: at least one entry of any size that
// MaxEntries and MaxBytes allow.
func (p *Policy) Room() (entries, bytes int64) {
	return max((p.MaxEntries*p.KeyShare+99)/100, 1), p.MaxBytes * p.KeyShare / 100
}

// backoff returns the wait after the n-th attempt. Half of it is random, so that entries that
// failed together are not retried together.
func (p *Policy) backoff(n int, random func(int64) int64) time.Duration {
	d := p.BackoffMost
	if shift := max(n-1, 0); bits.Len64(uint64(p.BackoffLeast))+shift < 63 {
		d = min(d, p.BackoffLeast<<shift)
	}
	half := int64(d / 2)
	return time.Duration(half + random(int64(d)-half+1))
}
