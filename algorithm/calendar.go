package algorithm

import (
	"time"

	"github.com/headgate/headgate/store"
)

// CalendarWindow returns the calendar window in zone that contains now: from start up
// to, but not including, end, in microseconds since the epoch. A day starts at the
// first instant of its date, even where clocks skip midnight. A minute or hour that a
// clock change cuts short ends at the change. Windows follow each other without gaps.
func CalendarWindow(unit store.CalendarUnit, zone *time.Location, now int64) (start, end int64) {
	local := time.UnixMicro(now).In(zone)
	year, month, day := local.Date()
	switch unit {
	case store.Day:
		return dayStart(year, month, day, zone), dayStart(year, month, day+1, zone)
	case store.Week:
		monday := day - (int(local.Weekday())+6)%7
		return dayStart(year, month, monday, zone), dayStart(year, month, monday+7, zone)
	case store.Month:
		return dayStart(year, month, 1, zone), dayStart(year, month+1, 1, zone)
	case store.Year:
		return dayStart(year, 1, 1, zone), dayStart(year+1, 1, 1, zone)
	case store.Minute:
		return clockWindow(local, now, 60)
	case store.Hour:
		return clockWindow(local, now, 3600)
	case store.NoCalendar:
	}
	return now, now + 1
}

// clockWindow returns the window of the given length on the local clock, cut at changes
// of the zone's offset.
func clockWindow(local time.Time, now, seconds int64) (start, end int64) {
	const second = int64(time.Second / time.Microsecond)
	_, offset := local.Zone()
	into := (now + int64(offset)*second) % (seconds * second)
	if into < 0 {
		into += seconds * second
	}
	start = now - into
	end = start + seconds*second
	from, to := local.ZoneBounds()
	if at := from.UnixMicro(); !from.IsZero() && at > start && offsetOf(from.Add(-time.Microsecond)) != offset {
		start = at
	}
	if at := to.UnixMicro(); !to.IsZero() && at < end && offsetOf(to) != offset {
		end = at
	}
	return start, end
}

// offsetOf returns the offset of a time's zone. It may be the same on both sides of a
// bound: that of another name, or the end of a leap year after 2037, which ZoneBounds
// reports a day early.
func offsetOf(t time.Time) int {
	_, offset := t.Zone()
	return offset
}

// dayStart returns the first instant of a date, which time.Date normalises. If a clock
// change repeats midnight, that is the first one; if it skips midnight or the whole
// day, it is the change.
func dayStart(year int, month time.Month, day int, zone *time.Location) int64 {
	utc := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	year, month, day = utc.Date()
	_, before := utc.Add(-36 * time.Hour).In(zone).Zone()
	_, after := utc.Add(36 * time.Hour).In(zone).Zone()
	first := utc.Add(-time.Duration(max(before, after)) * time.Second).In(zone)
	second := utc.Add(-time.Duration(min(before, after)) * time.Second).In(zone)
	for _, t := range [...]time.Time{first, second} {
		y, m, d := t.Date()
		if y == year && m == month && d == day && t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 {
			return t.UnixMicro()
		}
	}
	if _, change := first.ZoneBounds(); !change.IsZero() {
		return change.UnixMicro()
	}
	return first.UnixMicro()
}
