package adaptive_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/slowserver"
)

// A proxy starts while the upstream is half idle. The first answers are the fast ones, and say too
// little about the others: for a moment the limit of the start is too low, but not for longer.
func TestStartUnderLoad(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service          time.Duration
		load             float64
		draw             string
	}{
		{1, 100, 300 * ms, 0.6, "exponential"},
		{1, 100, 300 * ms, 0.8, "exponential"},
		{1, 100, 300 * ms, 0.6, "lognormal"},
		{1, 300, 300 * ms, 0.6, "exponential"},
		{1, 400, 100 * ms, 0.5, "exponential"},
		{4, 200, 300 * ms, 0.6, "exponential"},
	} {
		for seed := range uint64(3) {
			r := slowserver.Run{
				Seed: seed, Servers: row.servers, Service: row.service, Draw: draws[row.draw], Load: row.load, Timeout: 10 * time.Second, Length: 30 * time.Second, Proxies: patients(row.proxies),
			}.Do()
			if begin, later := r.ShedPart(0, 3), r.ShedPart(3, 30); begin > 0.3 || later > 0.01 {
				t.Errorf("%+v: %.0f %% shed in the first three seconds, and %.1f %% later; want at most 30 and 1 %%", row, 100*begin, 100*later)
			}
		}
	}
}

// A proxy starts in the middle of an overload, and some of the first pages are slow ones of another
// kind. The limit does not grow until these are there.
func TestStartInOverload(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service          time.Duration
		load             float64
	}{{1, 4, 50 * ms, 10}, {1, 4, 50 * ms, 3}, {1, 8, 100 * ms, 5}, {1, 16, 50 * ms, 5}, {4, 32, 100 * ms, 5}} {
		for name, sends := range map[string]func(r *rand.Rand) time.Duration{
			"pages": func(*rand.Rand) time.Duration { return 0 },
			"one body in twenty": func(r *rand.Rand) time.Duration {
				if r.IntN(20) > 0 {
					return 0
				}
				return 500*ms + time.Duration(r.Int64N(int64(450*ms)))
			},
		} {
			sum := 0.0
			for seed := range uint64(5) {
				sum += slowserver.Run{
					Seed: seed, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: row.load, Timeout: 5 * time.Second, Length: 40 * time.Second,
					Proxies: patients(row.proxies), Sends: sends,
				}.Do().Goodput(0, 40)
			}
			if sum < 5*0.85 {
				t.Errorf("%s, %+v: goodput %.1f %% in the first 40 s, want at least 85 %%", name, row, 20*sum)
			}
		}
	}
}

// The upstream stands still for ten seconds, as at a fail-over of its database. The limit falls, and
// is back soon after.
func TestUpstreamStandsStill(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service, wait    time.Duration
		load             float64
	}{
		{1, 100, 300 * ms, 3 * time.Second, 0.6},
		{1, 100, 300 * ms, 5 * time.Second, 0.6},
		{1, 100, 300 * ms, 3 * time.Second, 0.3},
		{4, 100, 300 * ms, 3 * time.Second, 0.6},
		{1, 32, 300 * ms, 3 * time.Second, 0.6},
		{1, 32, 100 * ms, 3 * time.Second, 0.6},
	} {
		var lost []float64
		for seed := range uint64(10) {
			r := slowserver.Run{
				Seed: seed, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: row.load, Timeout: row.wait, Length: 90 * time.Second, Proxies: patients(row.proxies),
				Changes: []slowserver.Change{{At: 30 * time.Second, Servers: 1}, {At: 40 * time.Second, Servers: row.servers}},
			}.Do()
			lost = append(lost, 50*r.ShedPart(40, 90))
		}
		slices.Sort(lost)
		if lost[5] > 5 || lost[9] > 10 {
			t.Errorf("%+v: refused for %.1f s after it goes on, want 5 s in half of the runs, and 10 in the worst", row, lost)
		}
	}
}

// Clients of an overloaded upstream wait for long, so nobody leaves a line. Several proxies, of which one
// or the other refuses nobody for a moment, do not take the line of the others for S.
func TestPatientClients(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service          time.Duration
		load             float64
		most             time.Duration
	}{
		{4, 32, 100 * ms, 1.1, 600 * ms}, {4, 32, 100 * ms, 1.2, 500 * ms}, {3, 32, 100 * ms, 1.2, 500 * ms}, {4, 16, 50 * ms, 1.2, 400 * ms}, {4, 32, 20 * ms, 1.2, 200 * ms},
	} {
		for seed := range uint64(3) {
			r := slowserver.Run{
				Seed: seed + 1, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: row.load, Timeout: 10 * time.Second, Length: 30 * time.Minute, Proxies: patients(row.proxies),
			}.Do()
			if p50, good := r.Quantile(0.5, 1500, 1800), r.Goodput(60, 1800); p50 > row.most || good < 0.95 {
				t.Errorf("%+v, seed %d: half of the answers take %v after 25 minutes, goodput %.1f %%", row, seed, p50.Round(ms), 100*good)
			}
		}
	}
}

// At first, or in a night, there are only health checks, which take no time. Then there is an ordinary
// load, at once or by and by: S is not that of the health checks.
func TestHealthChecksBefore(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	checks := stream{rate: 3, took: 2 * ms}
	for _, row := range []struct {
		rate float64
		took time.Duration
	}{{200, 200 * ms}, {100, 500 * ms}, {1000, 50 * ms}, {500, 100 * ms}} {
		for name, rise := range map[string]int{"at once": 1, "in a minute": 20, "in five minutes": 100} {
			for _, day := range []bool{false, true} {
				worst := 0.0
				for seed := range uint64(3) {
					p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(seed, 2)), int64(1e18)
					if day {
						play(p, rng, &now, 20*time.Second, []stream{checks, {rate: row.rate, took: row.took}})
					}
					play(p, rng, &now, 20*time.Minute, []stream{checks})
					lost := 0.0
					for i := range rise + 20 {
						rate := row.rate * float64(min(i+1, rise)) / float64(rise)
						asked, refused := play(p, rng, &now, 3*time.Second, []stream{checks, {rate: rate, took: row.took}})
						lost += 3 * float64(refused[1]) / float64(asked[1])
					}
					worst = max(worst, lost)
				}
				if worst > 8 {
					t.Errorf("%+v %s, after a day %v: refused for %.1f s, want at most 8", row, name, day, worst)
				}
			}
		}
	}
}
