// Package headgate is a rate limiter: it decides, exactly and fast, whether a request
// may pass now, and when it may if not.
//
// A [Limit] says how much: N per period, an [Algorithm] and, for the buckets, a burst.
// A key says who or what is counted: an IP address, an API key, a user. A store keeps
// the counts: store/memory inside the process, store/redis across machines. A [Limiter]
// asks the store and returns a [Decision].
//
//	limiter := headgate.New(memory.New())
//	perKey := headgate.PerSecond(100).WithBurst(500)
//
//	d, err := limiter.Allow(ctx, apiKey, perKey)
//	if !d.Allowed {
//		// too early by d.RetryAfter
//	}
//
// # Exactness
//
// All arithmetic uses integers below 2^53, in Go as in Redis, and times are in
// microseconds. RetryAfter is exact: if no other request takes in between, the same
// request is refused one microsecond before it and allowed at it.
//
// # Errors
//
// A refusal is not an error and changes nothing. An error means that the request was
// invalid (for example [ErrInvalidLimit]), or that the store could not answer
// ([ErrUnavailable]); in the second case the Decision is the failure policy's.
package headgate
