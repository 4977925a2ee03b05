package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// timesSuffix follows the name of a key in the name of the key with its times. No state
// has such a name: each ends with a colon and one of letters.
const timesSuffix = ":@"

// readTimes answers an op of kind Times, the only one of b, on the server's clock and in
// one round trip. It needs Options.KeyTimes. Both times are also zero for a state that was
// last written by a process without that option, if no other has recorded times of it.
func (s *Store) readTimes(ctx context.Context, b *store.Batch) error {
	op := &b.Ops[0]
	switch {
	case s.scripts.times == nil:
		return store.ErrNoKeyTimes
	case !op.Rule.Valid():
		return op.Rule.Validate()
	case op.Rule.Unlimited && s.closed.Load():
		return store.ErrClosed
	case op.Rule.Unlimited:
		b.Recorded = true
		return nil
	}
	key := string(appendKey(nil, s.options.Prefix, op))
	answer, err := s.evaluate(ctx, s.scripts.times, []string{key, key + timesSuffix})
	if err != nil {
		return err
	}
	at, err := answer.AsIntSlice()
	if err == nil && len(at) != 2 {
		err = fmt.Errorf("the script returned %d values", len(at))
	}
	if err != nil {
		return fmt.Errorf("redis: %w: %w", store.ErrUnavailable, err)
	}
	b.Recorded = true
	for i, to := range []*time.Time{&b.Created, &b.Changed} {
		if at[i] > 0 {
			*to = time.UnixMicro(at[i])
		}
	}
	return nil
}
