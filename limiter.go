package headgate

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/store"
)

// FailurePolicy says what a Limiter answers when its store cannot answer.
type FailurePolicy uint8

const (
	// FailureAllow lets requests pass. It is the default: an outage of the rate limiter
	// should not become an outage of the service.
	FailureAllow FailurePolicy = iota
	// FailureDeny refuses requests, for limits that must hold at all times.
	FailureDeny
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
//   - many keys in one round trip, each independently: Batch
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
// ([Limit.Named]). Join the parts of a key with [AppendKey]; with a plain separator, a
// client could forge the key of another. Create limits once, not per request.
//
// Time comes from the store, or from [WithClock], which is the only way to inject a
// clock: Wait, Sleep and the middleware packages use it too. Tests with
// testing/synctest need none. The zero Limiter has no store; use New.
type Limiter struct {
	// direct is the store, if it can work without this Limiter, or through.
	direct   store.Direct
	store    store.Store
	clock    func() time.Time
	failure  FailurePolicy
	fallback store.Store
	share    float64
	secret   [16]byte                   // see WithSecret
	falls    bool                       // whether there was a WithFallback
	flaw     error                      // of what New was given
	spare    atomic.Pointer[[]store.Op] // of stamped, while no call uses it
}

// Option configures a Limiter.
type Option func(*Limiter)

// WithClock makes the Limiter stamp every op with the time of clock. Without it, the
// store's own clock decides. Stores that many processes share (Redis) always use their
// own.
//
// The time must be after 1970-01-01 00:00 UTC and before 2112; otherwise every call is
// refused with [ErrInvalidTime]. So the clock of a test must not start at time.Time{}
// or time.Unix(0, 0).
func WithClock(clock func() time.Time) Option {
	return func(l *Limiter) { l.clock = clock }
}

// WithFailurePolicy sets the answer for when the store cannot answer.
func WithFailurePolicy(p FailurePolicy) Option {
	return func(l *Limiter) { l.failure = p }
}

// WithFallback makes store answer when the Limiter's own store cannot. It is usually
// store/memory, so that this process continues alone. It enforces [Limit.Share](share)
// of each limit, such as 0.25 for four processes that share a Redis. Its decisions have
// the Reason [ReasonFallback] and come with the error that wraps [ErrUnavailable]. If the
// fallback fails too, the failure policy decides. Without a store, or with a share
// outside (0, 1], every call is refused with [ErrInvalidFallback].
//
// The two stores are independent. When the Limiter's own store answers again, its
// counts apply, without what passed in between; those of the fallback fade. So an
// outage admits at most the limit again, times the sum of all shares.
func WithFallback(to store.Store, share float64) Option {
	return func(l *Limiter) { l.fallback, l.share, l.falls = to, share, true }
}

// New returns a Limiter that keeps its counts in a store. One Limiter serves any number
// of limits, and several Limiters may share a store. Without a store, or with a nil
// pointer as one, every call is refused with [ErrNoStore]; [Limiter.Validate] reports
// it at once.
func New(counts store.Store, options ...Option) *Limiter {
	l := &Limiter{store: counts}
	for _, o := range options {
		if o == nil {
			l.flaw = errNilOption
			continue
		}
		o(l)
	}
	if l.flaw = cmp.Or(l.flawOfStores(), l.flaw); l.flaw != nil {
		l.store, l.fallback = flawed{l.flaw}, nil
	}
	l.direct = through{l}
	if d, ok := l.store.(store.Direct); ok && l.clock == nil && l.failure == FailureAllow && l.fallback == nil {
		l.direct = d
	}
	return l
}

// flawOfStores returns why l cannot work with its stores, or nil.
func (l *Limiter) flawOfStores() error {
	switch {
	case isNil(l.store):
		return ErrNoStore
	case l.falls && isNil(l.fallback):
		return plain.Error(ErrInvalidFallback, "no store")
	case l.falls && !(l.share > 0 && l.share <= 1):
		return plain.Error(ErrInvalidFallback, "the share must be more than 0 and at most 1, such as 0.25 for four processes")
	}
	return nil
}

// isNil reports whether s is nil or a nil pointer, such as one returned with an
// error.
func isNil(s store.Store) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Validate returns what keeps l from working: [ErrNoStore] (also for a nil Limiter),
// [ErrInvalidFallback], [ErrInvalidTime], or what a store says of itself; a store that
// is only out of reach is none of these. It is for code that builds on a Limiter and wants to fail early.
func (l *Limiter) Validate() error {
	if l == nil || l.store == nil {
		return ErrNoStore
	}
	if l.flaw != nil {
		return l.flaw
	}
	if _, err := l.stamp(); err != nil {
		return err
	}
	for _, s := range [...]store.Store{l.store, l.fallback} {
		if s == nil {
			continue
		}
		if err := store.ExecuteAll(context.Background(), s, nil, nil, store.Independent); err != nil && !isUnavailable(err) {
			return err
		}
	}
	return nil
}

// flawed is the store of a Limiter that cannot work.
type flawed struct{ err error }

func (f flawed) Do(_ context.Context, b *store.Batch) { b.Fail(f.err) }

func (flawed) Close() error { return nil }

// through answers as a direct store would, using Do.
type through struct{ *Limiter }

func (t through) TakeN(ctx context.Context, key string, rule *store.Rule, n int64) (store.Decision, error) {
	return t.Do(ctx, store.Op{Key: key, Rule: rule, Cost: n})
}

// Allow takes 1 if it fits. It is shorthand for AllowN(ctx, key, limit, 1).
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n if all of it fits, and nothing otherwise. The key is counted under
// limit; other limits count it separately, unless they have the same name
// ([Limit.Named]).
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	d, err := l.direct.TakeN(ctx, key, limit.rule, n)
	return Decision(d), err // so short that it is inlined
}

