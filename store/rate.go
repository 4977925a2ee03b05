package store

// Share returns the fraction f of r and its burst, for one of several processes that count
// separately: Share(0.25) in each of four. f must satisfy 0 < f ≤ 1; otherwise the rule is
// invalid.
//
// The numbers are rounded down, but to no less than 1, so the shares never add up to more
// than r, except for limits smaller than the number of processes. A share of a limit
// without a name counts separately from that limit. A share is invalid if its burst is too
// large to count its rate exactly.
func (r *Rule) Share(f float64) *Rule {
	s := r.Settings
	s.part = true
	if !(f > 0 && f <= 1) {
		return invalid(s, badShare)
	}
	if f == 1 || s.Unlimited || r.problem != valid {
		return r
	}
	if s.Name == "" {
		s.share = r.mark // of limits that have equal shares, each counts for itself
	}
	s.Limit = share(s.Limit, f)
	if s.HasBurst {
		s.Burst = share(r.FullBurst(), f)
	}
	if s.DelayAfter > 0 {
		s.DelayAfter = share(s.DelayAfter, f)
	}
	return Compile(s)
}

// share returns f of n, rounded down, but at least 1 of anything. A product that is
// below a whole number by no more than a rounding error, such as 0.29 of 100, is not
// rounded down.
func share(n int64, f float64) int64 {
	if n <= 0 {
		return n
	}
	exact := float64(n) * f
	part := int64(exact)
	if exact-float64(part) > 1-1e-9 {
		part++
	}
	return max(part, 1)
}

// WithRate returns r with another rate: n per period in microseconds, or per calendar unit.
// All else stays: the algorithm and its options, a burst that was given, blocks, regions and
// the name. A rule that is too small for its blocks then is exact. Windows of the calendar
// become windows of the period, or keep their zone if there is a unit; for other rules a
// unit has its usual length, such as 30 days.
func (r *Rule) WithRate(n, period int64, unit CalendarUnit) *Rule {
	if unit != NoCalendar {
		if period = Nominal(unit); r.Calendar == NoCalendar {
			unit = NoCalendar
		}
	}
	out := r.With(func(s *Settings) {
		if n == 0 || r.FullBurst() == r.Limit { // no burst of its own
			s.Burst, s.HasBurst = 0, false
		}
		s.Limit, s.Period, s.Calendar, s.Unlimited = n, period, unit, false
		if unit == NoCalendar {
			s.Zone, s.OwnZone = nil, false
		}
	})
	if !out.Valid() {
		return out.With(func(s *Settings) { s.blockAge, s.blockOver = 0, 0 })
	}
	return out
}

// invalid returns a rule that cannot be enforced, because of p.
func invalid(s Settings, p problem) *Rule {
	s.Limit = -1
	return &Rule{Settings: s, problem: p}
}
