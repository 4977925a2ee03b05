package app

import (
	"testing"
	"time"
)

// FuzzKeyBody: no body makes the parser crash, and what it lets through is
// within its bounds.
func FuzzKeyBody(f *testing.F) {
	for _, body := range []string{
		`{"rule":"login","key":["198.51.100.7",null],"for":"10m","reason":"x"}`,
		`{"key":{"client_ip":"198.51.100.7"},"until":"2027-01-31T12:00:00Z"}`,
		`{"domain":"api","rule":"login","key":"a","rate":"5/minute","burst":7,"for":"30d"}`,
		`{"rule":"login","key":[],"amount":1099511627776}`, `{"rule":`, `[`, ``,
	} {
		f.Add(body)
	}
	now := time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body string) {
		for _, action := range keyActions() {
			b, err := parseKeyBody(&action, []byte(body), now)
			if err != nil {
				continue
			}
			if !b.until.IsZero() && (!b.until.After(now) || b.until.Sub(now) > maxLasting) ||
				b.amount < 0 || b.burst < 0 || len(b.reason) > maxReason || len(b.key.parts)+len(b.key.names) > maxKeyParts+1 {
				t.Errorf("%s: %q gives %+v", action.name, body, b)
			}
		}
	})
}
