// Package retryafter reads the header field Retry-After.
package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxSeconds is the longest that a Duration holds.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// Of returns how long an answer that was received at a time asks to wait, from 0 to most:
// in seconds, or as a date. A date is compared with the answer's own Date if there is one,
// so the clocks need not agree. It reports false if the field is missing or invalid.
func Of(h http.Header, received time.Time, most time.Duration) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if isNumber(value) {
		number, _ := strconv.ParseInt(value, 10, 64) // on a range error, the largest
		return In(h, number, received, most), true
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(then.Sub(sent(h, received)), 0), most), true
}

// In returns how long a number of an answer asks to wait, from 0 to most. Some servers
// send a time of day where seconds are due: a number that would be 31 years or more counts
// as Unix seconds, or as Unix milliseconds or finer.
func In(h http.Header, number int64, received time.Time, most time.Duration) time.Duration {
	const (
		unix   = 1_000_000_000     // September 2001
		millis = 1_000_000_000_000 // September 2001; in seconds, the year 33658
	)
	if number >= unix {
		for number >= millis {
			number = number/1000 + 1 // round up
		}
		number -= sent(h, received).Unix()
	}
	return min(time.Duration(min(max(number, 0), maxSeconds))*time.Second, most)
}

// sent returns when an answer was sent by the clock of its server, or received.
func sent(h http.Header, received time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return received
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
