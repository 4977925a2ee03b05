package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

var _ headgate.KeyTimer = (*Store)(nil)

// timesSuffix follows the name of a key in the name of the key with its times. No state
// has such a name: each ends with a colon and one of letters.
const timesSuffix = ":@"

// KeyTimes implements headgate.KeyTimer, on the server's clock and in one round trip.
// It needs Options.KeyTimes. Both times are also zero for a state that was last written
// by a process without that option, if no other has recorded times of it.
func (s *Store) KeyTimes(ctx context.Context, op headgate.Op) (headgate.KeyTimes, error) {
	var times headgate.KeyTimes
	if s.scripts.times == nil {
		return times, headgate.ErrNoKeyTimes
	}
	if !op.Limit.Valid() {
		return times, op.Limit.Validate()
	}
	if op.Limit.IsUnlimited() {
		if s.closed.Load() {
			return times, headgate.ErrClosed
		}
		return times, nil
	}
	key := string(appendKey(nil, s.options.Prefix, &op))
	answer, err := s.evaluate(ctx, s.scripts.times, []string{key, key + timesSuffix})
	if err != nil {
		return times, err
	}
	at, err := answer.AsIntSlice()
	if err == nil && len(at) != 2 {
		err = fmt.Errorf("the script returned %d values", len(at))
	}
	if err != nil {
		return times, fmt.Errorf("redis: %w: %w", headgate.ErrUnavailable, err)
	}
	for i, to := range []*time.Time{&times.Created, &times.Changed} {
		if at[i] > 0 {
			*to = time.UnixMicro(at[i])
		}
	}
	return times, nil
}
