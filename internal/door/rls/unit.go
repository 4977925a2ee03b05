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

// unit is one of Envoy's, by its number in envoy.type.v3.RateLimitUnit; in answers
// there is also the week.
type unit struct {
	number   int32
	name     string
	length   time.Duration
	calendar headgate.CalendarUnit
}

const day = 24 * time.Hour

// units are all there are, the longest first.
//
//nolint:gochecknoglobals // an immutable table
var units = [...]unit{
	{6, "YEAR", 365 * day, headgate.Year},
	{5, "MONTH", 30 * day, headgate.Month},
	{7, "WEEK", 7 * day, headgate.Week},
	{4, "DAY", day, headgate.Day},
	{3, "HOUR", time.Hour, headgate.Hour},
	{2, "MINUTE", time.Minute, headgate.Minute},
	{1, "SECOND", time.Second, headgate.NoCalendar},
}

// unitOf returns the unit of a number; the zero unit for one that is not known.
func unitOf(number int32) unit {
	for _, u := range units {
		if u.number == number {
			return u
		}
	}
	return unit{}
}

// describe returns l in Envoy's words. A period that is no whole number of
// seconds is told as what it comes to in whole ones.
func describe(l headgate.Limit) currentLimit {
	c := currentLimit{requests: clamp(l.N()), multiplier: 1}
	calendar := l.Rule().Calendar
	for _, u := range units {
		switch {
		case calendar != headgate.NoCalendar && u.calendar == calendar:
			c.unit = uint64(u.number)
			return c
		case calendar == headgate.NoCalendar && l.Period() > 0 && l.Period()%u.length == 0:
			c.unit, c.multiplier = uint64(u.number), clamp(int64(l.Period()/u.length))
			return c
		}
	}
	seconds := (l.Period() + time.Second - 1) / time.Second
	c.unit, c.multiplier = 1, clamp(int64(seconds))
	if seconds == 1 {
		c.requests = clamp(l.N() * int64(time.Second/time.Microsecond) / l.Period().Microseconds())
	}
	return c
}

// clamp returns n as an uint32, which is what Envoy counts in.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

var errNoUnit = errors.New("limit.unit is not set")

// rule returns the rule of a limit that came with a descriptor: a fixed window,
// of the calendar in UTC for a week, month or year unless the domain's rules
// are to give the answers of envoyproxy/ratelimit.
func (o *override) rule(domain string, compat rules.Compat) (*rules.Rule, error) {
	u := unitOf(o.unit)
	switch {
	case o.unit == 0:
		return nil, errNoUnit
	case u.length == 0:
		return nil, fmt.Errorf("unknown limit.unit %d", o.unit)
	case o.hasMultiplier && o.multiplier == 0:
		return nil, errors.New("limit.unit_multiplier must not be 0")
	}
	n, times := int64(o.requests), int64(max(o.multiplier, 1))
	if times > int64(headgate.MaxPeriod/u.length) {
		return nil, fmt.Errorf("the period of limit is longer than %s", headgate.MaxPeriod)
	}
	period := u.length * time.Duration(times)
	limit := headgate.Per(n, period).Using(headgate.FixedWindow)
	if compat == rules.CompatEnvoy {
		return rules.Override(domain, limit), limit.Validate()
	}
	if u.length >= 7*day && times == 1 {
		limit = headgate.PerCalendar(n, u.calendar, time.UTC)
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
