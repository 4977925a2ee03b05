package failsafe

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var _ headgate.KeyTimer = (*Store)(nil)

// KeyTimes implements headgate.KeyTimer if the inner store does; otherwise the error is
// headgate.ErrNoKeyTimes. The Timeout and the circuit breaker apply as in Take.
func (s *Store) KeyTimes(ctx context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	if s.flaw != nil {
		return headgate.KeyTimes{}, s.flaw
	}
	if !op.Limit.Valid() {
		return headgate.KeyTimes{}, op.Limit.Validate()
	}
	clock, start := s.now()
	t, ok := s.breaker.admit(start)
	if !ok {
		return headgate.KeyTimes{}, s.breaker.refusal()
	}
	bounded, own := s.slots.context(ctx, start, clock)
	times := new(headgate.KeyTimes) // a late answer may still write it
	s.inFlight.Add(1)
	err := s.isolate(bounded, []headgate.Op{op}, make([]headgate.Decision, 1), func(ctx context.Context, ops []headgate.Op, _ []headgate.Decision) (err error) {
		*times, err = store.KeyTimes(ctx, s.inner, ops[0])
		return err
	})
	s.inFlight.Add(-1)
	if err = s.settle(t, asked{bounded, start, own}, err); err != nil {
		return headgate.KeyTimes{}, err
	}
	return *times, nil
}
