package headgate

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
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

// Limiter asks a [Store] about limits. It holds no counts and no limits: a program
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
	direct   direct
	store    Store
	clock    func() time.Time
	failure  FailurePolicy
	fallback Store
	share    float64
	secret   [16]byte             // see WithSecret
	falls    bool                 // whether there was a WithFallback
	flaw     error                // of what New was given
	spare    atomic.Pointer[[]Op] // of stamped, while no call uses it
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
// the Reason [Fallback] and come with the error that wraps [ErrUnavailable]. If the
// fallback fails too, the failure policy decides. Without a store, or with a share
// outside (0, 1], every call is refused with [ErrInvalidFallback].
//
// The two stores are independent. When the Limiter's own store answers again, its
// counts apply, without what passed in between; those of the fallback fade. So an
// outage admits at most the limit again, times the sum of all shares.
func WithFallback(store Store, share float64) Option {
	return func(l *Limiter) { l.fallback, l.share, l.falls = store, share, true }
}

// direct is store.Direct, which is documented for authors of stores.
type direct interface {
	TakeN(ctx context.Context, key string, limit Limit, n int64) (Decision, error)
}

// New returns a Limiter that keeps its counts in store. One Limiter serves any number
// of limits, and several Limiters may share a store. Without a store, or with a nil
// pointer as one, every call is refused with [ErrNoStore]; [Limiter.Validate] reports
// it at once.
func New(store Store, options ...Option) *Limiter {
	l := &Limiter{store: store}
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
	if d, ok := l.store.(direct); ok && l.clock == nil && l.failure == FailureAllow && l.fallback == nil {
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
		return &detailError{kind: ErrInvalidFallback, detail: "no store"}
	case l.falls && !(l.share > 0 && l.share <= 1):
		return &detailError{kind: ErrInvalidFallback, detail: "the share must be more than 0 and at most 1, such as 0.25 for four processes"}
	}
	return nil
}

// isNil reports whether store is nil or a nil pointer, such as one returned with an
// error.
func isNil(store Store) bool {
	v := reflect.ValueOf(store)
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
	for _, store := range [...]Store{l.store, l.fallback} {
		if store == nil {
			continue
		}
		if err := ExecuteAll(context.Background(), store, nil, nil, Independent); err != nil && !isUnavailable(err) {
			return err
		}
	}
	return nil
}

// flawed is the store of a Limiter that cannot work.
type flawed struct{ err error }

func (f flawed) Do(_ context.Context, b *Batch) { b.Fail(f.err) }

func (flawed) Close() error { return nil }

// through answers as a direct store would, using Do.
type through struct{ *Limiter }

func (t through) TakeN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return t.Do(ctx, Op{Key: key, Limit: limit, Cost: n})
}

// Allow takes 1 if it fits. It is shorthand for AllowN(ctx, key, limit, 1).
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n if all of it fits, and nothing otherwise. The key is counted under
// limit; other limits count it separately, unless they have the same name
// ([Limit.Named]).
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.direct.TakeN(ctx, key, limit, n) // so short that it is inlined
}

// AllowUpTo takes as much of n as fits; Decision.Granted is the amount. It is refused
// only if nothing fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: TakeUpTo})
}

// Peek reports whether AllowN would pass, and when, without writing anything. Remaining
// and ResetAfter are those of the current state.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Peek})
}

// Charge takes n whether it fits or not, for costs that are known only afterwards. The
// key may go into debt, which later requests must wait out. Allowed reports whether it
// is out of debt.
func (l *Limiter) Charge(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Charge})
}

// Refund returns n to the key, up to the full limit. To return an earlier take, cancel
// its Reservation instead, which subtracts what has refilled since.
func (l *Limiter) Refund(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Refund})
}

// Grant adds n as credit above the limit for the time lasting, for example after a
// payment. Credit is used when the limit is spent, and does not refill. Further grants
// add up and last until the latest of their ends. lasting must be more than 0.
func (l *Limiter) Grant(ctx context.Context, key string, limit Limit, n int64, lasting time.Duration) (Decision, error) {
	if lasting <= 0 {
		return Decision{Reason: FailClosed, Limit: limit.Capacity()}, ErrInvalidDuration
	}
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Grant, Duration: lasting})
}

