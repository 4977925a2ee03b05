package answer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/answer"
)

// Large requests wait in order of arrival; small ones do not wait.
func TestLargeRequestsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		ctx := context.Background()
		r := answer.Room{Most: 10 * mib}
		first := entered(ctx, t, &r, 8*mib)
		var mu sync.Mutex
		var order []int
		for i, size := range []int64{6 * mib, 1 * mib, 100 * mib} { // the last takes all memory
			go func() {
				taken, err := r.Enter(ctx, size, time.Hour)
				if err != nil {
					t.Errorf("request %d: %v", i, err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second) // in the bubble's clock
				r.Leave(taken)
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Errorf("%v did not wait", order)
		}
		if n := entered(ctx, t, &r, answer.SmallBody); n != 0 {
			t.Errorf("a small request took %d", n)
		}
		r.Leave(first)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 2 || r.Held() != 7*mib {
			t.Errorf("%v entered, %d are held", order, r.Held())
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		if len(order) != 3 || order[2] != 2 || r.Held() != 0 || r.Refused() != 0 {
			t.Errorf("order %v, %d are held, %d refused", order, r.Held(), r.Refused())
		}
	})
}

// A request that waits too long, or is cancelled, gets an error and blocks no others.
func TestWaitingForRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		ctx := context.Background()
		r := answer.Room{Most: 10 * mib}
		first := entered(ctx, t, &r, 9*mib)
		gone, cancel := context.WithCancel(ctx)
		second := make(chan error, 1)
		go func() {
			_, err := r.Enter(gone, 5*mib, time.Hour)
			second <- err
		}()
		synctest.Wait()
		third := make(chan int64, 1)
		go func() {
			taken, _ := r.Enter(ctx, 1*mib, time.Hour) // there is enough memory for it
			third <- taken
		}()
		synctest.Wait()
		if _, err := r.Enter(ctx, 2*mib, time.Second); !errors.Is(err, answer.ErrManyLarge) {
			t.Errorf("after a second: %v", err)
		}
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("gone: %v", err)
		}
		r.Leave(<-third)
		r.Leave(first)
		if r.Held() != 0 || r.Refused() != 2 {
			t.Errorf("%d are held, %d refused", r.Held(), r.Refused())
		}
	})
}

func entered(ctx context.Context, t *testing.T, r *answer.Room, n int64) int64 {
	t.Helper()
	taken, err := r.Enter(ctx, n, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}
