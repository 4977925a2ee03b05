package queue

import (
	"context"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// Store keeps entries so that no crash loses them. Its methods may be called by
// any number of goroutines.
type Store interface {
	Entries
	// Put keeps e within the bounds of p, and within those of its lane. When it returns without an error, e
	// survives a crash. After ErrFull, ErrConflict or ErrUnavailable e is not
	// kept.
	Put(ctx context.Context, e *Entry, p *Policy) (Receipt, error)
	// Load returns an entry just before it is sent. ErrLost and ErrNotFound say
	// that it must not be.
	Load(ctx context.Context, r *Ref) (*Entry, error)
	// Deliver removes an entry that the backend took. What became of it is known
	// for keep.
	Deliver(ctx context.Context, r *Ref, result *Result, keep time.Duration) error
	// Postpone notes a failed attempt.
	Postpone(ctx context.Context, r *Ref, a *Attempts) error
	// Bury makes an entry a dead letter, of which there are at most as many as p
	// says: beyond that the oldest are forgotten, and dropped says how many.
	Bury(ctx context.Context, r *Ref, a *Attempts, p *Policy) (dropped int, err error)
	// Retry makes dead letters pending again, with a new time to live, and returns
	// the ids that it found.
	Retry(ctx context.Context, ids []string, now time.Time, ttl func(domain, rule string) time.Duration) ([]string, error)
	// Depths returns how much there is, by rule.
	Depths(ctx context.Context) ([]Depth, error)
	// Waiting reports whether entries of a lane are pending.
	Waiting(ctx context.Context, lane Lane) (bool, error)
	// Run tells sink of the entries that this process has to send, until ctx is
	// done.
	Run(ctx context.Context, sink Sink)
	// Close gives up what the store holds.
	Close() error
}

// Entries are what is kept, as operators see it.
type Entries interface {
	// Find returns what is known of an entry, or ErrNotFound.
	Find(ctx context.Context, id string) (*Item, error)
	// List returns at most q.Limit of the oldest entries that are in that state, of
	// the rules that match.
	List(ctx context.Context, q Query) ([]Item, error)
	// Drop removes entries that are pending or dead, and returns the ids that it
	// found.
	Drop(ctx context.Context, ids []string) ([]string, error)
}

// Query says what to list.
type Query struct {
	State        State  // Pending or Dead
	Domain, Rule string // Domain and Rule, if not empty, say whose
	// Lane, if not nil, is the only one that is listed.
	Lane  *Lane
	Limit int
}

// Matches reports whether entries of a rule are asked for.
func (q *Query) Matches(domain, rule string) bool {
	return (q.Domain == "" || q.Domain == domain) && (q.Rule == "" || q.Rule == rule)
}

// MatchesLane reports whether entries of a lane are.
func (q *Query) MatchesLane(l Lane) bool { return q.Lane == nil || *q.Lane == l }

// Depth is how much there is of one rule.
type Depth struct {
	Domain, Rule         string
	Entries, Bytes, Dead int64     // Entries and Bytes are pending, Dead are dead letters
	Oldest               time.Time // when the oldest pending entry was accepted; zero if none is
}

// Sink is told of entries by a Store, of each lane by one goroutine at a time.
type Sink interface {
	// Add tells of an entry to be sent. Of one lane they come in order.
	Add(r Ref, a Attempts)
	// Remove takes an entry back.
	Remove(r Ref)
	// Forget takes back all entries of a partition.
	Forget(partition string)
	// Busy reports whether one of them is under way.
	Busy(partition string) bool
	// Count is how many there are.
	Count(partition string) int64
}

// Policy says how the entries of one rule are kept and sent. What bounds the pending
// ones bounds, apart from that, the dead letters. With more than one entry of a key
// under way at once their order is not kept.
type Policy rules.Queueing

// DefaultPolicy is what holds where a rule does not say.
func DefaultPolicy() Policy { return Policy(rules.DefaultQueueing()) }

// Room is how much may be pending of a lane. One entry may be, whatever its size,
// as far as MaxEntries and MaxBytes allow.
func (p *Policy) Room() (entries, bytes int64) {
	return max((p.MaxEntries*p.KeyShare+99)/100, 1), p.MaxBytes * p.KeyShare / 100
}

// backoff returns how long to wait after the n-th attempt: the half of it is
// random, so that those who failed together do not come back together.
func (p *Policy) backoff(n int, random func(int64) int64) time.Duration {
	d := p.BackoffMost
	if shift := max(n-1, 0); bits.Len64(uint64(p.BackoffLeast))+shift < 63 {
		d = min(d, p.BackoffLeast<<shift)
	}
	half := int64(d / 2)
	return time.Duration(half + random(int64(d)-half+1))
}
