package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
)

const sharedByAll = "  - {name: all, rate: 20/second, burst: 100, fair: {among: user}}\n"

// count returns how many entries of a user have been sent.
func (b *bench) count(user string) (n int) {
	for _, one := range b.list() {
		if strings.Contains(one, " "+user) {
			n++
		}
	}
	return n
}

// A long line takes its owner's share of a fair limit and no more: who asks for less than
// a share at the door always has it, and nothing is left unused.
func TestLinesHaveTheirOwnersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "  - {name: jobs, key: [user], rate: 1000/second, on_limit: {action: queue, concurrency: 50}}\n"+sharedByAll)
		for i := range 600 {
			b.accept(fmt.Sprint("a", i))
		}
		time.Sleep(10 * time.Second)
		before, passed := b.count("a"), 0
		other := []engine.Claim{{Rule: "all", Cost: 1, Owner: string(store.AppendKeyPart(nil, "b")), Weight: 1}}
		for range 160 {
			v, err := b.engine.Again(t.Context(), "d", other, time.Now().UnixMicro())
			if err != nil {
				t.Fatal(err)
			}
			if v.Allowed {
				passed++
			}
			v.Release()
			time.Sleep(125 * time.Millisecond)
		}
		if sent := b.count("a") - before; passed != 160 || sent < 200 {
			t.Errorf("of 160 of the other %d passed, and %d of the line were sent, want 240", passed, sent)
		}
	})
}

// Where several owners are in one line, it sends what is within the share of its owner.
func TestOwnersInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "  - {name: jobs, rate: 1000/second, on_limit: queue}\n"+sharedByAll)
		for i := range 500 {
			b.accept(fmt.Sprint("a", i))
		}
		for i := range 20 {
			b.accept(fmt.Sprint("b", i))
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if a, others := b.count("a"), b.count("b"); others != 20 || a < 50 || a > 160 {
			t.Errorf("%d of 500 were sent, and %d of the 20 behind them", a, others)
		}
	})
}
