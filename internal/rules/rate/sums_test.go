package rate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// The last that is taken of each bound, and the first that is not.
func TestRatesAtTheirBounds(t *testing.T) {
	const most = "35184372088831us" // store.MaxPeriod
	for _, row := range []struct {
		rate string
		want Rate
		err  string
	}{
		{"1/" + most, Rate{N: 1, Period: store.MaxPeriod}, ""},
		{"1/35184372088832us", Rate{}, "the period 35184372088832us is too long: the maximum is 407 days"},
		{"1/407d5h", Rate{N: 1, Period: 407*day + 5*time.Hour}, ""},
		{"1/407d6h", Rate{}, `the period "407d6h" is too long: the maximum is 407 days`},
		{"1/35184372088830us1us", Rate{N: 1, Period: store.MaxPeriod}, ""},
		{"1/35184372088831us1us", Rate{}, `the period "35184372088831us1us" is too long: the maximum is 407 days`},
		{"1/" + most + "0s", Rate{N: 1, Period: store.MaxPeriod}, ""},
		{"1/1us", Rate{N: 1, Period: time.Microsecond}, ""},
		{"1/0d0us", Rate{}, `the period "0d0us" must be longer than zero`},
		{"1/0m1s", Rate{N: 1, Period: time.Second}, ""},
		{"1/1m0s", Rate{N: 1, Period: time.Minute}, ""},
		{"0/1s", Rate{Period: time.Second}, ""},
		{"1_099_511_627_776/s", Rate{N: store.MaxLimit, Period: time.Second}, ""},
		{"1_099_511_627_777/s", Rate{}, `the count "1_099_511_627_777" is too large: the maximum is 1099511627776`},
	} {
		got, err := Parse(row.rate)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s: %+v, %v; want %+v, %s", row.rate, got, err, row.want, row.err)
		}
	}
}

// The hint about separators, or about less than one, appears only where it helps.
func TestCountsAreExplained(t *testing.T) {
	const whole = "want a whole number"
	const separators, period = whole + ", such as 5 or 1_000", "for less than one use a longer period, such as 1/2s"
	for count, hint := range map[string]string{
		"1.5": separators, "1,5": separators, "1.000.000": separators, "1.": separators,
		".5": period, ",5": period, "0.5": period, "0,25": period,
		"5x": whole, "5 000": whole, "5'000": whole, "_5": whole, "5_": whole, "5__0": whole, "1e3": whole, "5-": whole,
	} {
		want := fmt.Sprintf("invalid count %q: %s", count, hint)
		if _, err := ParseCount(count); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", count, err, want)
		}
	}
}

// words are the ways to write each unit, and how long it is; no calendar.
func words() map[time.Duration][]string {
	return map[time.Duration][]string{
		time.Microsecond: {"us", "µs", "μs", "microsecond", "microseconds"},
		time.Millisecond: {"ms", "msec", "millisecond", "milliseconds"},
		time.Second:      {"s", "sec", "secs", "second", "seconds"},
		time.Minute:      {"m", "min", "mins", "minute", "minutes"},
		time.Hour:        {"h", "hr", "hrs", "hour", "hours"},
		24 * time.Hour:   {"d", "day", "days"},
		168 * time.Hour:  {"w", "wk", "week", "weeks"},
	}
}

// A rate is the sum of its parts, however it is written, and what it is written as
// afterwards is that rate.
func TestRatesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	units, refused := []time.Duration{}, 0
	for length := range words() {
		units = append(units, length)
	}
	space := func() string { return strings.Repeat(" ", r.IntN(2)) }
	for range 5000 {
		n := r.Int64N(1 << r.IntN(40))
		text := space() + grouped(r, n) + space() + "/" + space()
		var total time.Duration
		for range 1 + r.IntN(3) {
			length := units[r.IntN(len(units))]
			count := r.Int64N(40)
			names := words()[length]
			name := names[r.IntN(len(names))]
			if r.IntN(4) == 0 && len(name) > 1 {
				name = strings.ToUpper(name)
			}
			text += grouped(r, count) + space() + name + space()
			total += time.Duration(count) * length
		}
		got, err := Parse(text)
		if total == 0 || total > store.MaxPeriod {
			if refused++; err == nil {
				t.Errorf("%q is taken: %+v", text, got)
			}
			continue
		}
		want := Rate{N: n, Period: total}
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := Parse(want.String()); err != nil || again != want {
			t.Errorf("%+v is written %q and read as %+v, %v", want, want, again, err)
		}
	}
	if refused < 50 || refused > 2500 {
		t.Errorf("%d refused: the random rates are not what they were meant to be", refused)
	}
}

// grouped writes a number, sometimes in groups of three.
func grouped(r *rand.Rand, n int64) string {
	text := fmt.Sprint(n)
	if r.IntN(2) == 0 {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "_" + text[i:]
	}
	return text
}

// A unit alone is one of the calendar where there is one; the same with a number is
// not.
func TestUnitsOfTheCalendar(t *testing.T) {
	for word, want := range map[string]Unit{
		"ms": {time.Millisecond, store.NoCalendar}, "sec": {time.Second, store.NoCalendar},
		"min": {time.Minute, headgate.Minute}, "hr": {time.Hour, headgate.Hour}, "day": {day, headgate.Day},
		"wk": {week, headgate.Week}, "month": {30 * day, headgate.Month}, "YEARS": {365 * day, headgate.Year},
	} {
		period, calendar, err := ParsePeriod(word)
		if err != nil || (Unit{period, calendar}) != want {
			t.Errorf("%s: %s of %s, %v, want %+v", word, period, calendar, err, want)
		}
		period, calendar, err = ParsePeriod("1" + word)
		if fixed := want.Calendar < headgate.Month; (err == nil) != fixed || fixed && (period != want.Length || calendar != store.NoCalendar) {
			t.Errorf("1%s: %s of %s, %v", word, period, calendar, err)
		}
	}
	if u, ok := UnitOf("Day"); ok {
		t.Errorf("UnitOf takes lower case alone, and took Day for %+v", u)
	}
}
