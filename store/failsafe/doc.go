// Package failsafe bounds what a failing store can do to its callers. It wraps
// any [headgate.Store], above all one behind a network:
//
//	store := failsafe.New(redisStore, failsafe.Options{
//		Timeout:   50 * time.Millisecond,
//		DenyCache: failsafe.DenyCache{Entries: 16384},
//		OnChange: func(c failsafe.Change) {
//			slog.Warn("store", "state", c.State, "error", c.Err)
//		},
//	})
//	limiter := headgate.New(store, headgate.WithFallback(memory.New(), 0.25))
//
// # Deadline
//
// No call waits longer than [Options.Timeout], 100 ms by default, whether the
// store answers, is slow, is stalled or is gone. Calls that begin close together
// share one timer, so a call is given between 7/8 of the Timeout and all of it.
// A ctx with an earlier deadline is honored; the cancellation of a ctx does not
// interrupt a question that has been asked, because the answer is at most a
// Timeout away.
//
// A take that timed out may have been applied all the same: the request counts
// against the limit although the policy answered it. That can refuse a later
// request that would have passed, and never admits one too many.
//
// A store that panics has failed: the panic becomes an error that wraps
// headgate.ErrUnavailable, on whatever goroutine it was.
//
// # Circuit breaker
//
// When [Breaker.Failures] calls in a row have failed and none has succeeded for
// a Timeout, the store is taken for dead: calls fail at once with [ErrOpen],
// except that from time to time one caller's question probes. The first
// success closes the breaker. Timeouts that this process noticed more than an
// eighth of the Timeout late, because it had no processor, count only when no
// call has succeeded for four Timeouts. A store of which a part still answers, such as a
// cluster that lost one primary, is not dead; only the lost part's keys fail.
//
// # Deny cache
//
// A key that has been refused is refused by this process for as long as it is
// known to stay so, at most [DenyCache.MaxAge], without asking the store. See
// [DenyCache].
//
// What a request is answered when its call fails is the policy's affair: see
// headgate.WithFailurePolicy, headgate.WithFallback and the on_store_error of a
// rule.
package failsafe
