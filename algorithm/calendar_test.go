package algorithm

import (
	"testing"
	"time"
	_ "time/tzdata" // the tests do not depend on the machine's zones

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestCalendarWindows lists windows that are easy to get wrong.
func TestCalendarWindows(t *testing.T) {
	tests := []struct {
		unit       store.CalendarUnit
		zone       string
		at         string // UTC
		start, end string // in the zone
		hours      float64
	}{
		{store.Day, "Europe/Berlin", "2026-03-29 12:00", "2026-03-29 00:00 +0100", "2026-03-30 00:00 +0200", 23},
		{store.Day, "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 00:00 +0200", "2026-10-26 00:00 +0100", 25},
		{store.Day, "Europe/Berlin", "2026-03-28 23:00", "2026-03-29 00:00 +0100", "2026-03-30 00:00 +0200", 23},
		{store.Day, "America/New_York", "2026-03-08 12:00", "2026-03-08 00:00 -0500", "2026-03-09 00:00 -0400", 23},
		{store.Day, "America/New_York", "2026-11-01 12:00", "2026-11-01 00:00 -0400", "2026-11-02 00:00 -0500", 25},
		{store.Day, "Australia/Lord_Howe", "2026-04-04 20:00", "2026-04-05 00:00 +1100", "2026-04-06 00:00 +1030", 24.5},
		{store.Day, "Australia/Lord_Howe", "2026-10-04 12:00", "2026-10-04 00:00 +1030", "2026-10-05 00:00 +1100", 23.5},
		{store.Day, "Asia/Kolkata", "2026-06-01 18:29", "2026-06-01 00:00 +0530", "2026-06-02 00:00 +0530", 24},
		{store.Day, "Asia/Kolkata", "2026-06-01 18:30", "2026-06-02 00:00 +0530", "2026-06-03 00:00 +0530", 24},
		// Midnight does not exist: clocks go from 23:59:59 to 01:00.
		{store.Day, "America/Sao_Paulo", "2018-11-04 12:00", "2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200", 23},
		{store.Day, "America/Sao_Paulo", "2018-11-03 12:00", "2018-11-03 00:00 -0300", "2018-11-04 01:00 -0200", 24},
		{store.Day, "Asia/Beirut", "2022-03-27 12:00", "2022-03-27 01:00 +0300", "2022-03-28 00:00 +0300", 23},
		{store.Day, "Africa/Cairo", "2024-04-26 12:00", "2024-04-26 01:00 +0300", "2024-04-27 00:00 +0300", 23},
		// Midnight exists twice: from 24:00 back to 23:00 (Cairo), from 00:59:59 to 00:00 (Havana).
		{store.Day, "Africa/Cairo", "2024-10-31 12:00", "2024-10-31 00:00 +0300", "2024-11-01 00:00 +0200", 25},
		{store.Day, "America/Havana", "2026-11-01 12:00", "2026-11-01 00:00 -0400", "2026-11-02 00:00 -0500", 25},
		// A day that does not exist: Samoa went from 29 to 31 December.
		{store.Day, "Pacific/Apia", "2011-12-30 09:59", "2011-12-29 00:00 -1000", "2011-12-31 00:00 +1400", 24},
		{store.Day, "Pacific/Apia", "2011-12-30 10:00", "2011-12-31 00:00 +1400", "2012-01-01 00:00 +1400", 24},
		{store.Week, "UTC", "2026-01-01 00:00", "2025-12-29 00:00 +0000", "2026-01-05 00:00 +0000", 7 * 24},
		{store.Week, "UTC", "2026-01-04 23:59", "2025-12-29 00:00 +0000", "2026-01-05 00:00 +0000", 7 * 24},
		{store.Week, "UTC", "2026-01-05 00:00", "2026-01-05 00:00 +0000", "2026-01-12 00:00 +0000", 7 * 24},
		{store.Week, "Europe/Berlin", "2026-03-29 12:00", "2026-03-23 00:00 +0100", "2026-03-30 00:00 +0200", 7*24 - 1},
		{store.Month, "UTC", "2024-02-29 23:59", "2024-02-01 00:00 +0000", "2024-03-01 00:00 +0000", 29 * 24},
		{store.Month, "UTC", "2026-02-28 23:59", "2026-02-01 00:00 +0000", "2026-03-01 00:00 +0000", 28 * 24},
		{store.Month, "UTC", "2026-12-31 23:59", "2026-12-01 00:00 +0000", "2027-01-01 00:00 +0000", 31 * 24},
		{store.Month, "Europe/Berlin", "2026-10-31 22:59", "2026-10-01 00:00 +0200", "2026-11-01 00:00 +0100", 31*24 + 1},
		{store.Year, "UTC", "2024-06-01 00:00", "2024-01-01 00:00 +0000", "2025-01-01 00:00 +0000", 366 * 24},
		{store.Year, "Asia/Kolkata", "2025-12-31 18:30", "2026-01-01 00:00 +0530", "2027-01-01 00:00 +0530", 365 * 24},
		{store.Hour, "Asia/Kolkata", "2026-01-01 00:00", "2026-01-01 05:00 +0530", "2026-01-01 06:00 +0530", 1},
		{store.Hour, "Australia/Lord_Howe", "2026-04-04 15:10", "2026-04-05 01:30 +1030", "2026-04-05 02:00 +1030", 0.5},
		// The last day of a leap year after the last one in the zone's table.
		{store.Hour, "America/St_Johns", "2040-12-30 23:50", "2040-12-30 20:00 -0330", "2040-12-30 21:00 -0330", 1},
		{store.Hour, "America/St_Johns", "2040-12-31 00:00", "2040-12-30 20:00 -0330", "2040-12-30 21:00 -0330", 1},
		{store.Hour, "Europe/Berlin", "2040-12-31 12:00", "2040-12-31 13:00 +0100", "2040-12-31 14:00 +0100", 1},
		{store.Hour, "America/St_Johns", "1970-01-01 00:10", "1969-12-31 20:00 -0330", "1969-12-31 21:00 -0330", 1}, // before 1970 there
	}
	const layout = "2006-01-02 15:04 -0700"
	for _, tt := range tests {
		at, err := time.Parse("2006-01-02 15:04", tt.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end := CalendarWindow(tt.unit, zone(tt.zone), at.UnixMicro())
		s, e := time.UnixMicro(start).In(zone(tt.zone)), time.UnixMicro(end).In(zone(tt.zone))
		if s.Format(layout) != tt.start || e.Format(layout) != tt.end || e.Sub(s).Hours() != tt.hours {
			t.Errorf("%s of %s UTC in %s: %s to %s (%v), want %s to %s (%vh)",
				tt.unit, tt.at, tt.zone, s.Format(layout), e.Format(layout), e.Sub(s), tt.start, tt.end, tt.hours)
		}
	}
}

// TestNoCalendar: without a calendar, a window is just the instant.
func TestNoCalendar(t *testing.T) {
	if start, end := CalendarWindow(store.NoCalendar, time.UTC, t0); start != t0 || end != t0+1 {
		t.Errorf("%d to %d", start-t0, end-t0)
	}
}

// label returns what a wall calendar shows for a window: for units from a day up, two
// instants are in one window if their labels are equal.
func label(unit store.CalendarUnit, at time.Time) [3]int {
	year, month, day := at.Date()
	switch unit {
	case store.Day:
		return [3]int{year, int(month), day}
	case store.Week:
		y, w := at.ISOWeek()
		return [3]int{y, w}
	case store.Month:
		return [3]int{year, int(month)}
	case store.Year:
		return [3]int{year}
	case store.NoCalendar, store.Minute, store.Hour:
	}
	return [3]int{}
}

// TestCalendarAgainstScan walks through years in steps of half an hour and compares
// with the local date. The date must not turn back, as it does at 24:00 in a few zones;
// there, a window is left only once.
func TestCalendarAgainstScan(t *testing.T) {
	zones := []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo",
		"Asia/Beirut", "Africa/Cairo", "America/Havana", "Pacific/Apia", "Asia/Kathmandu", "America/St_Johns",
	}
	const halfHour = int64(30 * time.Minute / time.Microsecond)
	for _, name := range zones {
		for _, unit := range []store.CalendarUnit{store.Day, store.Week, store.Month, store.Year} {
			z := zone(name)
			first := time.Date(2010, 12, 15, 0, 0, 0, 0, z).UnixMicro() // Samoa skips a day in December 2011
			last := first + 3*year/2
			if name == "America/Sao_Paulo" || name == "Africa/Cairo" {
				last = first + 5*year/2
			}
			// Clocks change at full or half hours. Longer windows start with days.
			step := halfHour
			if unit != store.Day {
				step *= 5
			}
			if unit == store.Year {
				last = first + 3*year
			}
			start, end := CalendarWindow(unit, z, first)
			for at := first; at < last; at += step {
				s, e := CalendarWindow(unit, z, at)
				if at < s || at >= e {
					t.Fatalf("%s in %s at %s: the window %s to %s does not hold it", unit, name, time.UnixMicro(at).In(z), time.UnixMicro(s).In(z), time.UnixMicro(e).In(z))
				}
				if at < end && (s != start || e != end) || at >= end && s != end {
					t.Fatalf("%s in %s at %s: windows are not contiguous: after %s to %s comes %s to %s", unit, name, time.UnixMicro(at).In(z),
						time.UnixMicro(start).In(z), time.UnixMicro(end).In(z), time.UnixMicro(s).In(z), time.UnixMicro(e).In(z))
				}
				start, end = s, e
				now, begin, before := time.UnixMicro(at).In(z), time.UnixMicro(s).In(z), time.UnixMicro(s-1).In(z)
				if !turnsBack(z, at) && label(unit, now) != label(unit, begin) {
					t.Fatalf("%s in %s: %s is in the window of %s", unit, name, now, begin)
				}
				if label(unit, before) == label(unit, begin) {
					t.Fatalf("%s in %s: the window of %s begins too late", unit, name, begin)
				}
			}
		}
	}
}

// turnsBack reports whether the local clock is about to show, or has just shown, this
// hour of another date again.
func turnsBack(z *time.Location, at int64) bool {
	now := time.UnixMicro(at).In(z)
	return now.Add(-2*time.Hour).In(z).Day() != now.Add(2*time.Hour).In(z).Day() && offset(now.Add(-2*time.Hour)) > offset(now.Add(2*time.Hour))
}

func offset(t time.Time) int {
	_, o := t.Zone()
	return o
}

// TestClockHoursAreContiguous does the same for minutes and hours.
func TestClockHoursAreContiguous(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Apia"} {
		z := zone(name)
		for _, unit := range []store.CalendarUnit{store.Minute, store.Hour} {
			at := time.Date(2011, 1, 1, 0, 0, 0, 0, z).UnixMicro()
			windows := 9000
			if unit == store.Minute {
				at = time.Date(2011, 4, 2, 0, 0, 0, 0, z).UnixMicro()
			}
			for range windows {
				start, end := CalendarWindow(unit, z, at)
				s2, e2 := CalendarWindow(unit, z, end-1)
				length := end - start
				if start != at || s2 != start || e2 != end || length <= 0 || length > nominalHour(unit) {
					t.Fatalf("%s in %s at %s: %d to %d", unit, name, time.UnixMicro(at).In(z), start, end)
				}
				at = end
			}
		}
	}
}

