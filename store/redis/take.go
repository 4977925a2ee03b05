package redis

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// skewRetries is how often a call is repeated with other calendar windows.
const skewRetries = 2

// Take executes one op in one round trip. Op.At is ignored unless Options.CallerTime is
// set.
func (s *Store) Take(ctx context.Context, op headgate.Op) (headgate.Decision, error) {
	d, _, err := s.take(ctx, &op)
	return d, err
}

// take is Take, but also returns when the state is fresh if the caller gave the time.
func (s *Store) take(ctx context.Context, op *headgate.Op) (d headgate.Decision, freshAt int64, err error) {
	if err := op.Validate(); err != nil {
		return d, 0, err
	}
	if op.Limit.IsUnlimited() {
		if s.closed.Load() {
			return d, 0, headgate.ErrClosed
		}
		return unlimited(op, op.Kind), 0, nil
	}
	if !s.trust.in(s.trust.slotOf(op.Key)) {
		return s.takeApart(ctx, *op)
	}
	return s.takeHere(ctx, op)
}

// takeHere is take on this goroutine.
func (s *Store) takeHere(ctx context.Context, op *headgate.Op) (d headgate.Decision, freshAt int64, err error) {
	epoch := s.trust.epoch.Load()
	client, call, err := s.begin(ctx)
	if err != nil {
		return d, 0, err
	}
	freshAt, err = s.ask(call, client, op, &d)
	if err = s.end(ctx, call, err); err != nil {
		return headgate.Decision{}, 0, err
	}
	s.trust.gain(s.trust.slotOf(op.Key), epoch)
	return d, freshAt, nil
}

// ask sends op and reads the answer into d.
func (s *Store) ask(call *callContext, client rueidis.Client, op *headgate.Op, d *headgate.Decision) (int64, error) {
	script := s.scripts.single[op.Limit.Rule().Algorithm]
	guess := s.guess(op)
	for try := 0; ; try++ {
		var buffer [640]byte
		key := appendKey(buffer[:0], s.options.Prefix, op)
		length := len(key)
		text := string(s.appendCheck(key, op, op.Kind, guess))
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
			return r.decide(op, op.Kind, s.callerTime(op), d)
		case try == skewRetries:
			return 0, errSkew
		}
		guess = at
	}
}

// guess returns the approximate time on the server's clock, for op's calendar window.
func (s *Store) guess(op *headgate.Op) int64 {
	if op.Limit.Rule().Calendar == headgate.NoCalendar {
		return 0
	}
	return s.options.Clock().UnixMicro()
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
