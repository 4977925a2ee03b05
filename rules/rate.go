package rules

import (
	"time"

	"github.com/headgate/headgate"
)

// Rate is how much of a limit: N per Period.
type Rate struct {
	// N is how many.
	N int64
	// Period is in how long; for a month and a year the nominal 30 and 365
	// days.
	Period time.Duration
	// Unit is set if the period was written as a single minute, hour, day,
	// week, month or year, which a fixed window can take from the calendar.
	Unit headgate.CalendarUnit
	// Unlimited is the rate without a limit; all else is then zero.
	Unlimited bool
}

// ParseRate reads a rate: N/unit or N/duration, such as 5/minute, 300/3h,
// 1_000 / 1m30s, or unlimited.
func ParseRate(text string) (Rate, error) {
	return Rate{}, nil
}
