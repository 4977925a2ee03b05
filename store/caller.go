package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Caller asks the store of a headgate.Limiter, with its clock, its fallback and its failure
// policy, for code that builds on one, such as middleware; see headgate.Limiter.Caller. It
// is safe for concurrent use. Its fields are set by headgate.New and do not change.
type Caller struct {
	Store      Store
	Fallback   Store            // answers when Store cannot, if it is not nil
	Share      float64          // what Fallback enforces of each limit
	Clock      func() time.Time // nil for that of the store
	FailClosed bool             // refuses when nobody answers

	spare atomic.Pointer[[]Op] // of stamped, while no call uses it

	claiming sync.Mutex // of claims
	claims   map[uint64][]Claim
}

// Claim is who counts under a limit without a name: one part of a whole that shares its
// counts, such as the interceptor for streams of a gRPC server.
type Claim struct{ Whole, Part string }

// Claim claims the counts of rules without a name for a middleware that is being built, and
// returns -1. If another middleware counts under one of them, it claims none and returns the
// index of that one: both would take from one count, which nobody meant. Parts of one whole
// may share.
func (c *Caller) Claim(rules []*Rule, by Claim) int {
	c.claiming.Lock()
	defer c.claiming.Unlock()
	if taken := c.taken(rules, by); taken >= 0 {
		return taken
	}
	if c.claims == nil {
		c.claims = map[uint64][]Claim{}
	}
	for _, r := range rules {
		c.claims[r.mark] = append(c.claims[r.mark], by)
	}
	return -1
}

// Taken returns what [Caller.Claim] would, and claims nothing.
func (c *Caller) Taken(rules []*Rule, by Claim) int {
	c.claiming.Lock()
	defer c.claiming.Unlock()
	return c.taken(rules, by)
}

func (c *Caller) taken(rules []*Rule, by Claim) int {
	return slices.IndexFunc(rules, func(r *Rule) bool {
		return slices.ContainsFunc(c.claims[r.mark], func(other Claim) bool {
			return other.Whole != by.Whole || other.Part == by.Part
		})
	})
}

// TakeN executes Op{Key: key, Rule: rule, Cost: n}, as [Direct] says.
func (c *Caller) TakeN(ctx context.Context, key string, rule *Rule, n int64) (Decision, error) {
	return c.Do(ctx, Op{Key: key, Rule: rule, Cost: n})
}

// Do executes one op of any kind, and applies the failure policy.
func (c *Caller) Do(ctx context.Context, op Op) (d Decision, err error) {
	if op.Rule == nil {
		op.Rule = Unset()
	}
	if op.At == 0 && c.Clock != nil {
		if op.At, err = c.stamp(); err != nil {
			return c.policy(&op, err), err
		}
	}
	if d, err = Execute(ctx, c.Store, op); err == nil {
		return d, nil
	}
	return c.failed(ctx, op, err)
}

// Validate returns what keeps c from working: [ErrInvalidTime], or what a store says of
// itself. A store that is only out of reach is none of these.
func (c *Caller) Validate() error {
	if _, err := c.stamp(); err != nil {
		return err
	}
	for _, s := range [...]Store{c.Store, c.Fallback} {
		if s == nil {
			continue
		}
		if err := ExecuteAll(context.Background(), s, nil, nil, Independent); err != nil && !isUnavailable(err) {
			return err
		}
	}
	return nil
}

// stamp returns the time of the Limiter's clock, or 0 if it has none.
func (c *Caller) stamp() (int64, error) {
	if c.Clock == nil {
		return 0, nil
	}
	const latest = 1 << 52 // what every algorithm counts to, in the year 2112
	now := c.Clock().UnixMicro()
	if now <= 0 || now > latest {
		return 0, ErrInvalidTime
	}
	return now, nil
}

// Batch answers ops independently, in one round trip to the store. len(out) must be at
// least len(ops). If the store fails, every decision is the policy's.
func (c *Caller) Batch(ctx context.Context, ops []Op, out []Decision) error {
	return c.do(ctx, ops, out, Independent)
}

