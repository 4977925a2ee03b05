// Package failsafe limits what a failing store can do to its callers. It wraps any
// [store.Store], usually one behind a network:
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
// No call waits longer than [Options.Timeout], 100 ms by default, whether the store is
// slow, stalled or gone. Calls that start close together share a timer, so a call gets
// between 7/8 of the Timeout and all of it. An earlier deadline of ctx is honored.
// Cancelling ctx does not interrupt a call that was already sent.
//
// A take that timed out may have counted. That can refuse a later request that would
// have passed, and never admits one too many.
//
// A panic of the store becomes an error that wraps store.ErrUnavailable.
//
// # Circuit breaker
//
// When [Breaker.Failures] calls in a row have failed and none has succeeded for a
// Timeout, the breaker opens: calls fail at once with [ErrOpen], except for single
// calls that probe the store. The first success closes it. Timeouts that this process
// noticed late, because it had no CPU, count only if no call has succeeded for four
// Timeouts. If a part of the store still answers, as in a cluster that lost one
// primary, the breaker stays closed.
//
// # Deny cache
//
// A refused key is refused again without asking the store for as long as it is certain
// to stay refused, at most [DenyCache.MaxAge]. See [DenyCache].
//
// What a request is answered when its call fails is decided by
// headgate.WithFailurePolicy, headgate.WithFallback, or the on_store_error of a rule.
package failsafe
