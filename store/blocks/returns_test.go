//go:build !race

// One goroutine: the race detector would find nothing, slowly.

package blocks

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// TestReturnsNeverGiveMore: blocks that are drawn and given back unused never leave more at
// the store than if they had not been drawn, whatever others take in between. The bound of
// a bucket would hide a return that gives too much, so it needs a test besides schedules.
func TestReturnsNeverGiveMore(t *testing.T) {
	first := rand.Uint64()
	gaveBack := int64(0)
	for i := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(first+i, 21))
		limit, _ := randomLimit(rng)
		r := limit.Rule()
		if r.Anchor == store.AnchorFirstRequest {
			continue // a draw opens another window than the take after it
		}
		var with, without algorithm.State
		now := 1_767_225_600_000_000 + rng.Int64N(r.Period)
		left := func(s *algorithm.State) int64 {
			return algorithm.Step(r, s, now, algorithm.Request{Kind: store.KindPeek}).Remaining
		}
		var lines []*line
		for range 40 {
			switch rng.IntN(5) {
			case 0, 1: // somebody draws
				op := store.Op{Key: "k", Rule: limit.Rule()}
				l := newLine(&op, 1, new(counters))
				d, _ := l.begin(now, 1+rng.Int64N(limit.Burst()), 0)
				op = l.draw(d.want)
				answer := algorithm.Step(r, &with, now, algorithm.Request{Kind: store.KindDraw, Cost: op.Cost, Duration: op.Duration}).Decision
				if l.finish(d, now, answer, nil); answer.Granted > 0 {
					lines = append(lines, l)
				}
			case 2: // somebody else takes
				n := 1 + rng.Int64N(limit.Burst())
				if algorithm.Step(r, &with, now, algorithm.Request{Kind: store.KindTake, Cost: n}).Allowed {
					algorithm.Step(r, &without, now, algorithm.Request{Kind: store.KindTake, Cost: n})
				}
			case 3: // a block comes back
				if len(lines) == 0 {
					continue
				}
				at := rng.IntN(len(lines))
				lines[at].end(now)
				for _, back := range lines[at].refunds() {
					before := left(&with)
					algorithm.Step(r, &with, now, algorithm.Request{Kind: store.KindRefund, Cost: back.op.Cost, CountsUntil: back.op.CountsUntil})
					gaveBack += left(&with) - before
				}
				lines = append(lines[:at], lines[at+1:]...)
			default:
				now += rng.Int64N(r.Age + 2)
			}
			if a, b := left(&with), left(&without); a > b {
				t.Fatalf("seed %d: %s: %d left, and %d if nothing had been drawn", first+i, limit, a, b)
			}
		}
	}
	if gaveBack == 0 {
		t.Error("nothing was given back")
	}
}
