package app

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSecondThought: of two signals at the same moment, which a process manager sends
// to a process and its group, the second does not end draining; one a second later
// does.
func TestSecondThought(t *testing.T) {
	t.Parallel()
	errDrained := errors.New("drained")
	for _, c := range []struct {
		after []time.Duration // between the signals
		want  error
	}{
		{[]time.Duration{0}, errDrained},
		{[]time.Duration{time.Millisecond, time.Millisecond, 990 * time.Millisecond}, errDrained},
		{[]time.Duration{time.Millisecond, time.Second}, ErrForced},
		{[]time.Duration{time.Second}, ErrForced},
	} {
		synctest.Test(t, func(t *testing.T) {
			stopped, signals := make(chan error, 1), make(chan os.Signal, 4)
			go func() {
				for _, d := range c.after {
					time.Sleep(d)
					signals <- syscall.SIGTERM
				}
				time.Sleep(time.Second)
				stopped <- errDrained
			}()
			if err := awaitStop(stopped, signals); !errors.Is(err, c.want) {
				t.Errorf("%v: %v, want %v", c.after, err, c.want)
			}
			time.Sleep(time.Minute) // the sender also ends
		})
	}
}
