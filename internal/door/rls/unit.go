package rls

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// Units as Envoy numbers them: envoy.type.v3.RateLimitUnit, and in answers also
// the week.
const (
	unitSecond = 1
	unitMinute = 2
	unitHour   = 3
	unitDay    = 4
	unitMonth  = 5
	unitYear   = 6
	unitWeek   = 7
)

const day = 24 * time.Hour

// lengthOf returns the length of a unit, and 0 for one that is not known.
func lengthOf(unit int32) time.Duration {
	switch unit {
	case unitSecond:
		return time.Second
	case unitMinute:
		return time.Minute
	case unitHour:
		return time.Hour
	case unitDay:
		return day
	case unitWeek:
		return 7 * day
	case unitMonth:
		return 30 * day
	case unitYear:
		return 365 * day
	}
	return 0
}

// describe returns l in Envoy's words. A period that is no whole number of
// seconds is told as what it comes to in whole ones.
func describe(l headgate.Limit) currentLimit {
	c := currentLimit{requests: clamp(l.N()), multiplier: 1}
	switch l.Rule().Calendar {
	case headgate.Minute:
		c.unit = unitMinute
	case headgate.Hour:
		c.unit = unitHour
	case headgate.Day:
		c.unit = unitDay
	case headgate.Week:
		c.unit = unitWeek
	case headgate.Month:
		c.unit = unitMonth
	case headgate.Year:
		c.unit = unitYear
	case headgate.NoCalendar:
		c.unit, c.multiplier = inUnits(l.Period())
		if c.unit == 0 {
			seconds := (l.Period() + time.Second - 1) / time.Second
			c.unit, c.multiplier = unitSecond, clamp(int64(seconds))
			if seconds == 1 {
				c.requests = clamp(l.N() * int64(time.Second/time.Microsecond) / l.Period().Microseconds())
			}
		}
	}
	return c
}

// inUnits returns d as a multiple of the largest unit that divides it, or 0 if
// it is not a whole number of seconds.
func inUnits(d time.Duration) (unit uint64, multiplier uint32) {
	for _, u := range [...]int32{unitYear, unitMonth, unitWeek, unitDay, unitHour, unitMinute, unitSecond} {
		if length := lengthOf(u); d > 0 && d%length == 0 {
			return uint64(u), clamp(int64(d / length))
		}
	}
	return 0, 0
}

// clamp returns n as an uint32, which is what Envoy counts in.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

var errNoUnit = errors.New("limit.unit is not set")

// rule returns the rule of a limit that came with a descriptor: a fixed window,
// of the calendar in UTC for a week, month or year unless the domain's rules
// are to give the answers of envoyproxy/ratelimit.
func (o *override) rule(domain string, compat rules.Compat) (*rules.Rule, error) {
	length := lengthOf(o.unit)
	switch {
	case o.unit == 0:
		return nil, errNoUnit
	case length == 0:
		return nil, fmt.Errorf("limit.unit %d is not known", o.unit)
	case o.hasMultiplier && o.multiplier == 0:
		return nil, errors.New("limit.unit_multiplier is 0")
	}
	n, times := int64(o.requests), int64(max(o.multiplier, 1))
	if times > int64(headgate.MaxPeriod/length) {
		return nil, fmt.Errorf("the period of limit is longer than %s", headgate.MaxPeriod)
	}
	period := length * time.Duration(times)
	limit := headgate.Per(n, period).Using(headgate.FixedWindow)
	if compat == rules.CompatEnvoy {
		return rules.Override(domain, limit), limit.Validate()
	}
	if unit := calendarOf(o.unit); unit != headgate.NoCalendar && times == 1 {
		limit = headgate.PerCalendar(n, unit, time.UTC)
	}
	// The count survives a change of the number, and belongs to the period: a
	// descriptor may come with a limit a second and one a day. In the scope of
	// a rule a percent sign is part of an escape, so none begins like this.
	scope := "%override:" + strconv.FormatInt(int64(period/time.Second), 10) + ":" + domain
	return &rules.Rule{
		Domain: domain, Name: "override", Scope: scope, Limit: limit, Index: -1,
		Cost: 1, Percent: 100, LocalShare: 1,
		OnLimit: rules.OnLimit{Action: rules.Reject, Status: 429},
	}, limit.Validate()
}

func calendarOf(unit int32) headgate.CalendarUnit {
	switch unit {
	case unitWeek:
		return headgate.Week
	case unitMonth:
		return headgate.Month
	case unitYear:
		return headgate.Year
	}
	return headgate.NoCalendar
}

// appendKey appends all entries, which are what such a limit counts by.
func (d *descriptor) appendKey(key []byte, domain string, compat rules.Compat) []byte {
	if compat == rules.CompatEnvoy {
		return rules.AppendJoined(key, domain, d.Told.Entries)
	}
	for i := range d.Told.Entries {
		key = headgate.AppendKeyPart(key, d.Told.Entries[i].Key)
		key = headgate.AppendKeyPart(key, d.Told.Entries[i].Value)
	}
	return key
}
