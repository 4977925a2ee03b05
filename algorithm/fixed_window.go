package algorithm

import (
	"github.com/headgate/headgate/store"
)

// A fixed window's state:
//
//	V[0]  count
//	V[1]  the end of the window, where the next one starts
//	V[2]  the period, or for a calendar its unit, to detect a changed limit
//
// A state with a count of 0 is fresh. own_zone.go says what differs for a limit in the
// caller's own time zone.

// fixedCode returns V[2] for the rule.
func fixedCode(r *store.Rule) int64 {
	if r.Calendar != store.NoCalendar {
		return int64(r.Calendar) + ownCode(r)
	}
	return r.Period
}

// fixedWindow returns the count and the end of the window that contains now. If the
// period has changed, a window that is still running passes its count to the new one.
// If the clock has gone back, the window stays the same.
func fixedWindow(r *store.Rule, s *State, now int64) (count, end int64) {
	running := (s.V[0] > 0 || r.OwnZone) && now < s.V[1]
	if running && s.V[2] == fixedCode(r) {
		return s.V[0], s.V[1]
	}
	switch {
	case r.Anchor == store.AnchorFirstRequest:
		end = now + r.Period
	case r.OwnZone:
		end = ownEnd(r, s, now)
	case r.Calendar != store.NoCalendar:
		_, end = CalendarWindow(r.Calendar, r.Zone, now)
	default:
		end = (now/r.Period + 1) * r.Period
	}
	if running {
		count = s.V[0]
	}
	return count, end
}

func fixedAvailable(r *store.Rule, s *State, now int64) int64 {
	if s.V[0] == 0 || now >= s.V[1] {
		return r.Limit
	}
	return r.Limit - s.V[0]
}

func fixedAdd(r *store.Rule, s *State, now, n int64) {
	count, end := fixedWindow(r, s, now)
	s.V[0] = min(count+min(n, maxCount), maxCount)
	s.V[1], s.V[2] = end, fixedCode(r)
}

// fixedSub returns n only into the window of the take: if left is known, the take must
// end with this window.
func fixedSub(r *store.Rule, s *State, now, n, left int64) bool {
	count, end := fixedWindow(r, s, now)
	if count == 0 || left > 0 && now+left < end-r.Period/2 {
		return false
	}
	s.V[0], s.V[1], s.V[2] = count-min(n, count), end, fixedCode(r)
	return true
}

// fixedFits returns the end of the state's window, even if the period has changed
// since: a refusal does not write the new one.
func fixedFits(s *State) int64 { return s.V[1] }

func fixedFresh(r *store.Rule, s *State, now int64) int64 {
	switch {
	case r.OwnZone:
		return ownFresh(s, now)
	case s.V[0] == 0:
		return now
	}
	return s.V[1]
}
