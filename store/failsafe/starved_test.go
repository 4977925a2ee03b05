package failsafe_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
)

// drowsy is a healthy store in a process that gets no CPU after the first call: the
// timeouts of the others are noticed this much too late.
type drowsy struct {
	fake
	late time.Duration
}

func (d *drowsy) Do(ctx context.Context, b *store.Batch) {
	if len(b.Ops) == 0 { // of Validate
		return
	}
	if d.asked.Add(1) == 1 {
		b.Out[0].Allowed = true
		return
	}
	<-ctx.Done()
	time.Sleep(d.late)
	b.Fail(ctx.Err())
}

// TestStarvedCallsAreNotTheStoresFault: timeouts that are noticed late count against
// the store only if no call has succeeded for four timeouts.
func TestStarvedCallsAreNotTheStoresFault(t *testing.T) {
	for _, tt := range []struct {
		late time.Duration
		want failsafe.State
	}{
		{0, failsafe.Open},
		{timeout / 8, failsafe.Open},
		{timeout/8 + 1, failsafe.Closed},
		{2 * timeout, failsafe.Closed},
		{4 * timeout, failsafe.Open},
	} {
		t.Run(tt.late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := failsafe.New(&drowsy{late: tt.late}, failsafe.Options{})
				ask := func() error { _, err := store.Execute(context.Background(), s, op("k")); return err }
				if err := ask(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(timeout / 2)
				var group sync.WaitGroup
				for range 64 {
					group.Go(func() {
						if err := ask(); !errors.Is(err, failsafe.ErrTimeout) {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if got := s.Stats(); got.State != tt.want || got.Timeouts != 64 {
					t.Errorf("%+v, want %s", got, tt.want)
				}
			})
		})
	}
}
