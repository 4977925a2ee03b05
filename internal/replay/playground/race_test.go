package playground_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/replay/playground"
)

const ms = int64(time.Millisecond / time.Microsecond)

// text describes a turn: times in ms, what it found, and what it left.
func text(t *playground.Turn) string {
	verdict := "refused"
	if t.Allowed {
		verdict = "allowed"
	}
	s := fmt.Sprintf("%d: read %d at %d, %s", t.Server, int64(t.Found), t.Read/ms, verdict)
	if t.Wrote > 0 {
		s += fmt.Sprintf(", wrote %d at %d", int64(t.Left), t.Wrote/ms)
	}
	if t.Lost > 0 {
		s += fmt.Sprintf(", lost %d", t.Lost)
	}
	return s
}

// Two servers get requests at nearly the same time, 10 ms from the store. With read and
// write apart, the second overwrites what the first has counted; in one step it does not;
// servers with states of their own allow the limit each.
func TestRaceTraces(t *testing.T) {
	t.Parallel()
	arrivals := []playground.Arrival{{At: 100 * ms, Server: 0}, {At: 105 * ms, Server: 1}, {At: 200 * ms, Server: 0}, {At: 300 * ms, Server: 1}}
	for _, tt := range []struct {
		name     string
		sharing  playground.Sharing
		want     []string
		answered int64 // of the first, in ms
		tooMany  int
	}{
		{"read, then write", playground.ReadThenWrite, []string{
			"0: read 0 at 110, allowed, wrote 1 at 130",
			"1: read 0 at 115, allowed, wrote 1 at 135, lost 1",
			"0: read 1 at 210, allowed, wrote 2 at 230",
			"1: read 2 at 310, refused",
		}, 140, 1},
		{"one step", playground.AtomicStep, []string{
			"0: read 0 at 110, allowed, wrote 1 at 110",
			"1: read 1 at 115, allowed, wrote 2 at 115",
			"0: read 2 at 210, refused",
			"1: read 2 at 310, refused",
		}, 120, 0},
		{"apart", playground.Apart, []string{
			"0: read 0 at 100, allowed, wrote 1 at 100",
			"1: read 0 at 105, allowed, wrote 1 at 105",
			"0: read 1 at 200, allowed, wrote 2 at 200",
			"1: read 1 at 300, allowed, wrote 2 at 300",
		}, 100, 2},
	} {
		r := playground.Race{Limit: headgate.PerMinute(2).WithAlgorithm(headgate.FixedWindow), Sharing: tt.sharing, Servers: 2, Way: 10 * ms}
		turns := r.Run(arrivals)
		tooMany := 0
		for i := range turns {
			if got := text(&turns[i]); got != tt.want[i] {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want[i])
			}
			if turns[i].Verdict == playground.TooMany {
				tooMany++
			}
		}
		if tooMany != tt.tooMany || turns[0].Answered != tt.answered*ms {
			t.Errorf("%s: %d too many, answered at %d ms", tt.name, tooMany, turns[0].Answered/ms)
		}
	}
}

// Whatever the traffic, one atomic step never allows more than a sliding log's limit, and
// loses nothing; servers apart allow at most the limit each; reading and writing loses exactly
// what the count of the last state lacks.
func TestRaceProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n, servers := int64(1+random.IntN(6)), 1+random.IntN(4)
		var arrivals []playground.Arrival
		for at := int64(0); len(arrivals) < 40; at += random.Int64N(30) {
			arrivals = append(arrivals, playground.Arrival{At: at * ms, Server: random.IntN(servers)})
		}
		for _, sharing := range []playground.Sharing{playground.ReadThenWrite, playground.AtomicStep, playground.Apart} {
			r := playground.Race{Limit: headgate.PerHour(n).WithAlgorithm(headgate.SlidingLog), Sharing: sharing, Servers: servers, Way: random.Int64N(40) * ms}
			turns := r.Run(arrivals)
			var allowed, lost, tooMany int64
			each := make([]int64, servers)
			for i := range turns {
				if turns[i].Allowed {
					allowed++
					each[turns[i].Server]++
				}
				lost += turns[i].Lost
				if turns[i].Verdict == playground.TooMany {
					tooMany++
				}
			}
			switch {
			case tooMany != max(allowed-n, 0):
				t.Fatalf("%d: %d allowed of %d, %d too many", sharing, allowed, n, tooMany)
			case sharing == playground.AtomicStep && (allowed != min(n, 40) || lost != 0):
				t.Fatalf("atomic: %d allowed of %d, %d lost", allowed, n, lost)
			case sharing == playground.ReadThenWrite && allowed < min(n, 40):
				t.Fatalf("read, then write: %d allowed of %d", allowed, n)
			case sharing == playground.ReadThenWrite && servers == 1 && r.Way == 0 && allowed != min(n, 40):
				t.Fatalf("without delay: %d allowed of %d", allowed, n)
			}
			for server, count := range each {
				if sharing == playground.Apart && count > n {
					t.Fatalf("apart: server %d allowed %d of %d", server, count, n)
				}
			}
		}
	}
}
