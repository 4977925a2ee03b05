package rules

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/rules/body"
)

// OnLimit is a rule's answer to a request over its limit.
type OnLimit struct {
	// Action is what happens to it. With Delay, requests within the limit wait
	// for their turn, and those over it are answered as by Reject.
	Action Action
	// Status is the HTTP status of the answer: 429 by default, of ShadowBan
	// 200.
	Status      int
	Body        string // replaces the problem+json body if not empty
	ContentType string // belongs to Body
	// Bodies replace the problem+json body if there are any, by what the
	// client accepts. They are there in place of Body if it has variables or
	// there are several.
	Bodies  []body.Variant
	Headers map[string]string // added to the answer
	Jitter  Jitter            // added to the time after which clients are told to try again
	Latency Latency           // how long the answer of ShadowBan takes
	// Queueing is how Queue keeps requests; nil for other actions. What cannot
	// be kept is answered as by Reject.
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
	// MaxEntries and MaxBytes bound what is kept, MaxBody the body of one
	// request, in bytes.
	MaxEntries, MaxBytes, MaxBody int64
	// KeyShare is how much of MaxEntries and MaxBytes the requests of one key may
	// take, in percent.
	KeyShare int64
	TTL      time.Duration // how long a request may wait
	// Retries is how often it is sent again if the backend does not take it,
	// and BackoffLeast to BackoffMost how long to wait in between.
	Retries                   int
	BackoffLeast, BackoffMost time.Duration
	Concurrency               int           // how many requests of one key may be under way at once
	Timeout                   time.Duration // bounds each attempt
	// Keep is for how long one may ask what became of a request, and
	// KeepResponse how many bytes of the backend's answer are kept for that.
	Keep         time.Duration
	KeepResponse int64
}

// DefaultQueueing is what holds where a rule does not say.
func DefaultQueueing() Queueing {
	return Queueing{
		MaxEntries: 10_000, MaxBytes: 100_000_000, MaxBody: 1_000_000, KeyShare: 10, TTL: 24 * time.Hour,
		Retries: 10, BackoffLeast: time.Second, BackoffMost: 5 * time.Minute,
		Concurrency: 1, Timeout: 30 * time.Second, Keep: time.Hour,
	}
}
