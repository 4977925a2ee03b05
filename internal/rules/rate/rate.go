// Package rate parses the rate of a limit: a count per period, such as 5/minute.
package rate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/store"
)

// Rate is N per Period.
type Rate struct {
	N      int64         // the count
	Period time.Duration // the period; 30 and 365 days for a month and a year
	// Unit is set if the period was written as a single minute, hour, day,
	// week, month or year, which a fixed window can take from the calendar.
	Unit      headgate.CalendarUnit
	Unlimited bool // no limit; the other fields are then zero
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Parse reads a rate:
//
//	rate     = count "/" period | "unlimited"
//	count    = digits, which may be grouped by _
//	period   = unit | 1*( digits unit )
//	unit     = us ms s m h d w mo y, or a whole word such as minute or hours
//
// such as 5/minute, 300/3h, 60/30s, 2/week or 1_000 / 1m30s. Spaces around the
// parts do not count, nor does case, except that a lone M could be a minute or
// a month and is refused. A month and a year cannot be multiplied, since they
// have no fixed length.
func Parse(text string) (Rate, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Rate{}, errors.New("the rate is empty: want N/unit, such as 5/minute")
	}
	if strings.EqualFold(text, "unlimited") {
		return Rate{Unlimited: true}, nil
	}
	count, period, ok := strings.Cut(text, "/")
	if !ok {
		return Rate{}, rateWithoutSlash(text)
	}
	n, err := ParseCount(count)
	if err != nil {
		return Rate{}, err
	}
	r := Rate{N: n}
	r.Period, r.Unit, err = ParsePeriod(period)
	if err != nil {
		return Rate{}, err
	}
	return r, nil
}

// rateWithoutSlash returns the error for a rate without a slash.
func rateWithoutSlash(text string) error {
	if _, err := ParseCount(text); err == nil {
		return fmt.Errorf("invalid rate %s: want N/unit, such as %s/minute", clip.Quote(text), text)
	}
	if word := nearest.Word(text, []string{"unlimited"}); word != "" {
		return fmt.Errorf("unknown rate %s, did you mean %q?", clip.Quote(text), word)
	}
	return fmt.Errorf("invalid rate %s: want N/unit, such as 5/minute", clip.Quote(text))
}

// ParseCount parses the count of a rate: digits, optionally grouped by _, from 0 to
// [store.MaxLimit].
func ParseCount(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, errors.New("the count before the / is missing: want N/unit, such as 5/minute")
	}
	digits, err := countDigits(text)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > store.MaxLimit {
		return 0, fmt.Errorf("the count %s is too large: the maximum is %d", clip.Quote(text), int64(store.MaxLimit))
	}
	return n, nil
}

// countDigits returns text without its underscores if it is a whole number.
func countDigits(text string) (string, error) {
	grouped := false
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
		case c == '_' && i > 0 && i < len(text)-1 && text[i-1] != '_':
			grouped = true
		case c == '-' && i == 0:
			return "", fmt.Errorf("the count %s is negative", clip.Quote(text))
		case (c == '.' || c == ',') && strings.Trim(text[:i], "0") == "":
			return "", fmt.Errorf("invalid count %s: for less than one use a longer period, such as 1/2s", clip.Quote(text))
		case c == '.' || c == ',':
			return "", fmt.Errorf("invalid count %s: want a whole number, such as 5 or 1_000", clip.Quote(text))
		default:
			return "", fmt.Errorf("invalid count %s: want a whole number", clip.Quote(text))
		}
	}
	if grouped {
		text = strings.ReplaceAll(text, "_", "")
	}
	return text, nil
}

// Unit is a unit of time: its length, and the calendar's name for it.
type Unit struct {
	Length   time.Duration
	Calendar headgate.CalendarUnit
}

// UnitOf returns the unit with that name.
func UnitOf(word string) (Unit, bool) {
	switch word {
	case "us", "µs", "μs", "microsecond", "microseconds":
		return Unit{time.Microsecond, store.NoCalendar}, true
	case "ms", "msec", "millisecond", "milliseconds":
		return Unit{time.Millisecond, store.NoCalendar}, true
	case "s", "sec", "secs", "second", "seconds":
		return Unit{time.Second, store.NoCalendar}, true
	case "m", "min", "mins", "minute", "minutes":
		return Unit{time.Minute, headgate.Minute}, true
	case "h", "hr", "hrs", "hour", "hours":
		return Unit{time.Hour, headgate.Hour}, true
	case "d", "day", "days":
		return Unit{day, headgate.Day}, true
	case "w", "wk", "week", "weeks":
		return Unit{week, headgate.Week}, true
	case "mo", "month", "months":
		return Unit{30 * day, headgate.Month}, true
	case "y", "yr", "year", "years":
		return Unit{365 * day, headgate.Year}, true
	}
	return Unit{}, false
}

