// Package store has the words that only authors of stores need, and of code that
// wraps one: what a [headgate.Store] can do besides, and the errors by which it
// tells what is wrong with it. Each folder below is a store.
//
// A store implements headgate.Store, which says what it promises, and passes the
// suite of package store/storetest. [Direct] and [Pipeliner] make it faster.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
)

var (
	// ErrFull is wrapped by the error of a store that answers, but has no memory
	// to write what was asked. It is also a headgate.ErrUnavailable, as are
	// ErrReadOnly and ErrRefused.
	ErrFull = fmt.Errorf("%w: out of memory", headgate.ErrUnavailable)
	// ErrReadOnly is wrapped by the error of a store that answers, but writes
	// nothing for the time being: a replica, or one that has lost its replicas or
	// its disk.
	ErrReadOnly = fmt.Errorf("%w: read-only", headgate.ErrUnavailable)
	// ErrRefused is wrapped by the error of a store that answers, but refused this
	// question, for example because it found something else under the key.
	ErrRefused = fmt.Errorf("%w: request refused", headgate.ErrUnavailable)
	// ErrCrossSlot is returned for headgate.AllOrNothing in strict mode when the
	// keys are not in one slot of a Redis Cluster.
	ErrCrossSlot = errors.New("keys are in different cluster slots")
)

// Direct is what a store in this process may implement besides, so that
// headgate.Limiter.AllowN can ask it without a detour: to pass an Op and a
// Decision through functions costs as much as deciding does.
type Direct interface {
	// TakeN is Take for Op{Key: key, Limit: limit, Cost: n}, answering by the
	// default failure policy: the decision with an error that wraps ErrUnavailable
	// is allowed with the Reason FailOpen, with any other refused with FailClosed.
	TakeN(ctx context.Context, key string, limit headgate.Limit, n int64) (headgate.Decision, error)
}

// Group is some of the ops of a Pipeline, which belong together as those of one
// headgate.Store.Do do.
type Group struct {
	Ops  int           // how many there are
	Mode headgate.Mode // says how they belong together
	Err  error         // what Do would return
}

// Pipeliner is what a remote store may implement besides, so that many requests
// at once do not wait for one round trip each.
type Pipeliner interface {
	// Pipeline executes groups in order as if each were a Do of its own, in one
	// round trip where that can be, and sets the Err of each. The ops of all
	// groups stand in ops one after the other, and their answers get the same
	// places in out. What deadline a store has is that of all groups together.
	// A store may have to execute some groups later than those behind them, and
	// says when.
	Pipeline(ctx context.Context, ops []headgate.Op, out []headgate.Decision, groups []Group)
}

// Pipeline asks s about groups as [Pipeliner] says, and if it is none, about one
// after the other.
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
