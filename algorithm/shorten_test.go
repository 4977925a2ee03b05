package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestShorterPeriod: who has used up a month is not locked out for it when the limit becomes
// one of a minute.
func TestShorterPeriod(t *testing.T) {
	const month = 30 * 24 * time.Hour
	first := func(l headgate.Limit) headgate.Limit { return l.WithAnchor(store.AnchorFirstRequest) }
	same := func(l headgate.Limit) headgate.Limit { return l }
	for _, row := range []struct {
		algorithm store.Algorithm
		with      func(headgate.Limit) headgate.Limit
		waits     bool // a log knows that its requests are older than a minute
	}{
		{store.FixedWindow, same, true},
		{store.FixedWindow, first, true},
		{store.SlidingWindow, same, true},
		{store.SlidingBuckets, same, true},
		{store.SlidingLog, same, false},
	} {
		old := row.with(headgate.Per(10, month).WithAlgorithm(row.algorithm)).Rule()
		now := row.with(headgate.PerMinute(10).WithAlgorithm(row.algorithm)).Rule()
		at := int64(1767225600000000)
		var s State
		if res := Step(old, &s, at, Request{Kind: store.KindTake, Cost: 10}); !res.Allowed {
			t.Fatalf("%s: %+v", old, res.Decision)
		}
		at += int64(24*time.Hour/time.Microsecond) + 20_000_000
		res := Step(now, &s, at, Request{Kind: store.KindTake, Cost: 1})
		if !row.waits {
			if !res.Allowed {
				t.Errorf("%s: refused for %v", now, res.RetryAfter)
			}
			continue
		}
		if res.Allowed || res.RetryAfter > 2*time.Minute {
			t.Errorf("%s: allowed %t, or after %v", now, res.Allowed, res.RetryAfter)
		}
		at += int64(res.RetryAfter / time.Microsecond)
		if res := Step(now, &s, at-1, Request{Kind: store.KindTake, Cost: 1}); res.Allowed {
			t.Errorf("%s: allowed early", now)
		}
		if res := Step(now, &s, at, Request{Kind: store.KindTake, Cost: 1}); !res.Allowed {
			t.Errorf("%s: refused in time, for %v more", now, res.RetryAfter)
		}
	}
}
