package failsafe

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLateTimerLeavesTimeForAnswers: if the timer fires late, answers that have arrived
// get a moment to be read; otherwise they do not.
func TestLateTimerLeavesTimeForAnswers(t *testing.T) {
	for _, tt := range []struct{ late, want time.Duration }{
		{0, 0},
		{lateness, 0},
		{lateness + 1, lateness + 1},
		{longestGrace, longestGrace},
		{time.Second, longestGrace},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			s := &slot{deadline: now.Add(-tt.late), done: make(chan struct{})}
			s.fire(now)
			<-s.done
			if got := time.Since(now); got != tt.want {
				t.Errorf("fired %s late: ended after %s more, want %s", tt.late, got, tt.want)
			}
			if s.Err() == nil {
				t.Error("ended without an error")
			}
		})
	}
}
