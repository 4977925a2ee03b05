package headgate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// docs/connect/middleware.md says so.
func TestLimitsRunOnTheClockOfABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := headgate.New(memory.New())
		for i, want := range []bool{true, false, true} {
			if i == 2 {
				time.Sleep(time.Hour)
			}
			if d, err := limiter.Allow(t.Context(), "u1", headgate.PerHour(1)); err != nil || d.Allowed != want {
				t.Errorf("%d: %s, %v", i, d, err)
			}
		}
	})
}

func TestDecisionReadsAsASentence(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]headgate.Decision{
		"allowed: 3 of 5 left, all in 24s":                                    {Allowed: true, Limit: 5, Remaining: 3, Granted: 1, ResetAfter: 24 * time.Second, Lease: 77},
		"allowed after 2s: 0 of 5 left, all in 1m":                            {Allowed: true, Limit: 5, Delay: 2 * time.Second, ResetAfter: time.Minute},
		"allowed: 5 of 5 left":                                                {Allowed: true, Reason: headgate.ReasonFallback, Limit: 5, Remaining: 5},
		"allowed: no limit":                                                   {Allowed: true, Reason: headgate.ReasonNoLimit},
		"allowed: the store did not answer":                                   {Allowed: true, Reason: headgate.ReasonFailOpen, Limit: 5},
		"refused: 0 of 5 left, retry after 11.251s":                           {Reason: headgate.ReasonLimited, Limit: 5, RetryAfter: 11250*time.Millisecond + 1},
		"refused: 0 of 5 left, retry after 12s":                               {Reason: headgate.ReasonCached, Limit: 5, RetryAfter: 12 * time.Second},
		"refused: banned, retry after 1h":                                     {Reason: store.ReasonBanned, RetryAfter: time.Hour},
		"refused: on a deny list":                                             {Reason: store.ReasonBanned, RetryAfter: headgate.Never},
		"refused: the lease no longer exists":                                 {Reason: headgate.ReasonExpired},
		"refused: no decision":                                                {},
		"refused: the cost is more than the limit can ever allow":             {Reason: headgate.ReasonTooLarge, Limit: 5, Remaining: 5, RetryAfter: headgate.Never},
		"refused: the store did not answer, or the request is invalid":        {Reason: headgate.ReasonFailClosed, Limit: 5},
		"allowed in shadow mode, else refused: 0 of 5 left, retry after 1m1s": {Allowed: true, Reason: store.ReasonShadow, Limit: 5, RetryAfter: 61 * time.Second},
	} {
		if got := fmt.Sprint(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