// AllowUpTo takes as much of n as fits; Decision.Granted is the amount. It is refused
// only if nothing fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return decided(l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindTakeUpTo}))
}

// Peek reports whether AllowN would pass, and when, without writing anything. Remaining
// and ResetAfter are those of the current state.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return decided(l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindPeek}))
}

// Charge takes n whether it fits or not, for costs that are known only afterwards. The
// key may go into debt, which later requests must wait out. Allowed reports whether it
// is out of debt.
func (l *Limiter) Charge(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return decided(l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindCharge}))
}

// Refund returns n to the key, up to the full limit. To return an earlier take, cancel
// its Reservation instead, which subtracts what has refilled since.
func (l *Limiter) Refund(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return decided(l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindRefund}))
}

// Grant adds n as credit above the limit for the time lasting, for example after a
// payment. Credit is used when the limit is spent, and does not refill. Further grants
// add up and last until the latest of their ends. lasting must be more than 0.
func (l *Limiter) Grant(ctx context.Context, key string, limit Limit, n int64, lasting time.Duration) (Decision, error) {
	if lasting <= 0 {
		return Decision{Reason: ReasonFailClosed, Limit: limit.Capacity()}, ErrInvalidDuration
	}
	return decided(l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Cost: n, Kind: store.KindGrant, Duration: lasting}))
}

// Reset removes the key's use and credit under the limit's algorithm.
func (l *Limiter) Reset(ctx context.Context, key string, limit Limit) error {
	_, err := l.Do(ctx, store.Op{Key: key, Rule: limit.Rule(), Kind: store.KindReset})
	return err
}

// decided is d for callers of a Limiter.
func decided(d store.Decision, err error) (Decision, error) { return Decision(d), err }

// Do executes one op of any kind, and applies the failure policy.
func (l *Limiter) Do(ctx context.Context, op store.Op) (d store.Decision, err error) {
	if op.Rule == nil {
		op.Rule = store.Unset()
	}
	if op.At == 0 && l.clock != nil {
		if op.At, err = l.stamp(); err != nil {
			return l.policy(&op, err), err
		}
	}
	if d, err = store.Execute(ctx, l.store, op); err == nil {
		return d, nil
	}
	return l.failed(ctx, op, err)
}

