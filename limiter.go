package headgate

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/store"
)

// FailurePolicy says what a Limiter answers when its store cannot answer.
type FailurePolicy uint8

const (
	// FailOpen lets requests pass. It is the default: an outage of the rate limiter
	// should not become an outage of the service.
	FailOpen FailurePolicy = iota
	// FailClosed refuses requests, for limits that must hold at all times.
	FailClosed
)

// Limiter asks a [store.Store] about limits. It holds no counts and no limits: a program
// usually has one Limiter per store, created once by [New], and passes the key and the
// [Limit] with every call. It is safe for concurrent use.
//
// Most programs need one method. [Limiter.Allow] takes 1 if it fits, and reports at
// once whether the request may pass; servers return Decision.RetryAfter with a refusal.
// [Limiter.Wait] is for clients and workers that would rather be late than refused. For
// everything else:
//
//   - a request that costs more than 1, or takes whatever is left: AllowN, AllowUpTo
//   - a cost that is known only afterwards: Reserve with Commit or Cancel, or Charge
//   - how many different values a key shows: [Distinct] with AllowMember
//   - requests in progress at the same time: [Concurrent] with Acquire
//   - several limits on one request, all or nothing: AllowAll
//   - support: Peek, Grant, Reset
//
// Every method returns a Decision that can be acted on, even with an error. A refusal
// is not an error. If the store could not answer, the error wraps [ErrUnavailable], and
// the Decision is that of [WithFallback] or else of the [FailurePolicy]; if you ignore
// the error, you get the policy. An invalid request (an invalid limit, a negative cost)
// is refused, so that a mistake does not lift a limit. A cost of 0 is a dry run.
//
// A key is counted under its limit: PerSecond(5) and PerHour(100) count the same key
// separately, and changed numbers start a new count, unless the limits have a name
// ([Limit.WithName]). Join the parts of a key with [AppendKey]; with a plain separator, a
// client could forge the key of another. Create limits once, not per request.
//
// Time comes from the store, or from [WithClock], which is the only way to inject a
// clock: Wait and the middleware packages use it too. Tests with
// testing/synctest need none. The zero Limiter has no store; use New.
type Limiter struct {
	direct store.Direct // the store, if it can work without this Limiter, or caller
	caller store.Caller
	secret [16]byte // see WithSecret
	falls  bool     // whether there was a WithFallback
	flaw   error    // of what New was given
}

// Option configures a Limiter.
type Option func(*Limiter)

// WithClock makes the Limiter stamp every op with the time of clock. Without it, the
// store's own clock decides. Stores that many processes share (Redis) always use their
// own.
//
// The time must be after 1970-01-01 00:00 UTC and before 2112; otherwise every call is
// refused with [store.ErrInvalidTime]. So the clock of a test must not start at time.Time{}
// or time.Unix(0, 0).
func WithClock(clock func() time.Time) Option {
	return func(l *Limiter) { l.caller.Clock = clock }
}

// WithFailurePolicy sets the answer for when the store cannot answer.
func WithFailurePolicy(p FailurePolicy) Option {
	return func(l *Limiter) { l.caller.FailClosed = p == FailClosed }
}

// WithFallback makes store answer when the Limiter's own store cannot. It is usually
// store/memory, so that this process continues alone. It enforces the fraction
// share of each limit ([store.Rule.Share]), such as 0.25 for four processes that share a Redis. Its decisions have
// the Reason [ReasonFallback] and come with the error that wraps [ErrUnavailable]. If the
// fallback fails too, the failure policy decides. Without a store, or with a share
// outside (0, 1], every call is refused with [store.ErrInvalidFallback].
//
// The two stores are independent. When the Limiter's own store answers again, its
// counts apply, without what passed in between; those of the fallback fade. So an
// outage admits at most the limit again, times the sum of all shares.
func WithFallback(to store.Store, share float64) Option {
	return func(l *Limiter) { l.caller.Fallback, l.caller.Share, l.falls = to, share, true }
}

// New returns a Limiter that keeps its counts in a store. One Limiter serves any number
// of limits, and several Limiters may share a store. Without a store, or with a nil
// pointer as one, every call is refused with [store.ErrNoStore]; [Limiter.Validate] reports
// it at once.
func New(counts store.Store, options ...Option) *Limiter {
	l := &Limiter{caller: store.Caller{Store: counts}}
	for _, o := range options {
		if o == nil {
			l.flaw = errNilOption
			continue
		}
		o(l)
	}
	if l.flaw = cmp.Or(l.flawOfStores(), l.flaw); l.flaw != nil {
		l.caller.Store, l.caller.Fallback = flawed{l.flaw}, nil
	}
	c := &l.caller
	l.direct = c
	if d, ok := c.Store.(store.Direct); ok && c.Clock == nil && !c.FailClosed && c.Fallback == nil {
		l.direct = d
	}
	return l
}

