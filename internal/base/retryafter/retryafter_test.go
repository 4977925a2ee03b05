package retryafter_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/base/retryafter"
)

const second = time.Second

func fields(value, date string) http.Header {
	h := http.Header{"Retry-After": {value}}
	if date != "" {
		h.Set("Date", date)
	}
	return h
}

func TestRetryAfter(t *testing.T) {
	received := time.Date(2026, 11, 23, 15, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		value, date string
		want        time.Duration // -1 for none
	}{
		{"7", "", 7 * second},
		{" 7 ", "", 7 * second},
		{"0", "", 0},
		{"3601", "", time.Hour},
		{"99999999999999999999999", "", time.Hour},
		{"9223372036854775807", "", time.Hour},
		{"Mon, 23 Nov 2026 15:00:30 GMT", "", 30 * second},
		{"Mon, 23 Nov 2026 15:00:30 GMT", "Mon, 23 Nov 2026 15:00:10 GMT", 20 * second}, // their clock
		{"Mon, 23 Nov 2026 15:00:30 GMT", "yesterday", 30 * second},
		{"Monday, 23-Nov-26 15:00:30 GMT", "", 30 * second}, // RFC 850
		{"Mon Nov 23 15:00:30 2026", "", 30 * second},       // asctime
		{"Mon, 23 Nov 2026 14:00:00 GMT", "", 0},            // past
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", time.Hour},
		{"1795446030", "", 30 * second}, // 15:00:30 in Unix seconds
		{"1795446030", "Mon, 23 Nov 2026 15:00:10 GMT", 20 * second},
		{"1795446030000", "Mon, 23 Nov 2026 15:00:10 GMT", 21 * second}, // in milliseconds
		{"1795442430", "", 0},                                           // past
		{"9999999999", "", time.Hour},
		{"999999999", "", time.Hour},
		{"", "", -1},
		{"-1", "", -1},
		{"+7", "", -1},
		{"7.5", "", -1},
		{"soon", "", -1},
	} {
		got, ok := retryafter.Of(fields(row.value, row.date), received, time.Hour)
		if !ok {
			got = -1
		}
		if got != row.want {
			t.Errorf("%q, Date %q: %s, want %s", row.value, row.date, got, row.want)
		}
	}
	if _, ok := retryafter.Of(http.Header{}, received, time.Hour); ok {
		t.Error("read from nothing")
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("7", "")
	f.Add("Mon, 23 Nov 2026 15:00:30 GMT", "Mon, 23 Nov 2026 15:00:10 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		if d, _ := retryafter.Of(fields(value, date), time.Unix(1_800_000_000, 0), time.Hour); d < 0 || d > time.Hour {
			t.Errorf("%q, %q: %s", value, date, d)
		}
	})
}
