package redis

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// skewRetries is how often a call is repeated with other calendar windows.
const skewRetries = 2

// take executes one valid op with a limit in one round trip, on this goroutine, and
// returns when the state is fresh if the caller gave the time.
func (s *Store) take(ctx context.Context, op *store.Op) (d store.Decision, freshAt int64, err error) {
	epoch := s.trust.epoch.Load()
	client, call, err := s.begin(ctx)
	if err != nil {
		return d, 0, err
	}
	freshAt, err = s.ask(call, client, op, &d)
	if err = s.end(ctx, call, err); err != nil {
		return store.Decision{}, 0, err
	}
	s.trust.gain(s.trust.slotOf(op.Key), epoch)
	return d, freshAt, nil
}

// ask sends op and reads the answer into d.
func (s *Store) ask(call *callContext, client rueidis.Client, op *store.Op, d *store.Decision) (int64, error) {
	script := s.scripts.single[op.Rule.Algorithm]
	said := int64(0) // the server's time, if it has told
	for try := 0; ; try++ {
		var buffer [640]byte
		key := appendKey(buffer[:0], s.options.Prefix, op)
		length := len(key)
		text := string(s.appendCheck(key, op, s.guess(op, call.deadline, said)))
		name, check := text[:length], text[length:]

		cmd := client.B().Evalsha().Sha1(script.sha).Numkeys(1).Key(name).Arg(check).Build()
		values, err := client.Do(call, cmd).ToArray()
		if isNoScript(err) {
			cmd = client.B().Eval().Script(script.text).Numkeys(1).Key(name).Arg(check).Build()
			values, err = client.Do(call, cmd).ToArray()
		}
		if err != nil {
			return 0, err
		}
		r := reply{values: values}
		at, skewed := s.serverTime(&r)
		switch {
		case !skewed:
			freshAt, err := r.decide(op, s.callerTime(op), d)
			s.told(op, d)
			return freshAt, err
		case try == skewRetries:
			return 0, errSkew
		}
		said = at
	}
}

// guess returns a time on the server's clock: roughly now for op's calendar window, which is
// what the server said if it has, and the deadline of the caller for a new lease, if it is
// known. Otherwise it returns 0.
func (s *Store) guess(op *store.Op, deadline time.Time, said int64) int64 {
	switch {
	case holds(op):
		return s.clock.at(deadline)
	case op.Rule.Calendar == store.NoCalendar:
		return 0
	case said != 0:
		return said
	}
	return s.options.Clock().UnixMicro()
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
