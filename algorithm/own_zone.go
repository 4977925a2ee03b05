package algorithm

import (
	"time"

	"github.com/headgate/headgate/store"
)

// A calendar window in the caller's own time zone has the state of a fixed window, with
// these differences:
//
//   - V[2] is the unit plus 6.
//   - V[1] is the end of a window until as long after it as [WindowKept] says, whether
//     anything is counted or not. Only then is the state fresh: a caller who comes back
//     in another zone before that must not get a window of that zone at once.
//   - A new window ends with the calendar window of its zone, as any other, if that
//     starts where the last window ended: the caller has stayed. Otherwise it ends at
//     the first end of a calendar window that is at least WindowKept after V[1].
//
// So the zone itself is not kept: zones whose windows end together are one. If V[1] is
// the start of an earlier window of this zone, the end of the present one is late
// enough in any case.

const (
	// ownUnits is what V[2] has above the unit.
	ownUnits = int64(store.Year)
	// longestKept is more than two zones can be apart, which is 26 hours, from UTC-12
	// to UTC+14.
	longestKept = int64(48 * time.Hour / time.Microsecond)
	// ownWindows is how many windows of a zone ownEnd looks at. Two follow the present
	// one, and together they are always longer than WindowKept.
	ownWindows = 3
)

// ownCode returns what V[2] has above the unit.
func ownCode(r *store.Rule) int64 {
	if r.OwnZone {
		return ownUnits
	}
	return 0
}

// WindowKept returns how long after its end the state of a fixed window must be kept,
// in microseconds, by its V[2]. It is 0, or for a calendar window in the caller's own
// zone the length of the unit, but at most 48 hours.
func WindowKept(code int64) int64 {
	const minute = int64(time.Minute / time.Microsecond)
	switch code - ownUnits {
	case int64(store.Minute):
		return minute
	case int64(store.Hour):
		return 60 * minute
	case int64(store.Day):
		return 24 * 60 * minute
	case int64(store.Week), int64(store.Month), int64(store.Year):
		return longestKept
	}
	return 0
}

// ownEnd returns the end of the window that starts at now, in r.Zone.
func ownEnd(r *store.Rule, s *State, now int64) int64 {
	start, end := CalendarWindow(r.Calendar, r.Zone, now)
	if s.V[2] != fixedCode(r) || s.V[1] == start {
		return end
	}
	earliest := s.V[1] + WindowKept(s.V[2])
	for i := 1; i < ownWindows && end < earliest; i++ {
		_, end = CalendarWindow(r.Calendar, r.Zone, end)
	}
	return end
}

func ownFresh(s *State, now int64) int64 {
	if s.V[1] == 0 {
		return now
	}
	return s.V[1] + WindowKept(s.V[2])
}

// ownReset returns when the whole limit and no credit will be available again.
func ownReset(s *State, now int64) int64 {
	at := ownLimitReset(s, now)
	if creditAt(s, now) > 0 {
		at = min(max(at, s.Until), maxInteger)
	}
	return at
}

// ownLimitReset is ownReset without credit.
func ownLimitReset(s *State, now int64) int64 {
	if s.V[0] > 0 {
		return min(max(now, s.V[1]), maxInteger)
	}
	return now
}
