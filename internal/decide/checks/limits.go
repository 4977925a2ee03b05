package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// Options are the settings of one limit of a middleware, for requests of type R.
type Options[R any] struct {
	Given

	Name    string                         // in answers
	Scope   string                         // the name, if set by an option
	Key     func(R) (key string, ok bool)  // identifies the caller
	Cost    func(R) int64                  // of a request
	LimitBy func(R) (headgate.Limit, bool) // may be nil
	// Headroom is the part of the limit that a request must leave to others; nil for none.
	Headroom func(R) float64

	soft   uint32 // the part above which it marks requests, in millionths; 0 for none
	passes bool   // what is over it passes, marked
}

// Limits are the limits of a middleware and its limiter.
type Limits[R any] struct {
	Limiter *headgate.Limiter
	// Ops holds the fields of the ops that are the same for every request.
	Ops    []store.Op
	scopes Scopes
	each   []Options[R]
	marks  bool // any of them marks requests
	passes bool // any of them refuses nothing
}

// Add adds a limit, or returns why it is invalid.
func (l *Limits[R]) Add(o Options[R], limit headgate.Limit) error {
	err := limit.Validate()
	for _, why := range [...]string{o.unmarkable(limit.Rule()), o.unkeepable(limit.Rule())} {
		if err == nil && why != "" {
			err = errors.New(why)
		}
	}
	if err == nil {
		err = l.scopes.Add(Check{Name: o.Scope, Limit: limit, Varies: o.LimitBy != nil, Apart: o.passes})
	}
	if err != nil {
		return fmt.Errorf("the limit %q: %w", o.nameOf(limit), err)
	}
	l.marks, l.passes = l.marks || o.soft > 0 || o.passes, l.passes || o.passes
	l.Ops = append(l.Ops, store.Op{Scope: l.scopes.Of(len(l.each), limit), Rule: limit.Rule()})
	l.each = append(l.each, o)
	return nil
}

// Claim is how a middleware claims its limits without a name: by Claim of a store.Caller,
// or by Taken, which only reports.
type Claim func(c *store.Caller, rules []*store.Rule, by store.Claim) (taken int)

// Claim returns an error if another middleware of the Limiter counts under the same limits
// without a name.
func (l *Limits[R]) Claim(claim Claim, by store.Claim) error {
	var rules []*store.Rule
	var at []int
	for i, c := range l.scopes.checks {
		if c.name() != "" {
			continue
		}
		if c.Varies {
			rules, at = append(rules, store.Unset()), append(at, i) // any limit
		}
		if counts(c.Limit) {
			rules, at = append(rules, c.Limit.Rule()), append(at, i)
		}
	}
	taken := claim(l.Limiter.Caller(), rules, by)
	if taken < 0 {
		return nil
	}
	check := l.scopes.checks[at[taken]]
	what := "counts " + check.Limit.String()
	if rules[taken] == store.Unset() {
		what = "chooses limits by LimitBy"
	}
	return fmt.Errorf("the limit %q: another middleware of this Limiter %s too, and each would take from the count of the other: set a Name for each, or the same Name for both if they share",
		l.NameOf(at[taken], check.Limit), what)
}

// NameOf returns the name of the limit at place for a request with the given limit.
func (l *Limits[R]) NameOf(place int, limit headgate.Limit) string {
	return l.each[place].nameOf(limit)
}

func (o *Options[R]) nameOf(limit headgate.Limit) string {
	if o.Scope == "" && limit.Name() != "" {
		return limit.Name()
	}
	return o.Name
}

// Vary reports whether requests may have their own limits.
func (l *Limits[R]) Vary() bool { return l.scopes.varied }

// Charges reports whether requests may be charged, and not only take slots of
// concurrency limits.
func (l *Limits[R]) Charges() bool {
	return l.Vary() || slices.ContainsFunc(l.Ops, func(op store.Op) bool { return op.Rule.Algorithm != headgate.Concurrency })
}

// RefundTimeout is how long the answer to a request may wait for its refund.
const RefundTimeout = time.Second

