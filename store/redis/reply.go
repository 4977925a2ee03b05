package redis

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// errSkew means that none of the calendar windows sent contains the server's time, or that a
// lease would begin too late.
var errSkew = errors.New("redis: the clocks of the server and of this process differ too much for a calendar window or a lease")

// reply reads the integers of a script's answer.
type reply struct {
	values []rueidis.RedisMessage
	next   int
}

// serverTime returns the server's time if it is outside all calendar windows sent, or too
// late for a lease.
func (r *reply) serverTime() (int64, bool) {
	if len(r.values) != 2 {
		return 0, false
	}
	if outcome, err := r.values[0].ToInt64(); err != nil || outcome >= 0 {
		return 0, false
	}
	at, err := r.values[1].ToInt64()
	return at, err == nil
}

// integers fills dst with the next values.
func (r *reply) integers(dst []int64) error {
	if len(r.values)-r.next < len(dst) {
		return fmt.Errorf("redis: the script returned %d values", len(r.values))
	}
	for i := range dst {
		v, err := r.values[r.next+i].ToInt64()
		if err != nil {
			return err
		}
		dst[i] = v
	}
	r.next += len(dst)
	return nil
}

// decide reads the answer to op: three values for a take that is allowed at once or
// refused for now, otherwise the seven of lua/main.lua, plus the time when the state is
// fresh if dated, and the lease for a limit with leases.
func (r *reply) decide(op *store.Op, dated bool, d *store.Decision) (freshAt int64, err error) { //nolint:revive // a fact about the reply
	d.Limit = op.Rule.Most()
	var v [7]int64
	if len(r.values) == 3 {
		switch err := r.integers(v[:3]); {
		case err != nil:
			return 0, err
		case v[0] < 0:
			d.Reason, d.Remaining, d.RetryAfter, d.ResetAfter = store.ReasonLimited, -1-v[0], micros(v[1]), micros(v[2])
		default:
			d.Allowed, d.Remaining, d.Granted, d.ResetAfter, d.CountsUntil = true, v[0], op.Cost, micros(v[1]), v[2]
		}
		return 0, nil
	}
	if err := r.integers(v[:]); err != nil {
		return 0, err
	}
	d.Allowed, d.Reason = v[0]&1 == 1, store.Reason(v[0]>>1)
	d.Remaining, d.Granted = v[1], v[2]
	if d.Granted == maxInteger && (op.Kind == store.KindCharge || op.Kind == store.KindGrant) {
		d.Granted = op.Cost // it was cut to what a script can hold
	}
	d.RetryAfter = store.Never
	if v[3] >= 0 {
		d.RetryAfter = micros(v[3])
	}
	d.ResetAfter, d.Delay, d.CountsUntil = micros(v[4]), micros(v[5]), v[6]
	if dated {
		err = r.integers(v[:1])
		freshAt = v[0]
	}
	if err == nil && op.Rule.Algorithm == store.Concurrency {
		err = r.integers(v[:1])
		d.Lease = v[0]
	}
	return freshAt, err
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// unlimited returns the answer of an unlimited limit, which does not need the server.
func unlimited(op *store.Op, kind store.Kind) store.Decision {
	return algorithm.Step(op.Rule, new(algorithm.State), 0, algorithm.Request{Kind: kind, Cost: op.Cost}).Decision
}