func nominalHour(unit store.CalendarUnit) int64 {
	if unit == store.Minute {
		return int64(time.Minute / time.Microsecond)
	}
	return int64(time.Hour / time.Microsecond)
}

// TestCalendarLimit counts over the night on which clocks go back: the day has 25 hours
// and one budget.
func TestCalendarLimit(t *testing.T) {
	limit := headgate.PerCalendar(10, store.Day, zone("Europe/Berlin"))
	start := time.Date(2026, 10, 25, 0, 0, 0, 0, zone("Europe/Berlin")).UnixMicro()
	var s State
	admitted := 0
	for at := start; at < start+25*hour; at += hour / 2 {
		if Step(limit.Rule(), &s, at, Request{Cost: 1}).Allowed {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("the day of 25 hours admitted %d", admitted)
	}
	got := Step(limit.Rule(), &s, start+25*hour-1, Request{Cost: 1})
	if got.Allowed || got.RetryAfter != time.Microsecond {
		t.Errorf("a microsecond before midnight: %s", show(got))
	}
	if got := Step(limit.Rule(), &s, start+25*hour, Request{Cost: 1}); !got.Allowed || got.Remaining != 9 {
		t.Errorf("at midnight: %s", show(got))
	}
}

const hour = int64(time.Hour / time.Microsecond)
