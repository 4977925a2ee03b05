package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/retryafter"
	"github.com/headgate/headgate/internal/base/structured"
	"github.com/headgate/headgate/store"
)

// hint returns how long after at res reports that nothing is left, and false if it does
// not. The result is from 0 to store.MaxPeriod. Malformed fields are ignored.
func hint(res *http.Response, at time.Time) (time.Duration, bool) {
	h := res.Header
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryafter.Of(h, at, store.MaxPeriod); ok {
			return d, true
		}
	}
	if seconds, ok := exhausted(h["Ratelimit"]); ok {
		return retryafter.In(h, seconds, at, store.MaxPeriod), true
	}
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		left, ok := number(h.Get(prefix + "Remaining"))
		reset, both := number(h.Get(prefix + "Reset"))
		if ok && both && left == 0 {
			return retryafter.In(h, reset, at, store.MaxPeriod), true
		}
	}
	return 0, false
}

// exhausted returns the longest t of the members of RateLimit whose r is 0. The draft
// wants a field to be ignored as a whole if a part of it is malformed.
func exhausted(lines []string) (longest int64, found bool) {
	if len(lines) == 0 {
		return 0, false
	}
	members, ok := structured.List(lines)
	if !ok {
		return exhausted7(lines)
	}
	for i := range members {
		r, _, okR := members[i].Param("r")
		t, hasT, okT := members[i].Param("t")
		if members[i].Kind != structured.String || !okR || r < 0 || hasT && (!okT || t < 0) {
			return 0, false
		}
		if r == 0 && hasT {
			longest, found = max(longest, t), true
		}
	}
	return longest, found
}

// exhausted7 returns the reset of a field as in draft-ietf-httpapi-ratelimit-headers-07,
// such as limit=1, remaining=0, reset=60, if remaining is 0.
func exhausted7(lines []string) (int64, bool) {
	members, ok := structured.Dictionary(lines)
	remaining, reset := int64(-1), int64(-1)
	for _, m := range members {
		n := int64(-1)
		if m.Kind == structured.Integer {
			n = m.Integer
		}
		switch m.Key {
		case "remaining":
			remaining = n
		case "reset":
			reset = n
		}
	}
	return reset, ok && remaining == 0 && reset >= 0
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
