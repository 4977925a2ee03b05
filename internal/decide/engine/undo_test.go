package engine_test

import (
	"testing"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store/memory"
)

// Undo refunds what time has not: 10 are taken from a bucket of one per second, and
// others have taken 20 when it is undone.
func TestUndoGivesBackWhatTimeHasNot(t *testing.T) {
	const rate = `
domain: api
limits:
  - {name: refilled, match: {path: /bucket}, key: [user], rate: 60/minute, on_store_error: {policy: local, share: 0.1}}
`
	for _, row := range []struct {
		name  string
		after float64
		left  int64 // of 60
		calls int
	}{
		{"at once", 0, 40, 1},
		{"4 s later", 4, 40, 1}, // of 26, 6 are refunded
		{"10 s later", 10, 40, 0},
		{"by a clock that has gone back", -1, 40, 1},
	} {
		store := &counted{Store: memory.New()}
		e := engine.New(store, parse(t, rate))
		q := query1("/bucket", 100)
		q.Cost = 10
		v := decide(t, e, q)
		other := query1("/bucket", max(100+row.after, 100))
		other.Cost = 20
		decide(t, e, other)
		store.calls = 0
		for range 2 { // the second does nothing
			if err := e.Refund(t.Context(), &v, at(100+row.after)); err != nil {
				t.Error(err)
			}
		}
		v.Release()
		if err := e.Refund(t.Context(), &v, at(100+row.after)); err != nil { // nor does one after Release
			t.Error(err)
		}
		if store.calls != row.calls {
			t.Errorf("%s: the store was asked %d times, want %d", row.name, store.calls, row.calls)
		}
		if n := left(t, e, "/bucket", "refilled", max(100+row.after, 100)); n != row.left {
			t.Errorf("%s: %d left, want %d", row.name, n, row.left)
		}
	}
}