// Reset removes the key's use and credit under the limit's algorithm.
func (l *Limiter) Reset(ctx context.Context, key string, limit Limit) error {
	_, err := l.Do(ctx, Op{Key: key, Limit: limit, Kind: Reset})
	return err
}

// Do executes one op of any kind, and applies the failure policy.
func (l *Limiter) Do(ctx context.Context, op Op) (d Decision, err error) {
	if op.At == 0 && l.clock != nil {
		if op.At, err = l.stamp(); err != nil {
			return l.policy(&op, err), err
		}
	}
	if d, err = Execute(ctx, l.store, op); err == nil {
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
func (l *Limiter) Batch(ctx context.Context, ops []Op, out []Decision) error {
	return l.do(ctx, ops, out, Independent)
}

// AllowAll takes every op if all of them fit, and none otherwise. It writes the
// decisions to out, which must be at least as long as ops, and returns the tightest;
// see [Decision.Tighter].
func (l *Limiter) AllowAll(ctx context.Context, ops []Op, out []Decision) (Decision, error) {
	err := l.do(ctx, ops, out, AllOrNothing)
	if len(ops) == 0 {
		return Decision{Allowed: true, Reason: NoLimit}, err
	}
	if len(out) < len(ops) {
		return Decision{}, err
	}
	return out[Tightest(out[:len(ops)])], err
}

// Tightest returns the index of the tightest decision, the first of equals, and -1 if
// there is none; see [Decision.Tighter].
func Tightest(decisions []Decision) int {
	best := -1
	for i := range decisions {
		if best < 0 || decisions[i].Tighter(decisions[best]) {
			best = i
		}
	}
	return best
}

func (l *Limiter) do(ctx context.Context, ops []Op, out []Decision, mode Mode) error {
	if len(out) < len(ops) {
		return errShortOut
	}
	now, err := l.stamp()
	if err == nil {
		if l.clock != nil {
			stamped := l.stamped(ops, now)
			ops = *stamped
			defer l.putBack(stamped)
		}
		if err = ExecuteAll(ctx, l.store, ops, out, mode); err == nil {
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
func (l *Limiter) stamped(ops []Op, now int64) *[]Op {
	s := l.spare.Swap(nil)
	if s == nil {
		s = new([]Op)
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
func (l *Limiter) putBack(s *[]Op) {
	const most = 64
	clear(*s)
	if len(*s) <= most {
		l.spare.Store(s)
	}
}

// failed returns the decision that goes with err: the fallback's, or else the policy's.
func (l *Limiter) failed(ctx context.Context, op Op, err error) (Decision, error) {
	if l.fallback != nil && isUnavailable(err) {
		ops, out := [1]Op{op}, [1]Decision{}
		if l.fallBack(ctx, ops[:], out[:], Independent) {
			return out[0], err
		}
	}
	return l.policy(&op, err), err
}

// fallBack asks the fallback for its share of each limit, and reports whether it
// answered. The caller's deadline may have passed, but the fallback needs no time.
func (l *Limiter) fallBack(ctx context.Context, ops []Op, out []Decision, mode Mode) bool {
	shared := slices.Clone(ops)
	for i := range shared {
		shared[i].Limit = shared[i].Limit.Share(l.share)
	}
	if ExecuteAll(context.WithoutCancel(ctx), l.fallback, shared, out, mode) != nil {
		return false
	}
	for i := range out[:len(ops)] {
		if out[i].Reason != NoLimit {
			out[i].Reason = Fallback
		}
	}
	return true
}

// policy returns the answer of the failure policy. An invalid request is refused under
// every policy.
func (l *Limiter) policy(op *Op, err error) Decision {
	d := Decision{Reason: FailClosed, Limit: op.Limit.Capacity()}
	if l.failure == FailureAllow && isUnavailable(err) {
		d.Allowed, d.Reason, d.Granted = true, FailOpen, op.Cost
	}
	return d
}
