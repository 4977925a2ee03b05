package headgate

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// FailurePolicy says what a Limiter answers when its store cannot.
type FailurePolicy uint8

const (
	// FailureAllow lets requests pass. It is the default: a limiter's own
	// outage should not become everyone's.
	FailureAllow FailurePolicy = iota
	// FailureDeny refuses requests, for limits that protect something that
	// must not be open even for a moment.
	FailureDeny
)

// Limiter asks a [Store] about limits. It holds no counts and no limits: a program
// usually has one for each store, made once by [New], and gives every call the key
// and the [Limit] to ask about. It is safe for use by any number of goroutines.
//
// Most programs need one method. [Limiter.Allow] takes 1 if it fits and says at once
// whether the request may pass; a server answers a refusal with
// Decision.RetryAfter. [Limiter.Wait] is for clients and workers, who would rather
// be late than refused. The others are for what one number does not say:
//
//   - a request that costs more than 1, or as much as is left: AllowN, AllowUpTo
//   - a cost that is known afterwards: Reserve and then Commit or Cancel, or Charge
//   - what is in progress at the same time: [Concurrent] with Acquire
//   - several limits on one request, all or nothing: AllowAll
//   - many keys in one round trip, each by itself: Batch
//   - support: Peek, Grant, Reset
//
// Every method returns a Decision that can be acted on, whatever the error. A
// refusal is no error. If the store could not answer, the error wraps
// [ErrUnavailable] and the Decision is what [WithFallback], or else the
// [FailurePolicy], says; so who ignores the error has the policy. If the question
// made no sense (an invalid limit, a negative cost), it is refused: a mistake must
// not lift a limit. A cost of 0 is a dry run.
//
// The traps: a key is counted under its limit, so PerSecond(5) and PerHour(100)
// count the same key apart, and other numbers are another count, unless the limits
// have a name ([Limit.Named]). Keys of several parts are joined by [AppendKey]; with
// a separator, a client could write one that is somebody else's. Limits are
// compiled when they are made: make them once, not for every request.
//
// Time is that of the store, or of [WithClock], which is the one way to inject a
// clock: every op is stamped with it, Wait, Sleep and what is built on the Limiter
// (package httplimit, grpclimit) go by it. A test that uses testing/synctest needs
// none. New makes a Limiter; the zero Limiter has no store to ask.
type Limiter struct {
	// direct is the store, where it can do without this Limiter, or through.
	direct   direct
	store    Store
	clock    func() time.Time
	failure  FailurePolicy
	fallback Store
	share    float64
	falls    bool                 // whether there was a WithFallback
	flaw     error                // of what New was given
	spare    atomic.Pointer[[]Op] // of stamped, while no call uses it
}

// Option configures a Limiter.
type Option func(*Limiter)

// WithClock makes the Limiter stamp every op with clock's time. Without it the
// store's own clock decides. The clock of a test must not begin at time.Time{} or
// time.Unix(0, 0): at a time that is not after 1970-01-01 00:00 UTC, and before 2112,
// every call refuses with [ErrInvalidTime]. Stores that many processes share (Redis) always
// use their own.
func WithClock(clock func() time.Time) Option {
	return func(l *Limiter) { l.clock = clock }
}

// WithFailurePolicy sets what is answered when the store cannot answer.
func WithFailurePolicy(p FailurePolicy) Option {
	return func(l *Limiter) { l.failure = p }
}

// WithFallback makes store answer when the Limiter's own cannot: usually
// store/memory, so that this process goes on by itself. It enforces
// [Limit.Share](share) of each limit, such as 0.25 on four processes that share
// a Redis. Its decisions have the Reason [Fallback], beside the error that wraps
// [ErrUnavailable]. A Limiter with a fallback of no store, or a share that is not in
// (0, 1], refuses everything with [ErrInvalidFallback], and does not wait for an
// outage to say so.
//
// The two stores know nothing of each other. When the Limiter's own store
// answers again, its counts are the ones that hold, without what passed in the
// meantime; those of the fallback fade by themselves. So one outage admits at
// most the limit once more, times the shares of all processes. Should the
// fallback fail too, the failure policy decides.
func WithFallback(store Store, share float64) Option {
	return func(l *Limiter) { l.fallback, l.share, l.falls = store, share, true }
}

// direct is store.Direct, which is documented where authors of stores look.
type direct interface {
	TakeN(ctx context.Context, key string, limit Limit, n int64) (Decision, error)
}

// New returns a Limiter that keeps its state in store. Any number of limits may
// ask one Limiter, and any number of Limiters one store: each limit counts for
// itself, see [Limit]. Without a store, which a nil pointer is too, every call
// returns [ErrNoStore] and refuses; [Limiter.Validate] says so at once.
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

// flawOfStores returns why l cannot work with its stores; nil if it can.
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

// isNil reports whether there is no store: none at all, or a nil pointer, such as
// that beside the error of a constructor.
func isNil(store Store) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Validate returns what keeps l from working: [ErrNoStore] if there is no limiter, or
// none with a store, to ask, [ErrInvalidFallback], [ErrInvalidTime], or what a store that has a method
// Validate() error, as those that wrap another do, says of itself. It is for code
// that is built on a Limiter and wants to fail early.
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
		if v, ok := store.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flawed is the store of a Limiter that cannot work.
