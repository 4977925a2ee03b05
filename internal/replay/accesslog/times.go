package accesslog

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
)

// clock parses times. It caches the last hour, since consecutive lines mostly
// share it.
type clock struct {
	zone         *time.Location // of times without one
	hour, offset string         // text of the last hour in timeLocal, with its zone
	at           int64          // of that hour, in microseconds
}

func (c *clock) parse(form slot, text string) (int64, error) {
	var at int64
	var ok bool
	switch form {
	case timeLocal:
		at, ok = c.local(text)
	case timeEpoch, timeDecided:
		at, ok = epoch(text)
	case timeISO:
		at, ok = c.iso(text)
	default:
		at, ok = c.any(text)
	}
	if !ok {
		return 0, fmt.Errorf("%q is not a time", clip.Text(text, 40))
	}
	return at, nil
}

// local parses 21/Nov/2026:12:06:46 +0000, with or without brackets and a
// fraction of a second.
func (c *clock) local(text string) (int64, bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	const length = len("21/Nov/2026:12:06:46")
	if len(text) < length || text[14] != ':' || text[17] != ':' {
		return 0, false
	}
	fraction, rest, ok := fractionOf(text[length:])
	if !ok {
		return 0, false
	}
	minute, second := two(text[15:]), two(text[18:])
	if minute < 0 || minute > 59 || second < 0 || second > 60 {
		return 0, false
	}
	if text[:14] != c.hour || rest != c.offset {
		zone := c.zone
		layout, hour := "02/Jan/2006:15", text[:14]
		if zone == nil {
			zone = time.UTC
		}
		if rest != "" {
			layout, hour = layout+" -0700", hour+rest
		}
		t, err := time.ParseInLocation(layout, hour, zone)
		if err != nil {
			return 0, false
		}
		c.hour, c.offset, c.at = strings.Clone(text[:14]), strings.Clone(rest), t.UnixMicro()
	}
	return c.at + int64(minute*60+second)*1e6 + fraction, true
}

// two parses two digits; it returns -1 for anything else.
func two(text string) int {
	a, b := text[0]-'0', text[1]-'0'
	if a > 9 || b > 9 {
		return -1
	}
	return int(a)*10 + int(b)
}

// fractionOf parses .123 or ,123 at the start of text, in microseconds.
func fractionOf(text string) (micros int64, rest string, ok bool) {
	if text == "" || text[0] != '.' && text[0] != ',' {
		return 0, text, true
	}
	i, unit := 1, int64(100_000)
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		micros += int64(text[i]-'0') * unit
		unit /= 10
	}
	return micros, text[i:], i > 1
}

// iso parses 2026-11-21T12:06:46.123Z, also with a space instead of the T, with
// slashes, without a zone, or with an offset such as +0100.
func (c *clock) iso(text string) (int64, bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	const length = len("2026-11-21T12:06:46")
	if len(text) < length || len(text) > 48 || text[10] != 'T' && text[10] != ' ' && text[10] != 't' || text[13] != ':' || text[16] != ':' {
		return 0, false
	}
	var n [7]int
	for i, at := range []int{0, 2, 5, 8, 11, 14, 17} {
		if n[i] = two(text[at:]); n[i] < 0 {
			return 0, false
		}
	}
	if n[2] < 1 || n[2] > 12 || n[3] < 1 || n[3] > 31 || n[4] > 23 || n[5] > 59 || n[6] > 60 {
		return 0, false
	}
	fraction, rest, ok := fractionOf(text[length:])
	if !ok {
		return 0, false
	}
	zone, offset := c.zone, 0
	switch rest = strings.TrimSpace(rest); {
	case rest == "" && zone != nil:
	case rest == "", rest == "Z", rest == "z", rest == "UTC":
		zone = time.UTC
	default:
		if offset, ok = offsetOf(rest); !ok {
			return 0, false
		}
		zone = time.UTC
	}
	t := time.Date(n[0]*100+n[1], time.Month(n[2]), n[3], n[4], n[5], n[6], 0, zone)
	if t.Day() != n[3] && n[4] != 23 { // 31 February
		return 0, false
	}
	return t.UnixMicro() - int64(offset)*1e6 + fraction, true
}

// offsetOf parses +01:00, +0100 or +01, in seconds.
func offsetOf(text string) (int, bool) {
	if len(text) < 3 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	hours, minutes := two(text[1:]), 0
	switch rest := strings.TrimPrefix(text[3:], ":"); len(rest) {
	case 0:
	case 2:
		minutes = two(rest)
	default:
		return 0, false
	}
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	offset := (hours*60 + minutes) * 60
	if text[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// epoch parses a number of seconds since the Unix epoch, with or without a
// fraction, or of milliseconds, microseconds or nanoseconds. It assumes a year
// from 1973 to 5000 to tell them apart.
func epoch(text string) (int64, bool) {
	whole, fraction, pointed := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 1e8 {
		return slowEpoch(text)
	}
	switch {
	case n >= 1e17:
		return n / 1000, true
	case n >= 1e14:
		return n, true
	case n >= 1e11:
		n *= 1000
		if len(fraction) > 3 {
			fraction = fraction[:3]
		}
		f, err := strconv.ParseUint((fraction + "000")[:3], 10, 16)
		return n + int64(f), err == nil
	}
	n *= 1e6
	if pointed {
		micros, rest, ok := fractionOf(text[len(whole):])
		if rest != "" {
			return slowEpoch(text)
		}
		return n + micros, ok
	}
	return n, true
}

// slowEpoch is epoch for numbers such as 1.7954e9.
func slowEpoch(text string) (int64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 1e8 && f < 1e11) {
		return 0, false
	}
	return int64(math.Round(f * 1e6)), true
}

// any parses a time in any of these forms.
func (c *clock) any(text string) (int64, bool) {
	if at, ok := c.iso(text); ok {
		return at, true
	}
	if at, ok := epoch(text); ok {
		return at, true
	}
	if at, ok := c.local(text); ok {
		return at, true
	}
	for _, layout := range []string{time.RFC1123Z, time.RFC1123, time.ANSIC} {
		if t, err := time.ParseInLocation(layout, text, c.zone); err == nil {
			return t.UnixMicro(), true
		}
	}
	return 0, false
}

// parseSpan parses a duration, in microseconds: 0.25 (seconds), 250ms, 1m2s.
func parseSpan(text string) (int64, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f < 1e9 {
		return int64(f * 1e6), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errDuration
	}
	return d.Microseconds(), nil
}
