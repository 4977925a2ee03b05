//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestExhaustedFlood: new keys, each exhausted by one request, free an exhausted key
// only once their number reaches the store's capacity. So debts that end before that
// are never cut short.
func TestExhaustedFlood(t *testing.T) {
	for _, row := range []struct {
		keys  int
		rate  int64 // new keys per second
		freed bool
	}{
		{1000, 90, false}, // 11 s for 1000 keys: the debt of 10 s is over before
		{1000, 200, true}, // 5 s
		{20_000, 1800, false},
		{20_000, 9000, true},
	} {
		t.Run(fmt.Sprint(row.keys, " keys, ", row.rate, " a second"), func(t *testing.T) {
			s := New(WithMaxKeys(row.keys))
			limit := headgate.Per(10, 10*time.Second)
			const victims = 50
			op := store.Op{Rule: limit.Rule(), Cost: 10, At: t0}
			for i := range victims {
				op.Key = fmt.Sprint("victim", i)
				if d, _ := store.Execute(t.Context(), s, op); !d.Allowed {
					t.Fatal("refused at first")
				}
			}
			first := 0
			// For 9.9 s, until a tenth of a second before the victims are free.
			for i := range int(row.rate * 99 / 10) {
				op.Key, op.Cost, op.At = fmt.Sprint("new", i), 10, t0+int64(i)*1_000_000/row.rate
				if _, err := store.Execute(t.Context(), s, op); err != nil {
					t.Fatal(err)
				}
				if i%(row.keys/50) != 0 || first > 0 {
					continue
				}
				for j := range victims {
					peek := store.Op{Key: fmt.Sprint("victim", j), Rule: limit.Rule(), Cost: 10, Kind: store.KindPeek, At: op.At}
					if d, _ := store.Execute(t.Context(), s, peek); d.Allowed {
						first = i
						break
					}
				}
			}
			if (first > 0) != row.freed {
				t.Errorf("a victim was freed after %d new keys; %+v", first, s.Stats())
			}
			if row.freed && first < row.keys-victims {
				t.Errorf("a victim was freed after %d new keys, before as many had come as the store has", first)
			}
			if st := s.Stats(); row.freed && st.EvictedInDebt == 0 {
				t.Errorf("nobody is told: %+v", st)
			}
		})
	}
}
