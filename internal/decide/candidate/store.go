package candidate

import (
	"context"

	"github.com/headgate/headgate"
)

// arrivals is a store that leaves limits of what is under way out. Their places
// are given back when a request ends, of which a candidate does not hear: it
// would take one after the other, until it refused everybody.
type arrivals struct{ headgate.Store }

// open is the answer of what is left out.
func open() headgate.Decision { return headgate.Decision{Allowed: true, Reason: headgate.NoLimit} }

func isLeftOut(op *headgate.Op) bool { return op.Limit.Algorithm() == headgate.Concurrency }

// Take implements headgate.Store.
func (s arrivals) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	if isLeftOut(&op) {
		return open(), nil
	}
	return s.Store.Take(ctx, op)
}

// Do implements headgate.Store.
func (s arrivals) Do(ctx context.Context, ops []headgate.Op, out []headgate.Decision, mode headgate.Mode) error {
	var rest []headgate.Op
	for i := range ops {
		if isLeftOut(&ops[i]) {
			rest = make([]headgate.Op, 0, len(ops)-1)
			break
		}
	}
	if rest == nil {
		return s.Store.Do(ctx, ops, out, mode)
	}
	var places []int
	for i := range ops {
		if isLeftOut(&ops[i]) {
			out[i] = open()
			continue
		}
		rest, places = append(rest, ops[i]), append(places, i)
	}
	if len(rest) == 0 {
		return nil
	}
	answers := make([]headgate.Decision, len(rest))
	if err := s.Store.Do(ctx, rest, answers, mode); err != nil {
		return err
	}
	for j, i := range places {
		out[i] = answers[j]
	}
	return nil
}
