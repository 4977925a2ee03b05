// Package headgate decides, exactly and fast, whether a request may pass now,
// and when it may if it may not.
//
// A [Limit] says how much: N per period, an [Algorithm], and for the buckets a
// burst. A key says what is counted: an IP address, an API key, a user. A
// [Store] keeps the counts: store/memory inside the process, store/redis where
// many machines share them. A [Limiter] asks the store and answers with a
// [Decision].
//
//	limiter := headgate.New(memory.New())
//	perKey := headgate.PerSecond(100).Burst(500)
//
//	d, err := limiter.Allow(ctx, apiKey, perKey)
//	if !d.Allowed {
//		// too early by d.RetryAfter
//	}
//
// # Exactness
//
// All arithmetic is in integers below 2^53, the same in Go and in Redis; time is
// in microseconds. RetryAfter is exact: the same request is refused one tick
// before it and allowed at it, if nobody else takes in between.
//
// # Errors
//
// A refusal is not an error, and changes nothing. An error means that the question
// was wrong, such as [ErrInvalidLimit], or that the store could not answer
// ([ErrUnavailable]); the Decision is then what the failure policy says.
package headgate
