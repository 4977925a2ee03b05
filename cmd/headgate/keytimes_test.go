package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
)

func TestKeyTimesInWords(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 20, 0, 0, time.UTC)
	minute, second := now.Add(-time.Minute), now.Add(-time.Second)
	for want, k := range map[string]admin.KeyAnswer{
		"created and changed: not recorded; set store.key_times: true": {ResetAfter: 1},
		"nothing is counted for this key":                              {KeyTimes: true},
		"created and changed: before the server started to record it":  {KeyTimes: true, ResetAfter: 1},
		"changed 2026-11-20T10:19:59Z (1s ago), created before the server started to record it": {
			KeyTimes: true, ResetAfter: 1, ChangedAt: &second,
		},
		"created 2026-11-20T10:19:00Z (1m ago), changed 2026-11-20T10:19:59Z (1s ago)": {
			KeyTimes: true, ResetAfter: 1, CreatedAt: &minute, ChangedAt: &second,
		},
	} {
		if got := keyTimes(&k, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
