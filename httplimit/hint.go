package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/retryafter"
	"github.com/headgate/headgate/internal/request/client"
)

// hint returns how long after at res reports that nothing is left, and false if it does
// not. The result is from 0 to headgate.MaxPeriod. Malformed fields are ignored.
func hint(res *http.Response, at time.Time) (time.Duration, bool) {
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryafter.Of(res.Header, at, headgate.MaxPeriod); ok {
			return d, true
		}
	}
	if d, ok := exhausted(res.Header["Ratelimit"]); ok {
		return d, true
	}
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		remaining := strings.TrimSpace(res.Header.Get(prefix + "Remaining"))
		reset, ok := number(res.Header.Get(prefix + "Reset"))
		if left, isNumber := number(remaining); isNumber && left == 0 && ok {
			return fromReset(reset, at), true
		}
	}
	return 0, false
}

// exhausted returns the longest t of the members of RateLimit whose r is 0.
func exhausted(lines []string) (longest time.Duration, found bool) {
	for _, line := range lines {
		for more := true; more; {
			var member string
			member, line, more = client.CutUnquoted(line, ',')
			if t, ok := state(member); ok {
				longest, found = max(longest, t), true
			}
		}
	}
	return longest, found
}

// state returns the t of a member such as "login";r=0;t=12, and false if r is not 0 or
// one of them is missing.
func state(member string) (time.Duration, bool) {
	_, parameters, more := client.CutUnquoted(member, ';')
	remaining, until := int64(-1), int64(-1)
	for more {
		var parameter string
		parameter, parameters, more = client.CutUnquoted(parameters, ';')
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		n, ok := number(value)
		switch {
		case name == "r" && ok:
			remaining = n
		case name == "t" && ok:
			until = n
		}
	}
	return duration(until), remaining == 0 && until >= 0
}

// fromReset tells apart the meanings of Reset: seconds from now, Unix seconds, or Unix
// milliseconds or finer.
func fromReset(reset int64, at time.Time) time.Duration {
	const (
		unix   = 1_000_000_000     // September 2001; as a delta, 31 years
		millis = 1_000_000_000_000 // September 2001; in seconds, the year 33658
	)
	if reset < unix {
		return duration(reset)
	}
	for reset >= millis {
		reset = reset/1000 + 1 // round up
	}
	return duration(max(reset-at.Unix(), 0))
}

// number reads a whole number that is not negative, capped at the largest int64.
func number(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64) // on a range error, the largest
	return n, err == nil || s != ""
}

// duration returns seconds as a Duration of at most headgate.MaxPeriod.
func duration(seconds int64) time.Duration {
	return min(time.Duration(min(seconds, int64(headgate.MaxPeriod/time.Second)+1))*time.Second, headgate.MaxPeriod)
}
