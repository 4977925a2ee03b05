package algorithm

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/limitreq"
	"github.com/headgate/headgate/store"
)

// TestTwoStagesAsNginx: limit_req rate=R burst=B delay=D admits the same requests at
// the same times as this limit with one more of each: nginx counts the excess over the
// request in progress, this limit counts the places in the queue.
func TestTwoStagesAsNginx(t *testing.T) {
	rng := newRand(t)
	for range 300 {
		// Rates at which a request takes whole milliseconds, because nginx rounds.
		rate := pick[int64](rng, 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100)
		burst := rng.Int64N(30)
		delay := rng.Int64N(burst + 1)
		theirs := limitreq.Zone{Rate: rate * 1000, Burst: burst * 1000, Delay: delay * 1000}
		limit := headgate.PerSecond(rate).WithAlgorithm(store.LeakyBucket).WithBurst(burst + 1).WithDelayAfter(delay + 1)
		if err := limit.Validate(); err != nil {
			t.Fatal(err)
		}
		var s State
		ms := int64(t0 / 1000)
		for range 200 {
			ms += pick(rng, 0, 0, 0, rng.Int64N(20), rng.Int64N(3000))
			wait, ok := theirs.Request(ms)
			got := Step(limit.Rule(), &s, ms*1000, Request{Cost: 1})
			if got.Allowed != ok || got.Delay != time.Duration(wait)*time.Millisecond {
				t.Fatalf("%s: nginx says %v after %dms, this %s", limit, ok, wait, show(got))
			}
		}
	}
}
