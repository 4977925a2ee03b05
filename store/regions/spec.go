package regions

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// spec is a limit as regions tell each other: a region may be asked for a key of a limit
// that is new to it. Times are in microseconds.
type spec struct {
	Name      string  `json:"name,omitempty"`
	Algorithm string  `json:"algorithm"`
	Limit     int64   `json:"limit"`
	Period    int64   `json:"period,omitempty"`
	Burst     int64   `json:"burst,omitempty"`
	Refill    int64   `json:"refill,omitempty"`
	Buckets   int     `json:"buckets,omitempty"`
	Edge      uint8   `json:"edge,omitempty"`
	Calendar  uint8   `json:"calendar,omitempty"`
	Zone      string  `json:"zone,omitempty"`
	Slack     float64 `json:"slack,omitempty"`
}

// specOf describes a valid limit that regions share.
func specOf(l headgate.Limit) spec {
	r := l.Rule()
	settings, _ := r.Regions()
	s := spec{Name: l.Name(), Algorithm: r.Algorithm.String(), Limit: r.Limit, Period: r.Period, Refill: r.RefillEvery, Slack: settings.Slack}
	switch r.Algorithm {
	case store.TokenBucket:
		s.Burst = r.FullBurst()
	case store.SlidingBuckets:
		s.Buckets, s.Edge = int(r.Buckets), uint8(r.Edge)
	case store.FixedWindow:
		if r.Calendar != store.NoCalendar {
			s.Calendar, s.Zone, s.Period = uint8(r.Calendar), r.Zone.String(), 0
		}
	case store.LeakyBucket, store.SlidingLog, store.SlidingWindow, store.Concurrency, store.Distinct:
	}
	return s
}

var errSpec = errors.New("regions: unknown limit")

// whole returns the limit that s describes.
func (s *spec) whole() (l headgate.Limit, err error) {
	a, ok := store.ParseAlgorithm(s.Algorithm)
	if !ok {
		return l, fmt.Errorf("%w: algorithm %q", errSpec, s.Algorithm)
	}
	if s.Calendar > 0 {
		zone, err := time.LoadLocation(s.Zone)
		if err != nil {
			return l, fmt.Errorf("%w: %w", errSpec, err)
		}
		l = headgate.PerCalendar(s.Limit, store.CalendarUnit(s.Calendar), zone)
	} else {
		if s.Period <= 0 || s.Period > int64(store.MaxPeriod/time.Microsecond) {
			return l, fmt.Errorf("%w: period %d", errSpec, s.Period)
		}
		l = headgate.Per(s.Limit, time.Duration(s.Period)*time.Microsecond).WithAlgorithm(a)
	}
	if s.Burst > 0 {
		l = l.WithBurst(s.Burst)
	}
	if s.Refill > 0 {
		l = l.WithRefillEvery(time.Duration(min(s.Refill, int64(store.MaxPeriod/time.Microsecond))) * time.Microsecond)
	}
	if s.Buckets > 0 {
		l = l.WithBuckets(s.Buckets, store.Edge(s.Edge))
	}
	l = headgate.LimitOf(l.Rule().InRegions(store.Regions{Slack: s.Slack}))
	if s.Name != "" {
		l = l.WithName(s.Name)
	}
	if err := l.Validate(); err != nil {
		return l, fmt.Errorf("%w: %w", errSpec, err)
	}
	return l, nil
}
