package regions

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// errEarly means that this region's clock is behind that of the giver, so that its window
// has not begun here.
var errEarly = errors.New("regions: a gift for a later window")

// applied counts a gift once.
func applied() headgate.Limit {
	return headgate.Per(1, appliedFor).Using(headgate.FixedWindow).Anchored(headgate.AnchorFirstRequest)
}

// receive refunds what the other region has given to this one, in the windows in which the
// giver was charged. Each gift is marked in the same step, so it is refunded once,
// however often it is read.
func (c *courier) receive(ctx context.Context, in *incoming, gifts []gift) error {
	for i := range gifts {
		g := &gifts[i]
		l := in.limits[g.Limit]
		if g.To != c.options.Name || l.err != nil {
			continue
		}
		part := c.parts.of(l.limit)
		if !part.Valid() {
			continue
		}
		if in.here.UnixMicro() < begins(part.Rule(), g.Until) {
			return errEarly
		}
		key := string(g.Key)
		refund := headgate.Op{Key: key, Scope: g.Scope, Limit: part, Cost: g.Tokens, Kind: headgate.Refund, CountsUntil: g.Until}
		if part.Algorithm() == headgate.TokenBucket {
			refund.CountsUntil = 0
			refund.Duration = c.lasts(in, l.limit, part, g)
			if refund.Duration <= 0 {
				continue
			}
		}
		once := headgate.Op{Key: key, Scope: c.mark(in, i), Limit: c.once, Cost: 1}
		var out [2]headgate.Decision
		err := c.options.Counts.Do(ctx, []headgate.Op{once, refund}, out[:], headgate.AllOrNothing)
		if err != nil {
			return err
		}
		if out[0].Allowed {
			c.thanks = true
			c.counts.received.Add(g.Tokens)
			c.demand.received(entityOf(&refund, l.limit), g.Tokens)
		}
	}
	return nil
}

// mark names a gift.
func (c *courier) mark(in *incoming, i int) string {
	return "%regions:" + c.peer + ":" + in.id + ":" + strconv.Itoa(i)
}

// lasts returns for how much longer what a bucket was charged has not drained from it.
func (c *courier) lasts(in *incoming, whole, part headgate.Limit, g *gift) time.Duration {
	r := part.Rule()
	if r.Limit == 0 {
		return 0
	}
	ends := time.UnixMicro(g.Charged).Add(drains(part, g.Tokens) + whole.RegionAge())
	left := ends.Sub(in.theirs) - c.clock().Sub(in.asked)
	if r.Tick > 1 { // a step may fall into one more
		left -= time.Duration(r.Tick) * time.Microsecond
	}
	return left.Truncate(time.Microsecond)
}

// begins returns when the window or sub-window begins that a charge counts in until the
// given time.
func begins(r *headgate.Rule, until int64) int64 {
	switch r.Algorithm {
	case headgate.FixedWindow:
		if r.Calendar != headgate.NoCalendar {
			start, _ := algorithm.CalendarWindow(r.Calendar, r.Zone, until-1)
			return start
		}
		return until - r.Period
	case headgate.SlidingWindow:
		return ((until-1)/r.Period - 1) * r.Period
	case headgate.SlidingBuckets:
		return (until - r.Period - 1) / r.Tick * r.Tick
	case headgate.TokenBucket, headgate.LeakyBucket, headgate.SlidingLog, headgate.Concurrency, headgate.Distinct:
	}
	return 0
}
