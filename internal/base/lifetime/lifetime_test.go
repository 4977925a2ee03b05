package lifetime_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/base/lifetime"
)

// What was added last ends first, once, and no task continues after End.
func TestLastToFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lifetime.Lifetime
		var ended []string
		l.OnEnd(func() { ended = append(ended, "store") })
		l.Go(func(ctx context.Context) {
			<-ctx.Done()
			ended = append(ended, "reader")
		})
		ticks := 0
		l.Every(time.Second, func() { ticks++ })
		l.OnEnd(func() { ended = append(ended, "door") })
		time.Sleep(3*time.Second + time.Millisecond)
		l.End()
		l.End()
		if want := []string{"door", "reader", "store"}; !slices.Equal(ended, want) || ticks != 3 {
			t.Errorf("%q after %d ticks, want %q after 3", ended, ticks, want)
		}
	})
}
