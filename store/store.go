// Package store is what stores and their callers say to each other: ops, batches, decisions,
// and the compiled rules of limits. It is for authors of stores, and of code that builds on
// a Limiter; programs that limit something need package headgate alone. The stores
// themselves are in the folders below.
//
// A store has one method that decides, Do of [Store], which documents the contract, and
// passes the tests of package store/storetest. Callers use [Execute] for one op,
// [ExecuteAll] for several, or Do itself for many requests at a time. A store that wraps
// another is one method around one method: all that the inner store can do passes through,
// and nothing else needs to be forwarded.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
)

// ErrShortOut is the caller's mistake: there is no space for the answers.
var ErrShortOut = errors.New("headgate: out is shorter than ops")

var (
	// ErrInvalidLimit is wrapped by every error about a limit that cannot be enforced:
	// unset, negative, too large or with incompatible options.
	ErrInvalidLimit = errors.New("invalid limit")
	// ErrInvalidCost is returned for a negative cost. To give back, use Refund.
	ErrInvalidCost = errors.New("invalid cost: it must not be negative")
	// ErrNoMember is returned for a limit of [Distinct] and an op that does not say which
	// value the request shows, or not by a number of [MemberOf].
	ErrNoMember = errors.New("a limit of distinct values needs the value that the request shows: use AllowMember, or set Op.Member to what MemberOf returns")
	// ErrNoSecret is returned by AllowMember without a secret, if the store is not memory:
	// the hash of values would be public, and processes with and without a secret would
	// each count their own.
	ErrNoSecret = errors.New("values in a shared store need a secret: pass WithSecret to headgate.New, the same 16 random bytes in every process")
	// ErrNoStore is returned by every method of a headgate.Limiter without a Store. Such a
	// Limiter refuses everything.
	ErrNoStore = errors.New("headgate.New was called without a store")
	// ErrInvalidFallback is wrapped by the error of every method of a headgate.Limiter whose
	// WithFallback has no store or an invalid share. Such a Limiter refuses everything.
	ErrInvalidFallback = errors.New("invalid fallback")
	// ErrInvalidDuration is returned for credit that would end immediately.
	ErrInvalidDuration = errors.New("invalid duration: credit must last longer than 0")
	// ErrInvalidTime is returned by every method of a headgate.Limiter if the clock set with
	// WithClock is out of range.
	ErrInvalidTime = errors.New("invalid time: the clock of WithClock must be after 1970-01-01T00:00:00Z and before 2112")
	// ErrUnavailable is wrapped by every error that means the store could not answer.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClosed is returned by a store that has been closed. It wraps ErrUnavailable.
	ErrClosed = plain.Error(ErrUnavailable, "closed")
	// ErrFull is wrapped by the error of a store that answers but has no memory for a
	// write. It wraps ErrUnavailable, as do ErrReadOnly and ErrRefused.
	ErrFull = plain.Error(ErrUnavailable, "out of memory")
	// ErrReadOnly is wrapped by the error of a store that answers but accepts no writes
	// at the moment: a replica, or one that has lost its replicas or its disk.
	ErrReadOnly = plain.Error(ErrUnavailable, "read-only")
	// ErrRefused is wrapped by the error of a store that answers but refused this
	// operation, for example because the key holds something else.
	ErrRefused = plain.Error(ErrUnavailable, "request refused")
	// ErrNotSent is wrapped by the error of a store that was not asked, so nothing
	// was counted. It wraps ErrUnavailable.
	ErrNotSent = plain.Error(ErrUnavailable, "not sent")
	// ErrCrossSlot is returned for AllOrNothing if the keys are in different
	// slots of a Redis Cluster and the operation must be strictly atomic or cannot be
	// undone.
	ErrCrossSlot = errors.New("keys are in different cluster slots")
)

// PartError is the error of a store that asks several others, some of which gave no
// answer, if it is set up to say so. The decisions of the other ops are valid. With
// AllOrNothing what these took stays taken unless one of them was refused: the
// caller decides what the failure means, and refunds what it does not need.
type PartError struct {
	Err    error  // why there is no answer; it wraps ErrUnavailable
	Failed []bool // the ops without an answer, by their index
}

// Error returns the text of Err.
func (e *PartError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PartError) Unwrap() error { return e.Err }

// Failed reports whether op i of a call that returned err has no answer.
func Failed(err error, i int) bool {
	if err == nil {
		return false
	}
	if part, ok := errors.AsType[*PartError](err); ok && i < len(part.Failed) {
		return part.Failed[i]
	}
	return true
}

// ErrNoKeyTimes means that a store has not been told to record when keys are created and
// changed.
var ErrNoKeyTimes = errors.New("the store does not record key times")

// Times tell when the state of a key was created and last changed, by the clock of the
// store. Both are zero if the key has no state, like one that was never used. Recording
// them costs memory and time, so it must be turned on when the store is opened.
type Times struct {
	// Created is when the first request was counted since the key had no state. It is
	// zero if the store did not record it then, for example before a restart.
	Created time.Time
	// Changed is when the state was last changed. A refusal changes nothing unless
	// refusals count (see [headgate.Limit.WithRefusalsCounted]) or the period has changed.
	Changed time.Time
}

// KeyTimes returns the times of the state that the Key of op has under its Scope and
// Rule, At its At. Other fields are not used. It writes nothing. The error is
// [ErrNoKeyTimes], or one of [Store].
func KeyTimes(ctx context.Context, s Store, op Op) (Times, error) {
	op = Op{Key: op.Key, Scope: op.Scope, Rule: op.Rule, At: op.At, Kind: KindTimes}
	if op.Rule == nil {
		op.Rule = unsetRule
	}
	b := Batch{Ops: []Op{op}, Out: make([]Decision, 1), Groups: []Group{{Ops: 1}}}
	switch s.Do(ctx, &b); {
	case b.Groups[0].Err != nil:
		return Times{}, b.Groups[0].Err
	case !b.Recorded:
		return Times{}, ErrNoKeyTimes
	}
	return Times{b.Created, b.Changed}, nil
}

// Direct is the one exception to the one method of stores: memory decides in less time
// than it takes to fill a [Batch], so headgate.Limiter.AllowN asks for this by
// type. Who calls many at a time uses it to tell that a round trip is not worth saving.
type Direct interface {
	// TakeN executes Op{Key: key, Rule: rule, Cost: n}, with the default failure
	// policy applied: with an error that wraps ErrUnavailable the decision is allowed
	// with ReasonFailOpen, with any other error it is refused with ReasonFailClosed.
	TakeN(ctx context.Context, key string, rule *Rule, n int64) (Decision, error)
}