// parseUnit reads the name of a unit.
func parseUnit(word string) (Unit, error) {
	if word == "M" {
		return Unit{}, errors.New(`ambiguous unit "M": write min for minute or mo for month`)
	}
	if u, ok := UnitOf(strings.ToLower(word)); ok {
		return u, nil
	}
	known := []string{"millisecond", "second", "minute", "hour", "day", "week", "month", "year"}
	if hint := nearest.DidYouMean(word, known); hint != "" {
		return Unit{}, fmt.Errorf("unknown unit %s%s", clip.Quote(word), hint)
	}
	return Unit{}, fmt.Errorf("unknown unit %s: use second, minute, hour, day, week, month or year", clip.Quote(word))
}

// ParsePeriod parses the period of a rate, after the slash. The calendar unit is set
// only for a unit without a number.
func ParsePeriod(text string) (time.Duration, headgate.CalendarUnit, error) {
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, 0, errors.New("the period after the / is missing: want, for example, second, minute or 30s")
	}
	if c := rest[0]; c == '-' || c == '+' {
		return 0, 0, fmt.Errorf("invalid period %s: remove the sign", clip.Quote(rest))
	}
	if rest[0] < '0' || rest[0] > '9' {
		u, err := parseUnit(rest)
		return u.Length, u.Calendar, err
	}
	var total time.Duration
	for rest != "" {
		var part time.Duration
		var err error
		part, rest, err = parsePart(rest)
		if err != nil {
			return 0, 0, err
		}
		if part > store.MaxPeriod-total {
			return 0, 0, fmt.Errorf("the period %s is too long: the maximum is %d days", clip.Quote(strings.TrimSpace(text)), store.MaxPeriod/day)
		}
		total += part
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("the period %s must be longer than zero", clip.Quote(strings.TrimSpace(text)))
	}
	return total, store.NoCalendar, nil
}

// parsePart reads one number with its unit and returns what follows.
func parsePart(text string) (part time.Duration, rest string, err error) {
	end := strings.IndexFunc(text, func(c rune) bool { return (c < '0' || c > '9') && c != '_' })
	if end < 0 {
		return 0, "", fmt.Errorf("the period %s needs a unit, such as %ss", clip.Quote(text), text)
	}
	if c := text[end]; c == '.' || c == ',' {
		return 0, "", fmt.Errorf("invalid period %s: want whole numbers, such as 90m for an hour and a half", clip.Quote(text))
	}
	digits, err := countDigits(text[:end])
	if err != nil {
		return 0, "", fmt.Errorf("invalid period %s: want a whole number and a unit, such as 30s", clip.Quote(text))
	}
	text = strings.TrimLeft(text[end:], " ")
	end = strings.IndexFunc(text, func(c rune) bool { return c >= '0' && c <= '9' })
	if end < 0 {
		end = len(text)
	}
	word := strings.TrimSpace(text[:end])
	u, err := parseUnit(word)
	if err != nil {
		return 0, "", err
	}
	if u.Calendar >= headgate.Month {
		return 0, "", fmt.Errorf("months and years have no fixed length: use days, such as 90d, or a single %s", u.Calendar)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > int64(store.MaxPeriod/u.Length) {
		return 0, "", fmt.Errorf("the period %s%s is too long: the maximum is %d days", digits, word, store.MaxPeriod/day)
	}
	return time.Duration(n) * u.Length, text[end:], nil
}

// Short writes a duration without the units that are zero: 24h, not 24h0m0s; whole days
// from a week on as days: 30d.
func Short(d time.Duration) string {
	if d >= week && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Roughly formats a time that goes by: to the second, or from two days on to the hour.
func Roughly(d time.Duration) string {
	if d = d.Round(time.Second); d < 2*day {
		return Short(d)
	}
	if d = d.Round(time.Hour); d%day != 0 {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}
