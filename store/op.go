package store

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
)

// Kind says what an Op does.
type Kind uint8

const (
	// KindTake takes Cost if all of it fits, and nothing otherwise.
	KindTake Kind = iota
	// KindTakeUpTo takes as much of Cost as fits.
	KindTakeUpTo
	// KindPeek answers like Take and writes nothing.
	KindPeek
	// KindCharge takes Cost whether it fits or not; the key may go into debt.
	KindCharge
	// KindRefund returns Cost, up to the full limit, but nothing that the times of later
	// bookings rely on.
	KindRefund
	// KindGrant adds Cost as credit above the limit, for Op.Duration.
	KindGrant
	// KindReset removes the key's state.
	KindReset
	// KindReserve takes Cost now, or books it for later, at most Op.Duration from now. Only
	// buckets can book; windows answer as for Take.
	KindReserve
	// KindRelease ends Cost of the lease named by Op.Lease. Decision.Granted is how much of
	// it still existed; 0 is not a refusal.
	KindRelease
	// KindRenew replaces Cost of the lease named by Op.Lease by a new lease, which lasts
	// its full time from now and is named by Decision.Lease. It is refused as [Expired]
	// if the lease no longer exists, and never because the limit is reached.
	KindRenew
	// KindDraw takes up to Cost for a process that then decides on its own, but not more
	// than a quarter of what is left (or 1), so that other processes get some too. What
	// was drawn, Decision.Granted, may be used until Decision.Delay is over, counted
	// from before the call; that is at most Op.Duration. It counts as if it had been
	// used. To give back what is left, Refund it with the Decision.CountsUntil of the
	// draw, all at once. Credit is not drawn. A refusal says when 1 can be drawn, or
	// Never where the limit cannot be drawn from; see [Rule.CanDraw].
	KindDraw
	// KindTimes reads when the state of the key was created and last changed, into Created
	// and Changed of the [Batch], of which it must be the only op, with a Cost of 0. Most
	// stores do not record that; see KeyTimes of package store.
	KindTimes
)

// String returns the kind's name in lower case, such as take_up_to.
func (k Kind) String() string {
	if k <= KindTimes {
		return [...]string{
			KindTake: "take", KindTakeUpTo: "take_up_to", KindPeek: "peek", KindCharge: "charge", KindRefund: "refund", KindGrant: "grant",
			KindReset: "reset", KindReserve: "reserve", KindRelease: "release", KindRenew: "renew", KindDraw: "draw", KindTimes: "times",
		}[k]
	}
	return plain.Numbered("kind", uint8(k))
}

// Op is one operation of a store on one key.
type Op struct {
	// Key says who or what is counted: opaque bytes of any length. Join parts with
	// headgate.AppendKey, so that (a_b, c) and (a, b_c) stay different. A store may read it
	// only during the call.
	Key string
	// Scope is a namespace for keys, such as the domain and name of a rule. The same
	// Key in two scopes has two states. Without a Scope, the limit's name is the
	// namespace, and without a name the limit itself; see [Op.Space]. A Redis store
	// puts all scopes of a Key into one cluster slot.
	Scope string
	// Rule is the limit to apply: what headgate.Limit.Rule returns. Within one Scope or
	// name, the state survives a change of its numbers; each Algorithm has its own state.
	// Every op of a [Batch] has one.
	Rule *Rule
	// Cost is the cost of the request. It must not be negative. With 0, every kind is a
	// dry run.
	Cost int64
	// At is the time of the request in microseconds since the Unix epoch. With 0 the
	// store uses its own clock, as shared stores always do.
	At int64
	// Duration is, for Reserve, the longest acceptable wait; for Draw, how long what was
	// drawn is to be used; for Grant, how long the credit lasts; for Refund without CountsUntil, how long the take would still have
	// counted (its ResetAfter less its age), or 0 for a take of just now.
	Duration time.Duration
	// CountsUntil is, for Refund, the Decision.CountsUntil of the take, or 0 if it is
	// unknown. With it the store finds the take by its own clock, even if that was set
	// in the meantime, and refunds nothing once the take no longer counts. Duration is
	// then ignored.
	CountsUntil int64
	Lease       int64 // is, for Release and Renew, the Decision.Lease of the take
	// Member is, for a limit of [Distinct], the value that the request shows, hashed by
	// [MemberOf]. Every kind that takes or gives back needs it; without it Peek answers
	// for a new value. Other limits ignore it.
	Member uint64
	Kind   Kind // what to do
	// Leave is, for Take and Peek, how much of the limit must be left afterwards for
	// requests of a higher class, in millionths, rounded up to whole tokens: with 200,000 a
	// Take from a bucket of 10 passes only if 2 are left. A fixed window lends what is kept
	// for them evenly, until nothing is kept when it ends. Credit does not count for the
	// limit. What would pass without it is refused with [ReasonHeadroom], and what could
	// never pass with [ReasonTooLarge]. See [Rule.CanKeep].
	Leave uint32
	// Share is, for Take, Peek, Charge and Refund, whose fair share of the bucket the request
	// takes from, or gives back to; nil if the bucket is not shared. A request passes if the
	// bucket has its cost and its owner has not used more than others, for its weight. Who
	// has is refused with [ReasonShare]. Reserve, Draw and TakeUpTo cannot have one; other
	// kinds ignore it. See [NewFair].
	Share *Share
}

