package rules

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/rules/body"
)

// OnLimit is a rule's answer to a request over its limit.
type OnLimit struct {
	// Action is what happens to the request. With Delay, requests within the
	// limit wait, and those over it are answered as with Reject.
	Action Action
	// Status is the HTTP status of the answer: 429 by default, 200 for ShadowBan.
	Status      int
	Stated      bool   // the rule states Status; without that, 503 is the answer where a part is kept for a higher class
	Body        string // replaces the problem+json body if not empty
	ContentType string // belongs to Body
	// Bodies replace the problem+json body if not empty; the client's Accept
	// chooses one. They are used instead of Body if there are several or they
	// have variables.
	Bodies  []body.Variant
	Headers map[string]string // added to the answer
	Jitter  Jitter            // added to Retry-After
	Latency Latency           // the time until the answer of ShadowBan
	// Queueing configures Queue; nil for other actions. Requests that cannot be
	// kept are answered as with Reject.
	Queueing *Queueing
}

// Jitter is a random time added to another: up to Percent of it, or up to Most.
type Jitter struct {
	Percent int64
	Most    time.Duration
}

// Extra returns how much to add to exact, which is not negative. random
// returns a number from 0 to below n, such as math/rand/v2.Int64N.
func (j Jitter) Extra(exact time.Duration, random func(n int64) int64) time.Duration {
	most := int64(j.Most)
	if j.Percent > 0 {
		hi, lo := bits.Mul64(uint64(max(exact, 0)), uint64(j.Percent))
		part, _ := bits.Div64(hi, lo, 100) // Percent ≤ 100, so hi is far below 100
		most = int64(part)
	}
	if most <= 0 {
		return 0
	}
	return time.Duration(random(most + 1))
}

// Latency is a time that varies evenly from Base - Spread to Base + Spread.
type Latency struct{ Base, Spread time.Duration }

// Pick returns one such time. random is as of [Jitter.Extra].
func (l Latency) Pick(random func(n int64) int64) time.Duration {
	if l.Spread <= 0 {
		return l.Base
	}
	return l.Base - l.Spread + time.Duration(random(2*int64(l.Spread)+1))
}

// Queueing says how the requests over a limit are kept and sent, with the action
// Queue.
type Queueing struct {
	// MaxEntries and MaxBytes limit the queue, MaxBody the body of one request, in
	// bytes.
	MaxEntries, MaxBytes, MaxBody int64
	// KeyShare is the percentage of MaxEntries and MaxBytes that one key may use.
	KeyShare int64
	TTL      time.Duration // how long a request may wait
	// Retries is how often a request is retried if the backend does not accept it.
	// The wait in between grows from BackoffLeast to BackoffMost.
	Retries                   int
	BackoffLeast, BackoffMost time.Duration
	Concurrency               int           // the number of concurrent requests per key
	Timeout                   time.Duration // limits each attempt
	// Keep is how long the outcome of a request can be queried, KeepResponse how
	// many bytes of the backend's answer are kept with it.
	Keep         time.Duration
	KeepResponse int64
}

// DefaultQueueing returns the defaults.
func DefaultQueueing() Queueing {
	return Queueing{
		MaxEntries: 10_000, MaxBytes: 100_000_000, MaxBody: 1_000_000, KeyShare: 10, TTL: 24 * time.Hour,
		Retries: 10, BackoffLeast: time.Second, BackoffMost: 5 * time.Minute,
		Concurrency: 1, Timeout: 30 * time.Second, Keep: time.Hour,
	}
}
