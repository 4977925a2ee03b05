package memory

import (
	"testing"
	"time"
)

func TestInjectedClock(t *testing.T) {
	now := time.UnixMicro(t0)
	s := New(WithClock(func() time.Time { return now }))
	if got := s.clock.now(); got != t0 {
		t.Error(got)
	}
	now = now.Add(-time.Hour)
	if got := s.clock.now(); got != t0-3_600_000_000 {
		t.Error(got)
	}
}