// Whole is an [Op.Leave] of the whole limit.
const Whole = 1_000_000

// Kept returns Leave in tokens; 0 if the kind of the op ignores it.
func (o *Op) Kept() int64 {
	if o.Leave == 0 || o.Kind != KindTake && o.Kind != KindPeek {
		return 0
	}
	return (o.Rule.Most()*int64(min(o.Leave, Whole)) + Whole - 1) / Whole // at most 2^60
}

// Mode says how the ops of a [Group] depend on each other.
type Mode uint8

const (
	// Independent answers each op separately.
	Independent Mode = iota
	// AllOrNothing writes only if every op is allowed. If one is refused, the decisions
	// of the others are those of Peek, and only limits that count refusals write (see
	// headgate.Limit.WithRefusalsCounted).
	AllOrNothing
)

// Store keeps the counts of keys. Create one and pass it to headgate.New: store/memory keeps
// counts in this process, store/redis shares them between processes, and store/failsafe
// wraps another store with a deadline and a circuit breaker. To implement a store, keep
// the following contract, which package store/storetest checks.
//
// Do executes each [Op] exactly as the step of its limit's algorithm (package
// algorithm) does, so that every store gives the same numbers. Each op is atomic: of
// two takes of the last token one is refused, whatever machine they come from. An op
// sees the writes of those before it in its [Group]. Groups are independent: a store may
// execute some later than those after them, and documents when.
//
// A refusal is not an error. It is a [Decision] that says when to retry, and it writes
// nothing, unless the limit counts refusals. The error of a group means that its ops have
// no answer:
//
//   - ErrInvalidLimit, ErrInvalidCost or ErrNoMember: an op is invalid; see
//     [Op.Validate]. It is refused before anything of its group is written.
//   - An error that wraps ErrUnavailable: everything else. The ops may or may not have
//     been executed. The store must not retry them, since they might count twice.
//
// What a failure means for the request is decided by the Limiter and its
// headgate.FailurePolicy, not by the store. A group without ops asks nothing: its error says
// what keeps the store from working at all, such as ErrNoStore or ErrClosed.
//
// Time is the store's own unless Op.At is set. A store that many processes share uses
// its own clock and ignores Op.At. A state must be kept until its ResetAfter is over
// (in a caller's own zone, longer: until the FreshAt of the step);
// then it equals that of an unused key and may be removed. Removing it earlier gives
// the key its whole limit back, so a full store removes the keys that lose least.
//
// Methods must be safe for concurrent use. The Batch and its keys are valid only during
// the call. Common mistakes: a group that writes some ops before it finds an invalid
// one; and a lifetime that is rounded down.
type Store interface {
	// Do answers a Batch, in one round trip if the store is remote. A store that wraps
	// another passes the Batch on, or a Batch of its own.
	Do(ctx context.Context, b *Batch)
	// Close releases the store's resources. Later calls return ErrClosed.
	Close() error
}
