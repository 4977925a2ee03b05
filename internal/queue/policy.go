package queue

import (
	"math/bits"
	"time"
)

// Policy says how the entries of one rule are kept and sent.
type Policy struct {
	// MaxEntries and MaxBytes bound what is pending, and apart from that the
	// dead letters.
	MaxEntries, MaxBytes int64
	// KeyShare is how much of that the pending entries of one lane may take, in
	// percent; see [Policy.Room].
	KeyShare int64
	// MaxBody is the largest body of a request, in bytes.
	MaxBody int64
	// TTL is how long an entry may be pending.
	TTL time.Duration
	// Retries is how often an entry is sent again; the waits between grow from
	// BackoffLeast, doubling, to BackoffMost.
	Retries                   int
	BackoffLeast, BackoffMost time.Duration
	// Concurrency is how many entries of one key may be under way at once. With
	// more than 1 their order is not kept.
	Concurrency int
	// Timeout bounds one attempt.
	Timeout time.Duration
	// Keep is for how long one may ask what became of an entry that was
	// delivered, and KeepBytes how much of the backend's answer is kept.
	Keep      time.Duration
	KeepBytes int64
}

// DefaultPolicy is what holds where a rule does not say.
func DefaultPolicy() Policy {
	return Policy{
		MaxEntries: 10_000, MaxBytes: 100_000_000, KeyShare: 10, MaxBody: 1_000_000, TTL: 24 * time.Hour,
		Retries: 10, BackoffLeast: time.Second, BackoffMost: 5 * time.Minute,
		Concurrency: 1, Timeout: 30 * time.Second, Keep: time.Hour,
	}
}

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
