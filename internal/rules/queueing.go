package rules

import "time"

// Queueing says how the requests over a limit are kept and sent, with the action
// Queue.
type Queueing struct {
	// MaxEntries and MaxBytes bound what is kept, MaxBody the body of one
	// request, in bytes.
	MaxEntries, MaxBytes, MaxBody int64
	// KeyShare is how much of MaxEntries and MaxBytes the requests of one key may
	// take, in percent.
	KeyShare int64
	// TTL is how long a request may wait.
	TTL time.Duration
	// Retries is how often it is sent again if the backend does not take it,
	// and BackoffLeast to BackoffMost how long to wait in between.
	Retries                   int
	BackoffLeast, BackoffMost time.Duration
	// Concurrency is how many requests of one key may be under way at once.
	Concurrency int
	// Timeout bounds each attempt.
	Timeout time.Duration
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
