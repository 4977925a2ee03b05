package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestAcrossSlotsHasOneDeadline: all or nothing across slots answers within one
// timeout, although undoing the take of one slot after the refusal of another may need
// a second round trip; undoing continues without the caller. Waiting for both would
// take two timeouts: the limit is between the two, with seconds to spare for a busy
// machine.
func TestAcrossSlotsHasOneDeadline(t *testing.T) {
	t.Parallel()
	const timeout, most = 2 * time.Second, 3500 * time.Millisecond
	set := redistest.Cluster(t, "--cluster-node-timeout", "20000")
	db := open(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster, Timeout: timeout})
	limit := headgate.Per(5, never)
	taker, other := set.Primaries[0], set.Primaries[1]
	for _, tt := range []struct {
		name string
		// cost of the op in the slot that answers late or never.
		cost int64
		// then is called when the first slot has taken.
		then   func()
		failed bool
	}{
		// Until the end of the test: a late answer would make it a failed call that
		// took something, and such calls are not undone.
		{"the second slot never answers", 1, func() {}, true},
		{"the second refuses late, the first then stalls", 6, func() {
			taker.Pause()
			other.Resume()
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ops := []store.Op{
				{Key: onPrimary(0)(tt.name)[0], Rule: limit.Rule(), Cost: 1},
				{Key: onPrimary(1)(tt.name)[0], Rule: limit.Rule(), Cost: tt.cost},
			}
			for i := range ops { // makes the connections
				warm := ops[i]
				warm.Kind, warm.Cost = store.KindPeek, 1
				await(t, db, warm)
			}
			other.Pause()
			defer other.Resume()
			defer taker.Resume()
			out := make([]store.Decision, 2)
			took, done := time.Duration(0), make(chan error)
			go func() {
				began := time.Now()
				err := store.ExecuteAll(context.Background(), db, ops, out, store.AllOrNothing)
				took = time.Since(began)
				done <- err
			}()
			for began := time.Now(); taker.Do("EXISTS", redis.KeyOf("hg", &ops[0])) == "0"; wait(time.Millisecond) {
				if time.Since(began) > comeback {
					t.Fatal("the first slot has not taken")
				}
			}
			// Redis may send this answer before that of the take; one round trip later
			// both have been sent.
			taker.Do("PING")
			tt.then()
			err := <-done
			if took > most {
				t.Errorf("took %s, want at most %s", took, most)
			}
			switch {
			case tt.failed != (err != nil), err != nil && !errors.Is(err, store.ErrUnavailable):
				t.Errorf("error %v", err)
			case err == nil && (out[1].Allowed || out[0].Granted != 0 || out[0].Remaining != 5):
				t.Errorf("refused: %+v", out)
			}
			t.Logf("took %s, %v", took, err)
			taker.Resume()
			peek := ops[0]
			peek.Kind = store.KindPeek
			for began := time.Now(); ; wait(time.Millisecond) {
				d, err := store.Execute(context.Background(), db, peek)
				if err == nil && d.Remaining == 5 {
					return
				}
				if time.Since(began) > comeback {
					t.Fatalf("not given back: %+v, %v", d, err)
				}
			}
		})
	}
}