// AllowAll takes every op if all of them fit, and none otherwise. It writes the
// decisions to out, which must be at least as long as ops, and returns the tightest;
// see [Decision.Tighter].
func (c *Caller) AllowAll(ctx context.Context, ops []Op, out []Decision) (Decision, error) {
	err := c.do(ctx, ops, out, AllOrNothing)
	if len(ops) == 0 {
		return Decision{Allowed: true, Reason: ReasonNoLimit}, err
	}
	if len(out) < len(ops) {
		return Decision{}, err
	}
	return out[Tightest(out[:len(ops)])], err
}

func (c *Caller) do(ctx context.Context, ops []Op, out []Decision, mode Mode) error {
	if len(out) < len(ops) {
		return ErrShortOut
	}
	now, err := c.stamp()
	if err == nil {
		if c.Clock != nil {
			stamped := c.stamped(ops, now)
			ops = *stamped
			defer c.putBack(stamped)
		}
		if err = ExecuteAll(ctx, c.Store, ops, out, mode); err == nil {
			return nil
		}
	}
	if c.Fallback != nil && isUnavailable(err) && c.fallBack(ctx, ops, out, mode) {
		return err
	}
	for i := range ops {
		out[i] = c.policy(&ops[i], err)
	}
	return err
}

// stamped returns a copy of ops, which belong to the caller, with the time now where
// none is set.
func (c *Caller) stamped(ops []Op, now int64) *[]Op {
	s := c.spare.Swap(nil)
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
func (c *Caller) putBack(s *[]Op) {
	const most = 64
	clear(*s)
	if len(*s) <= most {
		c.spare.Store(s)
	}
}

// failed returns the decision that goes with err: the fallback's, or else the policy's.
func (c *Caller) failed(ctx context.Context, op Op, err error) (Decision, error) {
	if c.Fallback != nil && isUnavailable(err) {
		ops, out := [1]Op{op}, [1]Decision{}
		if c.fallBack(ctx, ops[:], out[:], Independent) {
			return out[0], err
		}
	}
	return c.policy(&op, err), err
}

// fallBack asks the fallback for its share of each limit, and reports whether it
// answered. The caller's deadline may have passed, but the fallback needs no time.
func (c *Caller) fallBack(ctx context.Context, ops []Op, out []Decision, mode Mode) bool {
	shared := slices.Clone(ops)
	for i := range shared {
		shared[i].Rule = shared[i].Rule.Share(c.Share)
	}
	if ExecuteAll(context.WithoutCancel(ctx), c.Fallback, shared, out, mode) != nil {
		return false
	}
	for i := range out[:len(ops)] {
		if out[i].Reason != ReasonNoLimit && out[i].Reason != ReasonHeadroom { // which is why it is refused, and took nothing
			out[i].Reason = ReasonFallback
		}
	}
	return true
}

// policy returns the answer of the failure policy. An invalid request is refused under
// every policy.
func (c *Caller) policy(op *Op, err error) Decision {
	d := Decision{Reason: ReasonFailClosed, Limit: op.Rule.Most()}
	if !c.FailClosed && isUnavailable(err) {
		d.Allowed, d.Reason, d.Granted = true, ReasonFailOpen, op.Cost
	}
	return d
}

// settlement turns op, a take that was answered with d age ago, into what is left to do
// so that n is taken, and returns the store to send it to, or nil if nothing is left.
func (c *Caller) settlement(op *Op, d *Decision, n int64, age time.Duration) Store {
	granted := d.Granted
	if d.Reason == ReasonFailOpen {
		granted = 0 // nothing was taken, so nothing can be given back
	}
	switch {
	case op.Rule.Algorithm == Concurrency:
		op.Kind, op.Cost, op.Lease = KindRelease, granted, d.Lease
	case n > granted:
		op.Kind, op.Cost = KindCharge, n-granted
	default:
		op.Kind, op.Cost, op.Duration, op.CountsUntil = KindRefund, granted-n, d.ResetAfter-age, d.CountsUntil
		if op.Duration <= 0 {
			return nil // time has given it back
		}
	}
	if op.Cost == 0 {
		return nil
	}
	return c.origin(op, d)
}

// origin returns the store that answered op with d, and adapts op to it. What was taken
// there is refunded, charged or renewed there only: in another store it would belong to
// another take.
func (c *Caller) origin(op *Op, d *Decision) Store {
	if d.Reason == ReasonFallback && c.Fallback != nil {
		op.Rule = op.Rule.Share(c.Share)
		return c.Fallback
	}
	return c.Store
}

// Settle brings op, a take that was answered with d since ago, to the cost n: it charges
// what is missing, into debt if it does not fit, or refunds what is too much, less what has
// refilled since. A lease is released. It asks the store that answered.
func (c *Caller) Settle(ctx context.Context, op Op, d *Decision, n int64, since time.Duration) (err error) {
	to := c.settlement(&op, d, n, since)
	if to == nil {
		return nil
	}
	if op.At, err = c.stamp(); err != nil {
		return err
	}
	_, err = Execute(ctx, to, op)
	return err
}

// Refund refunds what ops took, less what has refilled since. decisions are the answers to
// ops, and since is how long ago they were taken. Each refund goes to the store that
// answered, the Limiter's own or its fallback. Leases are not released; see
// [Lease.Release]. It is for middleware whose request turns out not to count. Decisions
// whose take was refunded then have Granted 0, and the Remaining and ResetAfter after the
// refund.
func (c *Caller) Refund(ctx context.Context, ops []Op, decisions []Decision, since time.Duration) error {
	now, err := c.stamp()
	if err != nil {
		return err
	}
	var own, local refunds
	for i, op := range ops {
		d := &decisions[i]
		if d.Lease != 0 || d.Reason == ReasonFallback && c.Fallback == nil {
			continue
		}
		op.At = now
		switch to := c.settlement(&op, d, 0, since); {
		case to == nil:
		case d.Reason == ReasonFallback:
			local.add(op, d)
		default:
			own.add(op, d)
		}
	}
	return errors.Join(own.do(ctx, c.Store), local.do(ctx, c.Fallback))
}

// refunds are ops that refund takes, and what those were answered with.
type refunds struct {
	ops  []Op
	took []*Decision
}

func (r *refunds) add(op Op, took *Decision) {
	r.ops, r.took = append(r.ops, op), append(r.took, took)
}

// do sends r to a store and notes what is left.
func (r *refunds) do(ctx context.Context, to Store) error {
	if len(r.ops) == 0 {
		return nil
	}
	out := make([]Decision, len(r.ops))
	if err := ExecuteAll(ctx, to, r.ops, out, Independent); err != nil {
		return err
	}
	for i, d := range r.took {
		d.Granted, d.Remaining, d.ResetAfter = 0, max(out[i].Remaining, 0), out[i].ResetAfter
	}
	return nil
}

// Now returns the time of the Limiter's clock, or time.Now if it has none.
func (c *Caller) Now() time.Time {
	if c.Clock != nil {
		return c.Clock()
	}
	return time.Now() //nolint:forbidigo // the edge: a library caller gave no clock
}

// Sleep waits for d, or until ctx is done, and then returns its error. If the Limiter has a
// clock, it waits until that has advanced by d. It is for code that honors Decision.Delay.
func (c *Caller) Sleep(ctx context.Context, d time.Duration) error {
	const often = 10 * time.Millisecond
	if d <= 0 {
		return nil
	}
	if c.Clock == nil {
		return pause(ctx, d)
	}
	for until := c.Clock().Add(d); ; {
		left := until.Sub(c.Clock())
		if left <= 0 {
			return nil
		}
		if err := pause(ctx, min(left, often)); err != nil {
			return err
		}
	}
}

// pause waits for d of real time.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // waiting is what Wait is for
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }
