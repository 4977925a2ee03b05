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
	guess := s.guess(op, call.deadline)
	for try := 0; ; try++ {
		var buffer [640]byte
		key := appendKey(buffer[:0], s.options.Prefix, op)
		length := len(key)
		text := string(s.appendCheck(key, op, guess))
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
		at, skewed := r.serverTime()
		switch {
		case !skewed:
			freshAt, err := r.decide(op, s.callerTime(op), d)
			s.told(op, d)
			return freshAt, err
		case try == skewRetries:
			return 0, errSkew
		}
		if guess = at; holds(op) {
			s.clock.learn(at, time.Now()) //nolint:forbidigo // deadlines are on the real clock
			guess = s.guess(op, call.deadline)
		}
	}
}

// guess returns a time on the server's clock: roughly now for op's calendar window, the
// deadline for a lease (0 if it is not known), otherwise 0.
func (s *Store) guess(op *store.Op, deadline time.Time) int64 {
	switch {
	case holds(op):
		return s.clock.at(deadline)
	case op.Rule.Calendar == store.NoCalendar:
		return 0
	}
	return s.options.Clock().UnixMicro()
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
