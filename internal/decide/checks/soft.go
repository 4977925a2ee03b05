package checks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/store"
)

// SoftAt records the part of a limit above which requests are marked.
func (o *Options[R]) SoftAt(part float64) {
	o.Once("SoftAt")
	if !(part > 0 && part < 1) { // not a number, too
		hint := "it is a part of the limit, such as 0.8"
		if part == 1 {
			hint = "to mark requests over the limit instead of refusing them, use OnlyMark"
		}
		o.err = errors.Join(o.err, fmt.Errorf("SoftAt(%v) must be more than 0 and less than 1: %s", part, hint))
		return
	}
	o.soft = uint32(min(max(math.Round(part*store.Whole), 1), store.Whole-1))
}

// OnlyMark records that requests over the limit pass, marked.
func (o *Options[R]) OnlyMark() {
	o.Once("OnlyMark")
	o.passes = true
}

// unmarkable returns why r cannot mark requests as o says, or "".
func (o *Options[R]) unmarkable(r *store.Rule) string {
	switch {
	case o.soft == 0 && !o.passes:
	case r.Unlimited && o.LimitBy == nil:
		return "SoftAt and OnlyMark have no effect without a limit"
	case r.Unlimited:
	case r.Shared():
		return "SoftAt and OnlyMark do not work with a limit that regions share: no region knows what the others have used"
	case !o.passes:
	case r.Algorithm == store.LeakyBucket:
		return "OnlyMark does not work with LeakyBucket: requests would still wait for their turn"
	case r.CountRefused:
		return "OnlyMark does not work with WithRefusalsCounted: it refuses nothing"
	case r.BlockAge() > 0:
		return "OnlyMark does not work with a limit in blocks: every request that passes has to be counted"
	}
	return ""
}

// Mark charges the limits that only mark, for a request whose turn has come and which all
// others let pass, and returns the names of those that mark it, each once.
func (l *Limits[R]) Mark(ctx context.Context, ops []store.Op, decision func(i int) *store.Decision) (names []string, err error) {
	if !l.marks {
		return nil, nil
	}
	over := make([]int64, len(ops))
	if l.passes {
		err = l.pass(patient(ctx), ops, decision, over)
	}
	for i := range l.each {
		o, d, rule := &l.each[i], decision(i), ops[i].Rule
		if o.soft == 0 && !o.passes {
			continue
		}
		if d.Reason == store.ReasonFallback {
			rule = rule.Share(l.Limiter.Caller().Share)
		}
		part := o.soft
		if part == 0 {
			part = store.Whole
		}
		if over[i] > 0 || soft.Above(d, rule, ops[i].Cost, part) {
			if name := l.NameOf(i, headgate.LimitOf(ops[i].Rule)); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, err
}

// pass takes from the limits that only mark: up to twice the limit, so that what is above it
// is a debt that ends. Whatever the store answers, the request passes.
func (l *Limits[R]) pass(ctx context.Context, ops []store.Op, decision func(i int) *store.Decision, over []int64) error {
	var wide []store.Op
	var at []int
	var invalid error
	for i := range l.each {
		if !l.each[i].passes {
			continue
		}
		if why := l.each[i].unmarkable(ops[i].Rule); why != "" { // of LimitBy
			invalid = fmt.Errorf("%w: %s", headgate.ErrInvalidLimit, why)
			continue
		}
		op := ops[i]
		op.Rule, op.Kind = soft.Widened(op.Rule), store.KindTakeUpTo
		wide, at = append(wide, op), append(at, i)
	}
	if len(wide) == 0 {
		return invalid
	}
	out := make([]store.Decision, len(wide))
	err := l.Limiter.Caller().Batch(ctx, wide, out)
	for j, i := range at {
		d, limit := &out[j], ops[i].Rule
		switch d.Reason {
		case store.ReasonFailClosed:
			d.Allowed, d.Reason = true, store.ReasonFailOpen
		case store.ReasonFallback:
			limit = limit.Share(l.Limiter.Caller().Share)
		default:
		}
		over[i] = soft.Pass(d, limit.Most())
		*decision(i) = *d
	}
	if err == nil {
		err = invalid
	}
	return err
}

// refusing returns the ops of the limits that may refuse, and where they are. The others get
// an answer that nobody sees, until Mark.
func (l *Limits[R]) refusing(ops []store.Op, out []store.Decision) (asked []store.Op, at []int) {
	for i := range ops {
		if l.each[i].passes {
			out[i] = store.Decision{Allowed: true, Reason: store.ReasonNoLimit}
			continue
		}
		asked, at = append(asked, ops[i]), append(at, i)
	}
	return asked, at
}

type softKey struct{}

// WithMarks returns ctx with the names of limits that mark a request, after those that an
// outer middleware has put there. It reports false, and returns ctx, if there are none.
func WithMarks(ctx context.Context, names []string) (context.Context, bool) {
	if len(names) == 0 {
		return ctx, false
	}
	return context.WithValue(ctx, softKey{}, append(Marks(ctx), names...)), true
}

// Marks returns the names that WithMarks has put into ctx.
func Marks(ctx context.Context) []string {
	names, _ := ctx.Value(softKey{}).([]string)
	return slices.Clone(names)
}
