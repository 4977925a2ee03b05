package proxy_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A backend that names a time of day, or one in years, does not stop a line for longer than an hour.
func TestRetryAfterOfYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		l := newLaterOf(t, laterRules, func(r *http.Request) (*http.Response, error) {
			res, err := made(r)
			if tries++; tries == 2 {
				res.StatusCode = http.StatusServiceUnavailable
				res.Header.Set("Retry-After", "9999999999")
			}
			return res, err
		})
		l.ask("POST", "/a", "one")
		idOf(t, l.ask("POST", "/a", "two"))
		idOf(t, l.ask("POST", "/a", "three"))
		time.Sleep(2 * time.Hour)
		l.want(
			"0s POST http://upstream.example/a one", "1s POST http://upstream.example/a two",
			"1h0m1s POST http://upstream.example/a two", "1h0m2s POST http://upstream.example/a three",
		)
		if err := l.queue.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
