package queue_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/queue"
)

// untold is a store in which the sender of one entry has not been told.
type untold struct {
	queue.Store
	uri  atomic.Value // a string
	away atomic.Bool
}

func (u *untold) Load(ctx context.Context, r *queue.Ref) (*queue.Entry, error) {
	if u.away.Load() {
		return nil, queue.ErrUnavailable
	}
	e, err := u.Store.Load(ctx, r)
	if err == nil && e.URI == u.uri.Load() {
		return nil, queue.ErrUnsure
	}
	return e, err
}

// An entry whose sender has not been told, because its server died, holds up the others of
// its key for six seconds at most, and is sent once it can no longer be withdrawn.
func TestUntoldStepsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.untold.uri.Store("a1")
		b.accept("a1", "a2", "a3")
		time.Sleep(2*time.Minute - 500*time.Millisecond) // between two looks: at one, it would race
		b.want("5s a2", "5s a3")
		b.untold.uri.Store("")
		time.Sleep(time.Minute)
		b.want("5s a2", "5s a3", "2m0s a1")
		b.close()
	})
}

// The store goes away just after an entry has been accepted, and is told late that its sender
// knows. Those behind it do not pass.
func TestToldLateKeepsItsPlace(t *testing.T) {
	for away := time.Second; away < 20*time.Second; away += 1300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.untold.uri.Store("a1")
			b.untold.away.Store(true)
			b.accept("a1")
			time.Sleep(away)
			b.untold.away.Store(false)
			b.accept("a2", "a3")
			time.Sleep(2900 * time.Millisecond) // until the process of the sender notices
			b.untold.uri.Store("")
			time.Sleep(1100 * time.Millisecond)
			b.close()
			var order []string
			for _, at := range b.sent {
				order = append(order, strings.Fields(at)[1])
			}
			if !slices.Equal(order, []string{"a1", "a2", "a3"}) {
				t.Errorf("away for %v: sent %q", away, b.sent)
			}
		})
	}
}
