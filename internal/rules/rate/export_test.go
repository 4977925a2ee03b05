package rate

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// String returns the rate as [Parse] reads it.
func (r Rate) String() string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Unit != store.NoCalendar:
		return fmt.Sprintf("%d/%s", r.N, r.Unit)
	}
	period, name := r.Period, "us"
	for _, u := range []struct {
		name   string
		length time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if period%u.length == 0 {
			period, name = period/u.length, u.name
			break
		}
	}
	return fmt.Sprintf("%d/%d%s", r.N, period, name)
}