type flawed struct{ err error }

func (f flawed) Take(context.Context, Op) (Decision, error) { return Decision{}, f.err }

func (f flawed) Do(context.Context, []Op, []Decision, Mode) error { return f.err }

func (flawed) Close() error { return nil }

// through answers as a Direct store would, by Do.
type through struct{ *Limiter }

func (t through) TakeN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return t.Do(ctx, Op{Key: key, Limit: limit, Cost: n})
}

// Allow takes 1 if it fits; it is shorthand for AllowN(ctx, key, limit, 1). The key
// is counted under this limit: another limit, such as PerHour after PerSecond, has
// a count of its own for it, unless both have one name ([Limit.Named]).
func (l *Limiter) Allow(ctx context.Context, key string, limit Limit) (Decision, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n if all of it fits, and nothing otherwise.
func (l *Limiter) AllowN(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.direct.TakeN(ctx, key, limit, n) // so short that it is inlined
}

// AllowUpTo takes as much of n as fits; Decision.Granted says how much. It is
// refused only if nothing fits.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: TakeUpTo})
}

// Peek says whether AllowN would pass, and when, and writes nothing. Its
// Remaining and ResetAfter are those of the untouched state.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Peek})
}

// Charge takes n whether it fits or not, for costs known only afterwards. The
// key may go into debt, which later requests have to wait out. Allowed reports
// whether it is out of debt.
func (l *Limiter) Charge(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Charge})
}

// Refund gives n back, up to the full limit. To return a take of some time
// ago, cancel its Reservation instead, which does not give back what time has
// given back already.
func (l *Limiter) Refund(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Refund})
}

// Grant adds n as credit above the limit for the time given, for example after
// a payment. Credit is used when the limit is spent; it does not refill. A
// further grant adds up and lasts until the later of the two ends. A time that is
// not more than 0 is an error.
func (l *Limiter) Grant(ctx context.Context, key string, limit Limit, n int64, lasting time.Duration) (Decision, error) {
	if lasting <= 0 {
		return Decision{Reason: FailClosed, Limit: limit.Capacity()}, ErrInvalidDuration
	}
	return l.Do(ctx, Op{Key: key, Limit: limit, Cost: n, Kind: Grant, Duration: lasting})
}

// Reset forgets the key's use and credit under the limit's algorithm.
func (l *Limiter) Reset(ctx context.Context, key string, limit Limit) error {
	_, err := l.Do(ctx, Op{Key: key, Limit: limit, Kind: Reset})
	return err
}

// Do executes one op of any kind and applies the failure policy.
func (l *Limiter) Do(ctx context.Context, op Op) (d Decision, err error) {
	if op.At == 0 && l.clock != nil {
		if op.At, err = l.stamp(); err != nil {
			return l.policy(&op, err), err
		}
	}
	if d, err = l.store.Take(ctx, op); err == nil {
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

// Batch answers ops independently, in one round trip to the store. out must
// have room for as many decisions. On a store failure each of them is the
// policy's.
func (l *Limiter) Batch(ctx context.Context, ops []Op, out []Decision) error {
	return l.do(ctx, ops, out, Independent)
}

// AllowAll takes every op if all of them fit and none otherwise. It returns
// the tightest decision: of a refusal the longest, of an admission the one
// with least remaining. out, which must have room for one decision per op,
// holds them all.
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

// Tightest returns the index of the decision that constrains most, the first
// of equals, and -1 if there is none; see [Decision.Tighter].
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
		if err = l.store.Do(ctx, ops, out, mode); err == nil {
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

// stamped returns a copy of ops, which are the caller's, with the time now where they
// have none.
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

// failed returns the decision beside err: the fallback's or else the policy's.
func (l *Limiter) failed(ctx context.Context, op Op, err error) (Decision, error) {
	if l.fallback != nil && isUnavailable(err) {
		ops, out := [1]Op{op}, [1]Decision{}
		if l.fallBack(ctx, ops[:], out[:], Independent) {
			return out[0], err
		}
	}
	return l.policy(&op, err), err
}

// fallBack asks the fallback for its share of each limit, and reports whether
// it has answered. The caller's deadline may have passed by now; the fallback
// is here and needs no time.
func (l *Limiter) fallBack(ctx context.Context, ops []Op, out []Decision, mode Mode) bool {
	shared := slices.Clone(ops)
	for i := range shared {
		shared[i].Limit = shared[i].Limit.Share(l.share)
	}
	if l.fallback.Do(context.WithoutCancel(ctx), shared, out, mode) != nil {
		return false
	}
	for i := range out[:len(ops)] {
		if out[i].Reason != NoLimit {
			out[i].Reason = Fallback
		}
	}
	return true
}

// policy returns what the failure policy answers. A question that was wrong is
// refused under any policy.
func (l *Limiter) policy(op *Op, err error) Decision {
	d := Decision{Reason: FailClosed, Limit: op.Limit.Capacity()}
	if l.failure == FailureAllow && isUnavailable(err) {
		d.Allowed, d.Reason, d.Granted = true, FailOpen, op.Cost
	}
	return d
}
