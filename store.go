package headgate

import (
	"context"
	"time"
)

// Kind is what an Op does.
type Kind uint8

const (
	// Take takes Cost if all of it fits, else nothing.
	Take Kind = iota
	// TakeUpTo takes as much of Cost as fits.
	TakeUpTo
	// Peek answers as Take would and writes nothing.
	Peek
	// Charge takes Cost whether it fits or not; the key may go into debt.
	Charge
	// Refund gives Cost back, up to a full limit.
	Refund
	// Grant adds Cost as credit above the limit, for Op.Duration.
	Grant
	// Reset forgets the key.
	Reset
	// Reserve takes Cost at once or books it for later, at most Op.Duration
	// from now. Only buckets can book; windows answer as Take does.
	Reserve
	// Release ends Cost of the lease that Op.Lease names. Decision.Granted says
	// how much of it there was: 0 if it has ended before, which is no refusal.
	Release
	// Renew makes Cost of the lease that Op.Lease names a new one, which lasts
	// from now on; Decision.Lease names that. It is refused as [Expired] if
	// there is none, and never because the limit is reached.
	Renew
)

// String returns the kind's name in lower case, such as take_up_to.
func (k Kind) String() string {
	if k <= Renew {
		return [...]string{
			Take: "take", TakeUpTo: "take_up_to", Peek: "peek", Charge: "charge", Refund: "refund", Grant: "grant",
			Reset: "reset", Reserve: "reserve", Release: "release", Renew: "renew",
		}[k]
	}
	return numbered("kind", uint8(k))
}

// Op is one question to a store about one key.
type Op struct {
	// Key is what is counted: opaque bytes of any length. Join parts with
	// [AppendKey], so that (a_b, c) and (a, b_c) stay apart. A store reads
	// it during the call only.
	Key string
	// Scope is a namespace of keys, such as the domain and name of a rule.
	// The same Key in two scopes has two states. Without a Scope the limit's
	// name is the namespace, and without that what the limit means; see
	// [Op.Space]. A Redis store puts the scopes of one Key into one cluster
	// slot.
	Scope string
	// Limit is the limit to ask about. In one Scope, or under one name, a state
	// survives a change of its numbers; another Algorithm has a state of its own.
	Limit Limit
	// Cost is what the request takes; it must not be negative. With 0 every
	// kind is a dry run.
	Cost int64
	// At is the time of the request in microseconds since the Unix epoch. 0
	// asks the store to use its own clock, as a shared store always does.
	At int64
	// Duration is, for Reserve, the longest acceptable wait; for Grant, how
	// long the credit lasts; for Refund, how long the returned take would
	// still have counted (its ResetAfter less the time since then), or 0 for
	// a take of just now.
	Duration time.Duration
	Lease    int64 // is, for Release and Renew, the Decision.Lease of the take
	// Age is, for Refund, how long ago the returned take was, or 0 if that is
	// not known. A store that has had to forget counts since, perhaps this one,
	// then gives nothing back: it would come off what others have taken. A
	// store that cannot tell ignores it.
	Age  time.Duration
	Kind Kind // what to do
}

// Mode says how the ops of one [Store.Do] belong together.
type Mode uint8

const (
	// Independent answers each op by itself.
	Independent Mode = iota
	// AllOrNothing writes only if every op is allowed. Where one is refused,
	// the decisions of the others say what Peek would have said, and only the
	// refusals of limits that count them are written (see
	// [Limit.CountingDenied]).
	AllOrNothing
)

// Store keeps the counts of keys and answers questions about them. Users make one
// and hand it to [New]: store/memory keeps the counts in this process, store/redis
// where many processes share them, and store/failsafe puts a circuit breaker around
// another. This is what it promises, and what the author of another has to keep;
// package store/storetest checks it.
//
// A question is an [Op]. Take and Do execute it as the step of its limit's
// algorithm says (package algorithm), so that every store gives the same numbers.
// Each op is atomic: of two takes of the last token, one is refused, whatever
// machine they come from.
//
// A refusal is no error. It is a [Decision] that says when to try again, and it
// writes nothing, unless the limit counts refusals. An error means that there is no
// answer:
//
//   - ErrInvalidLimit or ErrInvalidCost: the question makes no sense. It is
//     refused before anything is written, also in the middle of Do.
//   - An error that wraps ErrUnavailable: anything else. Whether the op was executed
//     is then unknown. A store does not repeat it by itself, since it might count
//     twice.
//
// The store does not know what a failure means for the request; that is for the
// Limiter and its [FailurePolicy].
//
// Time is the store's own unless Op.At tells it. A store that many processes share
// goes by its own clock and ignores Op.At, as their clocks differ. A count lives
// until its ResetAfter is over: then it equals that of an unused key, and may be
// forgotten. To forget it before hands out a fresh budget, so a store that is full
// forgets the key that loses least.
//
// Methods may be called by any number of goroutines. Key is only good during the
// call: who keeps it clones it. The traps are: a Do that writes half of its ops
// before it finds an invalid one; a lifetime rounded down, by which a key is fresh
// too soon; and a Refund that gives back what a restart has already forgotten,
// which is what Op.Age is for.
type Store interface {
	// Take executes one op, whatever its Kind. It has no slices, so that
	// nothing escapes to the heap.
	Take(ctx context.Context, op Op) (Decision, error)
	// Do executes ops in order and writes each answer to the same place of
	// out, in one round trip if the store is remote. len(out) must be at
	// least len(ops). An op sees the writes of those before it.
	Do(ctx context.Context, ops []Op, out []Decision, mode Mode) error
	// Close releases what the store holds. Later calls return ErrClosed.
	Close() error
}
