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
		seconds, _ := strconv.ParseInt(value, 10, 64) // on a range error, the largest
		return min(time.Duration(min(seconds, maxSeconds))*time.Second, most), true
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		received = date
	}
	return min(max(then.Sub(received), 0), most), true
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
