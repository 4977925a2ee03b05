package offenders_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rules/feature"
	"github.com/headgate/headgate/store/memory"
)

// While new clients are banned all the time, saving the bans takes at most about a fifth of
// the time, however long one save takes, and bans wait no longer than five seconds for it.
func TestSavingBansTakesAFifthOfTheTime(t *testing.T) {
	for _, row := range []struct {
		save        time.Duration
		least, most int // saves in a minute
	}{{time.Millisecond, 590, 600}, {100 * time.Millisecond, 110, 120}, {time.Second, 11, 13}, {10 * time.Second, 4, 4}} {
		t.Run(row.save.String(), func(t *testing.T) {
			var n *node
			saves := 0
			n = newNode(t, memory.New(), search, func(o *feature.Process) {
				o.Started = nil
				o.Ban = func(_ context.Context, list []feature.Ban) ([]feature.Ban, int, error) {
					saves++
					n.now = n.now.Add(row.save)
					return list, 0, nil
				}
			})
			rule, banned := n.rs.Rules()[0], 0
			for end := n.now.Add(time.Minute); n.now.Before(end); n.now = n.now.Add(feature.Interval) {
				for range 100 {
					n.watch.Refused(rule, fmt.Sprint("client ", banned), 0, true)
				}
				banned++
				n.watch.Tick(t.Context())
			}
			if saves < row.least || saves > row.most {
				t.Errorf("%d saves in a minute, want %d to %d", saves, row.least, row.most)
			}
		})
	}
}
