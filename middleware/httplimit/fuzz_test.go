package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/middleware/httplimit"
	"github.com/headgate/headgate/store"
)

// FuzzHint reads any header fields. The wait is never negative or longer than the
// longest period.
func FuzzHint(f *testing.F) {
	f.Add("12", `"a";r=0;t=12`, "0", "12", "")
	f.Add("Sat, 01 Jan 2000 00:00:09 GMT", `"a\";r=0;t=12`, " 0 ", "99999999999999999999", "Fri, 31 Dec 1999 00:00:00 GMT")
	f.Add("-1", `;;r=0;t=9223372036854775807`, "00", "9223372036854775807", "x")
	at := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, retry, state, remaining, reset, date string) {
		all := http.Header{
			"Retry-After": {retry}, "Ratelimit": {state}, "Date": {date},
			"X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset},
		}
		for _, leave := range []string{"", "Retry-After", "Ratelimit"} {
			delete(all, leave)
			d, told := httplimit.Hint(&http.Response{StatusCode: http.StatusTooManyRequests, Header: all}, at)
			if d < 0 || d > store.MaxPeriod || !told && d != 0 {
				t.Errorf("%q: %v, %v", all, d, told)
			}
		}
	})
}
