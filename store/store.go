// Package store is for authors of stores and of code that wraps stores. It defines
// optional interfaces of a [headgate.Store] and errors that describe a store's
// condition. The stores themselves are in the folders below.
//
// A store implements headgate.Store, which documents the contract, and passes the tests
// of package store/storetest. [Direct] and [Pipeliner] make it faster.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
)

var (
	// ErrFull is wrapped by the error of a store that answers but has no memory for a
	// write. It wraps headgate.ErrUnavailable, as do ErrReadOnly and ErrRefused.
	ErrFull = fmt.Errorf("%w: out of memory", headgate.ErrUnavailable)
	// ErrReadOnly is wrapped by the error of a store that answers but accepts no writes
	// at the moment: a replica, or one that has lost its replicas or its disk.
	ErrReadOnly = fmt.Errorf("%w: read-only", headgate.ErrUnavailable)
	// ErrRefused is wrapped by the error of a store that answers but refused this
	// operation, for example because the key holds something else.
	ErrRefused = fmt.Errorf("%w: request refused", headgate.ErrUnavailable)
	// ErrNotSent is wrapped by the error of a store that was not asked, so nothing
	// was counted. It wraps headgate.ErrUnavailable.
	ErrNotSent = fmt.Errorf("%w: not sent", headgate.ErrUnavailable)
	// ErrCrossSlot is returned for headgate.AllOrNothing if the keys are in different
	// slots of a Redis Cluster and the operation must be strictly atomic or cannot be
	// undone.
	ErrCrossSlot = errors.New("keys are in different cluster slots")
)

// PartError is the error of a store that asks several others, some of which gave no
// answer, if it is set up to say so. The decisions of the other ops are valid. With
// headgate.AllOrNothing what these took stays taken unless one of them was refused: the
// caller decides what the failure means, and refunds what it does not need.
type PartError struct {
	Err    error  // why there is no answer; it wraps headgate.ErrUnavailable
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

// Direct is an optional interface of stores that decide inside this process. A store that
// asks another for some limits implements [Pipeliner] as well.
// headgate.Limiter.AllowN then calls TakeN directly: passing an Op and a Decision
// around costs as much as deciding.
type Direct interface {
	// TakeN is Take for Op{Key: key, Limit: limit, Cost: n}, with the default failure
	// policy applied: with an error that wraps ErrUnavailable the decision is allowed
	// with the Reason FailOpen, with any other error it is refused with FailClosed.
	TakeN(ctx context.Context, key string, limit headgate.Limit, n int64) (headgate.Decision, error)
}

// Group is a run of ops in a Pipeline. They belong together like the ops of one
// headgate.Store.Do.
type Group struct {
	Ops  int           // number of ops
	Mode headgate.Mode // how they belong together
	Err  error         // what Do would return
}

// Pipeliner is an optional interface of remote stores: it executes many requests in one
// round trip.
type Pipeliner interface {
	// Pipeline executes groups in order, each like a separate Do, in one round trip if
	// possible, and sets the Err of each. ops holds the ops of all groups in sequence;
	// their answers go to the same indexes of out. All groups share the store's
	// deadline. A store may execute some groups later than those after them, and
	// documents when.
	Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []Group)
}

// Pipeline calls the Pipeline method of s if it is a [Pipeliner], and otherwise Do for
// each group.
func Pipeline(ctx context.Context, s headgate.Store, ops []headgate.Op, out []headgate.Decision, groups []Group) {
	if p, ok := s.(Pipeliner); ok {
		p.Pipeline(ctx, ops, out, groups)
		return
	}
	from := 0
	for i := range groups {
		to := from + groups[i].Ops
		groups[i].Err = s.Do(ctx, ops[from:to], out[from:to], groups[i].Mode)
		from = to
	}
}

// KeyTimes calls the KeyTimes method of s if it is a [headgate.KeyTimer]; otherwise the
// error is headgate.ErrNoKeyTimes.
func KeyTimes(ctx context.Context, s headgate.Store, op headgate.Op) (headgate.KeyTimes, error) {
	if timer, ok := s.(headgate.KeyTimer); ok {
		return timer.KeyTimes(ctx, op)
	}
	return headgate.KeyTimes{}, headgate.ErrNoKeyTimes
}
