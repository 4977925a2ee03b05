package rls

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store"
)

// unit is a unit of Envoy, with its number in envoy.type.v3.RateLimitUnit. WEEK exists
// only in RateLimitResponse.
type unit struct {
	number   int32
	name     string
	length   time.Duration
	calendar headgate.CalendarUnit
}

const day = 24 * time.Hour

// units are all units, the longest first.
//
//nolint:gochecknoglobals // an immutable table
var units = [...]unit{
	{6, "YEAR", 365 * day, headgate.Year},
	{5, "MONTH", 30 * day, headgate.Month},
	{7, "WEEK", 7 * day, headgate.Week},
	{4, "DAY", day, headgate.Day},
	{3, "HOUR", time.Hour, headgate.Hour},
	{2, "MINUTE", time.Minute, headgate.Minute},
	{1, "SECOND", time.Second, store.NoCalendar},
}

// unitOf returns the unit with a number, or the zero unit.
func unitOf(number int32) unit {
	for _, u := range units {
		if u.number == number {
			return u
		}
	}
	return unit{}
}

// describe returns l in Envoy's terms. A period is rounded up to whole seconds; if it
// is shorter than one, the limit is converted to requests per second.
func describe(l headgate.Limit) currentLimit {
	c := currentLimit{requests: clamp(l.N()), multiplier: 1}
	calendar := l.Rule().Calendar
	for _, u := range units {
		switch {
		case calendar != store.NoCalendar && u.calendar == calendar:
			c.unit = uint64(u.number)
			return c
		case calendar == store.NoCalendar && l.Period() > 0 && l.Period()%u.length == 0:
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

// clamp returns n as a uint32, Envoy's type for counts.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

var errNoUnit = errors.New("limit.unit is not set")

// rule returns the rule for a limit in a descriptor: a fixed window. Weeks, months and
// years are those of the calendar in UTC, except with compat: envoy.
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
	if times > int64(store.MaxPeriod/u.length) {
		return nil, fmt.Errorf("the period of limit is longer than %s", store.MaxPeriod)
	}
	period := u.length * time.Duration(times)
	limit := headgate.Per(n, period).WithAlgorithm(headgate.FixedWindow)
	if compat == rules.CompatEnvoy {
		return rules.Override(domain, limit), limit.Validate()
	}
	if u.length >= 7*day && times == 1 {
		limit = headgate.PerCalendar(n, u.calendar, time.UTC)
	}
	// The scope has the period but not the number: the count survives a change of the
	// number, and a descriptor's limits per second and per day count separately. No
	// rule's scope starts like this, since % in it is part of an escape.
	scope := "%override:" + strconv.FormatInt(int64(period/time.Second), 10) + ":" + domain
	return &rules.Rule{
		Domain: domain, Name: "override", Scope: scope, Limit: limit, Index: rules.IndexOverride,
		Cost: 1, Percent: 100, LocalShare: 1,
		OnLimit: rules.OnLimit{Action: rules.Reject, Status: 429},
	}, limit.Validate()
}

// appendKey appends all entries, the key of a limit in a descriptor.
func (d *descriptor) appendKey(key []byte, domain string, compat rules.Compat) []byte {
	if compat == rules.CompatEnvoy {
		return rules.AppendJoined(key, domain, d.Given.Entries)
	}
	for i := range d.Given.Entries {
		key = store.AppendKeyPart(key, d.Given.Entries[i].Key)
		key = store.AppendKeyPart(key, d.Given.Entries[i].Value)
	}
	return key
}
