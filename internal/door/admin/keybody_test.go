package admin

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// FuzzKeyBody: no body crashes the parser, and what it accepts is within its limits.
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
		for _, action := range KeyActions() {
			b, err := parseKeyBody(&action, []byte(body), now)
			if err != nil {
				continue
			}
			if !b.Until.IsZero() && (!b.Until.After(now) || b.Until.Sub(now) > maxLasting) ||
				b.Amount < 0 || b.Burst < 0 || len(b.Reason) > maxReason || len(b.Key.Parts)+len(b.Key.Names) > maxKeyParts+1 {
				t.Errorf("%s: %q gives %+v", action.Name, body, b)
			}
		}
	})
}

// TestActionsKnowTheirFields: a field of another action gets a different message than
// an unknown field.
func TestActionsKnowTheirFields(t *testing.T) {
	now := time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)
	for _, row := range []struct{ action, body, want string }{
		{"peek", `{"rule":"login","key":"a","for":"10m"}`, `"for" does not apply to peek`},
		{"ban", `{"rule":"login","key":"a","fro":"10m"}`, `unknown field "fro", did you mean "for"?`},
		{"ban", `{"rule":"login","key":"a","span":"10m"}`, `unknown field "span"; known are domain, rule, key, for, until, reason`},
		{"ban", `{"rule":"login","key":"a"}`, `"for" or "until" is missing: say when the ban ends, such as "for":"10m"`},
		{"ban", `{"key":"a","for":"10m"}`, `"rule" is missing: without it, "key" must be an object that names the attributes, such as {"client_ip":"198.51.100.7"}`},
		{"ban", `{"rule":"login","key":"a","for":"10m"}`, ""},
	} {
		i := slices.IndexFunc(KeyActions(), func(a KeyAction) bool { return a.Name == row.action })
		_, err := parseKeyBody(&KeyActions()[i], []byte(row.body), now)
		if got := fmt.Sprint(err); got != row.want && (err != nil || row.want != "") {
			t.Errorf("%s %s: %v, want %q", row.action, row.body, err, row.want)
		}
	}
}