// flawOfStores returns why l cannot work with its stores, or nil.
func (l *Limiter) flawOfStores() error {
	switch {
	case isNil(l.caller.Store):
		return store.ErrNoStore
	case l.falls && isNil(l.caller.Fallback):
		return plain.Error(store.ErrInvalidFallback, "no store")
	case l.falls && !(l.caller.Share > 0 && l.caller.Share <= 1):
		return plain.Error(store.ErrInvalidFallback, "the share must be more than 0 and at most 1, such as 0.25 for four processes")
	}
	return nil
}

// isNil reports whether s is nil or a nil pointer, such as one returned with an
// error.
func isNil(s store.Store) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Validate returns what keeps l from working: [store.ErrNoStore] (also for a nil Limiter),
// [store.ErrInvalidFallback], [store.ErrInvalidTime], or what a store says of itself; a store that
// is only out of reach is none of these. It is for code that builds on a Limiter and wants to fail early.
func (l *Limiter) Validate() error {
	if l == nil || l.caller.Store == nil {
		return store.ErrNoStore
	}
	if l.flaw != nil {
		return l.flaw
	}
	return l.caller.Validate()
}

// flawed is the store of a Limiter that cannot work.
type flawed struct{ err error }

func (f flawed) Do(_ context.Context, b *store.Batch) { b.Fail(f.err) }

func (flawed) Close() error { return nil }

// Allow takes 1 if it fits. It is shorthand for AllowN(ctx, key, limit, 1).
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n if all of it fits, and nothing otherwise. The key is counted under
// limit; other limits count it separately, unless they have the same name
// ([Limit.WithName]).
//
// A call to a shared store ends with ctx. Where a client chooses its deadline, as in a gRPC
// handler, pass [context.WithoutCancel]: otherwise a short one is a store that does not answer.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	d, err := l.direct.TakeN(ctx, key, limit.rule, n)
	return Decision(d), err // so short that it is inlined
}

// AllowUpTo takes as much of most as fits; Decision.Granted is the amount. It is refused
// only if nothing fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, limit Limit, most int64) (Decision, error) {
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: most, Kind: store.KindTakeUpTo}))
}

// Peek reports whether Allow would pass. It is shorthand for PeekN(ctx, key, limit, 1).
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.PeekN(ctx, key, limit, 1)
}

// PeekN reports whether AllowN would pass, and when, without writing anything. Remaining
// and ResetAfter are those of the current state.
func (l *Limiter) PeekN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindPeek}))
}

// Charge takes cost whether it fits or not, for costs that are known only afterwards. The
// key may go into debt, which later requests must wait out. Allowed reports whether it
// is out of debt.
func (l *Limiter) Charge(ctx context.Context, key string, limit Limit, cost int64) (Decision, error) {
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: cost, Kind: store.KindCharge}))
}

// Refund returns cost to the key, up to the full limit. To return an earlier take, cancel
// its Reservation instead, which subtracts what has refilled since.
func (l *Limiter) Refund(ctx context.Context, key string, limit Limit, cost int64) (Decision, error) {
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: cost, Kind: store.KindRefund}))
}

// Grant adds credit above the limit for the time lasting, for example after a payment.
// Credit is used when the limit is spent, and does not refill. Further grants add up and
// last until the latest of their ends. lasting must be more than 0.
func (l *Limiter) Grant(ctx context.Context, key string, limit Limit, credit int64, lasting time.Duration) (Decision, error) {
	if lasting <= 0 {
		return Decision{Reason: ReasonFailClosed, Limit: limit.Burst()}, store.ErrInvalidDuration
	}
	return decided(l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: credit, Kind: store.KindGrant, Duration: lasting}))
}

// Reset removes the key's use and credit under the limit's algorithm.
func (l *Limiter) Reset(ctx context.Context, key string, limit Limit) error {
	_, err := l.caller.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Kind: store.KindReset})
	return err
}

// decided is d for callers of a Limiter.
func decided(d store.Decision, err error) (Decision, error) { return Decision(d), err }

// Check is one of the limits of [Limiter.AllowAll].
type Check struct {
	Key   string
	Limit Limit
	Cost  int64 // 0 counts as 1
}

// AllowAll takes the cost of every check if all of them fit, and nothing otherwise:
//
//	d, err := limiter.AllowAll(ctx,
//		headgate.Check{Key: user.ID, Limit: perUser},
//		headgate.Check{Key: "all", Limit: logins})
//
// The decision is the tightest: of refusals the one with the longest RetryAfter, of
// admissions the one with the least Remaining. Code that needs all of them uses
// [Limiter.Caller].
func (l *Limiter) AllowAll(ctx context.Context, checks ...Check) (Decision, error) {
	ops, out := make([]store.Op, len(checks)), make([]store.Decision, len(checks))
	for i, c := range checks {
		ops[i] = store.Op{Key: c.Key, Rule: c.Limit.Rule(), Cost: cmp.Or(c.Cost, 1)}
	}
	return decided(l.caller.AllowAll(ctx, ops, out))
}

// Caller returns what code that builds on a Limiter needs, such as middleware: ops of any
// kind, many in one round trip, refunds, and waiting by the Limiter's clock.
func (l *Limiter) Caller() *store.Caller { return &l.caller }
