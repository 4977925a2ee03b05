package store

import (
	"context"
	"sync"
	"time"
)

// Batch is one call of a [Store]: what it is asked, and what it answers. It belongs to
// the caller again when Do returns: a store that works on afterwards needs a copy, also
// of the keys.
//
// Most callers ask one thing, with [Execute] or [ExecuteAll]. A Batch of several groups
// is for many requests that arrive together.
type Batch struct {
	Ops    []Op       // of all groups, in sequence; a store does not change them
	Out    []Decision // their answers, by the same index; at least as long; a store overwrites all of each
	Groups []Group    // which ops belong together

	// Created and Changed are the answer to an op of [KindTimes], and Recorded says that
	// the store has given it. Other stores need not know that kind: it costs 0.
	Created, Changed time.Time
	Recorded         bool
}

// Group is a run of ops in a [Batch] that belong together. Groups are independent of each
// other, and each has its own error.
type Group struct {
	Ops  int   // number of ops; the sum of all groups is that of the Batch
	Mode Mode  // how they depend on each other
	Err  error // why there is no answer; set by the store
}

// Each lets do execute each group that has ops, in order, and sets its error. It is all
// that a store needs that executes groups one after the other.
func (b *Batch) Each(do func(ops []Op, out []Decision, mode Mode) error) {
	from := 0
	for i := range b.Groups {
		g := &b.Groups[i]
		to := from + g.Ops
		if g.Err = nil; g.Ops > 0 {
			g.Err = do(b.Ops[from:to], b.Out[from:to], g.Mode)
		}
		from = to
	}
}

// Fail sets the error of every group.
func (b *Batch) Fail(err error) {
	for i := range b.Groups {
		b.Groups[i].Err = err
	}
}

// Err returns the first error of a group, or nil.
func (b *Batch) Err() error {
	for i := range b.Groups {
		if err := b.Groups[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// single is a Batch of one op. Its slices are its own.
type single struct {
	Batch

	op    [1]Op
	out   [1]Decision
	group [1]Group
}

// Batches that no call uses, so that a call does not allocate.
//
//nolint:gochecknoglobals // like the pools of fmt
var singles, joints sync.Pool // of *single and *joint

// Execute executes one op in a store; see [Store]. It does not allocate.
func Execute(ctx context.Context, to Store, op Op) (d Decision, err error) {
	s, _ := singles.Get().(*single)
	if s == nil {
		s = new(single)
		s.Batch = Batch{Ops: s.op[:], Out: s.out[:], Groups: s.group[:]}
		s.group[0].Ops = 1
	}
	if s.op[0] = op; op.Rule == nil {
		s.op[0].Rule = unsetRule
	}
	to.Do(ctx, &s.Batch)
	d, err = s.out[0], s.group[0].Err
	s.op[0].Key, s.op[0].Scope, s.op[0].Share = "", "", nil // they may be in a larger text of the caller
	s.out[0], s.group[0].Err = Decision{}, nil
	singles.Put(s)
	return d, err
}

// joint is a Batch of one group of ops that belong to the caller.
type joint struct {
	Batch

	group [1]Group
}

// ExecuteAll executes ops in a store as one group, and writes each answer to the same
// index of out; see [Store]. It does not allocate.
func ExecuteAll(ctx context.Context, to Store, ops []Op, out []Decision, mode Mode) error {
	if len(out) < len(ops) {
		return ErrShortOut
	}
	for i := range ops {
		if ops[i].Rule == nil {
			return unsetRule.Validate()
		}
	}
	j, _ := joints.Get().(*joint)
	if j == nil {
		j = new(joint)
	}
	j.group[0] = Group{Ops: len(ops), Mode: mode}
	j.Ops, j.Out, j.Groups = ops, out[:len(ops)], j.group[:]
	to.Do(ctx, &j.Batch)
	err := j.group[0].Err
	j.Ops, j.Out, j.group[0].Err = nil, nil, nil
	joints.Put(j)
	return err
}
