package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
)

// String describes the limit for people, such as
// "100/second token_bucket burst 500".
func (r *Rule) String() string {
	if r == nil {
		r = unsetRule
	}
	if r.problem != valid {
		return "invalid limit: " + string(r.problem)
	}
	if r.Unlimited {
		return "unlimited"
	}
	period := time.Duration(r.Period) * time.Microsecond
	var b strings.Builder
	b.WriteString(strconv.FormatInt(r.Limit, 10))
	if r.Algorithm == Concurrency {
		b.WriteString(" concurrent, lease " + plain.Duration(period) + r.sharing())
		return b.String()
	}
	b.WriteByte('/')
	if r.Calendar != NoCalendar {
		b.WriteString(r.Calendar.String() + " " + r.Algorithm.String() + " in " + r.Zone.String())
		if r.OwnZone {
			b.WriteString(", the caller's own zone")
		}
		b.WriteString(r.counting() + r.sharing())
		return b.String()
	}
	const day = 24 * time.Hour
	switch days := period / day; {
	case days == 7 && period%day == 0:
		b.WriteString("week ")
	case days > 1 && period%day == 0:
		b.WriteString(strconv.FormatInt(int64(days), 10) + "d ")
	default:
		b.WriteString(unitOf(period) + " ")
	}
	b.WriteString(r.Algorithm.String())
	switch {
	case r.Algorithm == SlidingBuckets:
		b.WriteString(" of " + strconv.Itoa(int(r.Buckets)) + ", " + r.Edge.String())
	case r.Anchor == AnchorFirstRequest:
		b.WriteString(" from the first request")
	case r.Burst != r.Limit:
		b.WriteString(" burst " + strconv.FormatInt(r.Burst, 10))
	}
	b.WriteString(r.counting())
	if r.RefillEvery > 0 {
		b.WriteString(" refilled every " + plain.Duration(time.Duration(r.RefillEvery)*time.Microsecond))
	}
	if r.DelayAfter > 0 {
		b.WriteString(" delay after " + strconv.FormatInt(r.DelayAfter, 10))
	}
	if r.MaxWait > 0 {
		b.WriteString(" wait at most " + plain.Duration(time.Duration(r.MaxWait)*time.Microsecond))
	}
	b.WriteString(r.sharing())
	return b.String()
}

// counting says in a limit's text whether it counts refusals.
func (r *Rule) counting() string {
	if r.CountRefused {
		return " counting refusals"
	}
	return ""
}

// sharing says in a limit's text how old its blocks become, and whether regions share it.
func (r *Rule) sharing() string {
	text := ""
	if r.Age > 0 {
		text = " in blocks up to " + plain.Duration(time.Duration(r.Age)*time.Microsecond) + " old"
	}
	switch {
	case r.home != "":
		text += " counted in " + r.home
	case r.inRegions:
		text += " in regions"
	}
	return text
}

// unitOf names a period as rates do: second, minute, hour, day, or otherwise a duration
// such as 10m.
func unitOf(period time.Duration) string {
	for _, unit := range [...]struct {
		length time.Duration
		name   string
	}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}} {
		if period == unit.length {
			return unit.name
		}
	}
	return plain.Duration(period)
}