// stamp returns the time of the Limiter's clock, or 0 if it has none.
func (l *Limiter) stamp() (int64, error) {
	if l.clock == nil {
		return 0, nil
	}
	const latest = 1 << 52 // what every algorithm counts to, in the year 2112
	now := l.clock().UnixMicro()
	if now <= 0 || now > latest {
		return 0, ErrInvalidTime
	}
	return now, nil
}

// Batch answers ops independently, in one round trip to the store. len(out) must be at
// least len(ops). If the store fails, every decision is the policy's.
func (l *Limiter) Batch(ctx context.Context, ops []store.Op, out []store.Decision) error {
	return l.do(ctx, ops, out, store.Independent)
}

// AllowAll takes every op if all of them fit, and none otherwise. It writes the
// decisions to out, which must be at least as long as ops, and returns the tightest;
// see [Decision.Tighter].
func (l *Limiter) AllowAll(ctx context.Context, ops []store.Op, out []store.Decision) (store.Decision, error) {
	err := l.do(ctx, ops, out, store.AllOrNothing)
	if len(ops) == 0 {
		return store.Decision{Allowed: true, Reason: ReasonNoLimit}, err
	}
	if len(out) < len(ops) {
		return store.Decision{}, err
	}
	return out[store.Tightest(out[:len(ops)])], err
}

func (l *Limiter) do(ctx context.Context, ops []store.Op, out []store.Decision, mode store.Mode) error {
	if len(out) < len(ops) {
		return store.ErrShortOut
	}
	now, err := l.stamp()
	if err == nil {
		if l.clock != nil {
			stamped := l.stamped(ops, now)
			ops = *stamped
			defer l.putBack(stamped)
		}
		if err = store.ExecuteAll(ctx, l.store, ops, out, mode); err == nil {
			return nil
		}
	}
	if l.fallback != nil && isUnavailable(err) && l.fallBack(ctx, ops, out, mode) {
		return err
	}
	for i := range ops {
		out[i] = l.policy(&ops[i], err)
	}
	return err
}

// stamped returns a copy of ops, which belong to the caller, with the time now where
// none is set.
func (l *Limiter) stamped(ops []store.Op, now int64) *[]store.Op {
	s := l.spare.Swap(nil)
	if s == nil {
		s = new([]store.Op)
	}
	*s = append((*s)[:0], ops...)
	for i := range *s {
		if (*s)[i].At == 0 {
			(*s)[i].At = now
		}
	}
	return s
}

// putBack keeps s for the next call, without the callers' keys.
func (l *Limiter) putBack(s *[]store.Op) {
	const most = 64
	clear(*s)
	if len(*s) <= most {
		l.spare.Store(s)
	}
}

// failed returns the decision that goes with err: the fallback's, or else the policy's.
func (l *Limiter) failed(ctx context.Context, op store.Op, err error) (store.Decision, error) {
	if l.fallback != nil && isUnavailable(err) {
		ops, out := [1]store.Op{op}, [1]store.Decision{}
		if l.fallBack(ctx, ops[:], out[:], store.Independent) {
			return out[0], err
		}
	}
	return l.policy(&op, err), err
}

// fallBack asks the fallback for its share of each limit, and reports whether it
// answered. The caller's deadline may have passed, but the fallback needs no time.
func (l *Limiter) fallBack(ctx context.Context, ops []store.Op, out []store.Decision, mode store.Mode) bool {
	shared := slices.Clone(ops)
	for i := range shared {
		shared[i].Rule = shared[i].Rule.Share(l.share)
	}
	if store.ExecuteAll(context.WithoutCancel(ctx), l.fallback, shared, out, mode) != nil {
		return false
	}
	for i := range out[:len(ops)] {
		if out[i].Reason != ReasonNoLimit {
			out[i].Reason = ReasonFallback
		}
	}
	return true
}

// policy returns the answer of the failure policy. An invalid request is refused under
// every policy.
func (l *Limiter) policy(op *store.Op, err error) store.Decision {
	d := store.Decision{Reason: ReasonFailClosed, Limit: op.Rule.Most()}
	if l.failure == FailureAllow && isUnavailable(err) {
		d.Allowed, d.Reason, d.Granted = true, ReasonFailOpen, op.Cost
	}
	return d
}