// About completes ops, a copy of l.Ops, for r.
func (l *Limits[R]) About(r R, ops []store.Op) {
	for i := range l.each {
		o, op := &l.each[i], &ops[i]
		if o.LimitBy != nil {
			if limit, ok := o.LimitBy(r); ok {
				op.Rule, op.Scope = limit.Rule(), l.scopes.Of(i, limit)
			}
		}
		if key, ok := o.Key(r); ok {
			op.Key = key // otherwise empty, which no identified request uses
		}
		op.Cost = o.Cost(r)
		if o.Headroom != nil {
			op.Leave = leave(o.Headroom(r))
		}
	}
}

// AllowAll checks all ops together; see [Scopes.AllowAll]. If one of them may make the
// request wait for its turn, slots of concurrency limits are only checked here and
// taken by Enter, because a waiting request is not in progress. Limits that refuse nothing
// are taken from by Mark.
func (l *Limits[R]) AllowAll(ctx context.Context, ops []store.Op, out []store.Decision) (store.Decision, error) {
	turns := false
	for i := range ops {
		turns = turns || ops[i].Rule.Algorithm == headgate.LeakyBucket
	}
	for i := range ops {
		if turns && ops[i].Rule.Algorithm == headgate.Concurrency {
			ops[i].Kind = store.KindPeek
		}
	}
	if !l.passes {
		return l.ask(ctx, ops, out)
	}
	asked, at := l.refusing(ops, out)
	if len(asked) == 0 {
		return store.Decision{Allowed: true, Reason: store.ReasonNoLimit}, nil
	}
	told := make([]store.Decision, len(asked))
	tightest, err := l.ask(ctx, asked, told)
	for j, i := range at {
		out[i] = told[j]
	}
	return tightest, err
}

// ask takes all ops or none.
func (l *Limits[R]) ask(ctx context.Context, ops []store.Op, out []store.Decision) (store.Decision, error) {
	tightest, err := l.scopes.AllowAll(patient(ctx), l.Limiter, ops, out)
	if tightest.Allowed {
		return tightest, err
	}
	for i := range ops {
		soft.Later(&out[i])
	}
	return out[store.Tightest(out[:len(ops)])], err
}

// patient returns ctx without its end, if it has a deadline: a remote client may have
// chosen that, as with grpc-timeout, so that the store has no time to refuse it. The
// store's own Timeout applies.
func patient(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Keep holds the leases of concurrency limits until they are released.
func (l *Limits[R]) Keep(ops []store.Op, decisions func(i int) *store.Decision) (kept []*store.Lease) {
	for i := range ops {
		if d := decisions(i); d.Lease != 0 {
			lease := l.Limiter.Caller().Lease(ops[i], *d)
			lease.Keep()
			kept = append(kept, lease)
		}
	}
	return kept
}

// Enter takes the slots that AllowAll only checked, once it is the request's turn. If
// none is free any more, the request is refused, and undo is called before the
// decisions are updated.
func (l *Limits[R]) Enter(ctx context.Context, ops []store.Op, decision func(i int) *store.Decision, refund func()) (store.Decision, error) {
	var places []store.Op
	var of []*store.Decision
	for i := range ops {
		if ops[i].Kind == store.KindPeek && !l.each[i].passes {
			ops[i].Kind = store.KindTake
			places, of = append(places, ops[i]), append(of, decision(i))
		}
	}
	if len(places) == 0 {
		return store.Decision{Allowed: true}, nil
	}
	out := make([]store.Decision, len(places))
	tightest, err := l.ask(ctx, places, out)
	if !tightest.Allowed {
		refund()
	}
	for i := range of {
		*of[i] = out[i]
	}
	return tightest, err
}

// Release releases leases, even if the client has gone.
func Release(ctx context.Context, leases []*store.Lease, failed func(error)) {
	for _, l := range leases {
		if _, err := l.Release(context.WithoutCancel(ctx)); err != nil {
			failed(err)
		}
	}
}

// Join returns a By that counts by all parts together. It is nil if there are no parts
// or one of them is nil.
func Join[R any, By ~func(R) (key string, ok bool)](parts []By) By {
	if len(parts) == 0 || slices.ContainsFunc(parts, func(b By) bool { return b == nil }) {
		return nil
	}
	return func(r R) (string, bool) {
		var space [128]byte
		key, found := space[:0], false
		for _, part := range parts {
			value, ok := part(r)
			if !ok {
				value = ""
			}
			found = found || value != ""
			key = store.AppendKeyPart(key, value)
		}
		return string(key), found
	}
}
