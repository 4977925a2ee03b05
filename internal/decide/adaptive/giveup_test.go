package adaptive_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/testkit/slowserver"
)

// Clients that give up make room for the next in time, so nobody is refused and nobody is answered:
// the limit falls also without refusals.
func TestAllGiveUpAndNobodyIsRefused(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service, wait    time.Duration
		load             float64
	}{
		{1, 2, 200 * ms, time.Second, 1.5}, {1, 4, 500 * ms, 1200 * ms, 2}, {1, 4, 20 * ms, 40 * ms, 2}, {4, 4, 100 * ms, time.Second, 2}, {10, 32, 100 * ms, 250 * ms, 2},
	} {
		run := slowserver.Run{
			Seed: 1, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: row.load, Timeout: row.wait, Length: 5 * time.Minute, Proxies: patients(row.proxies),
		}
		if good := run.Do().Goodput(60, 300); good < 0.45 {
			t.Errorf("%+v: goodput %.1f %%, want at least 45 %%", row, 100*good)
		}
	}
}

// Clients wait longer than a request holds its place, so all lapse and nothing is answered in time.
// That is a line, and not a slow upstream of which nothing is known: also where few requests come,
// and where the upstream answers some pages at once.
func TestAllLapseInALine(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		proxies, servers int
		service, wait    time.Duration
	}{
		{1, 1, 100 * ms, 2 * time.Second},
		{1, 8, 500 * ms, 3 * time.Second},
		{4, 8, 100 * ms, 2 * time.Second},
		{10, 8, 100 * ms, 2 * time.Second},
		{4, 32, 500 * ms, 2500 * ms},
	} {
		for _, load := range []float64{1.5, 4} {
			for _, cheap := range []float64{0, 0.03} {
				run := slowserver.Run{
					Seed: 1, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: load, Timeout: row.wait, Length: 4 * time.Minute,
					Proxies: patients(row.proxies), Cheap: cheap,
				}
				if good := run.Do().Goodput(60, 240); good < 0.5 {
					t.Errorf("%+v, load %v, %v cheap: goodput %.1f %%, want at least 50 %%", row, load, cheap, 100*good)
				}
			}
		}
	}
}

// A little more is asked for than the upstream can do: too few are refused for a probe, S follows
// the line, and the limit S. That ends when clients give up.
func TestJustAboveCapacity(t *testing.T) {
	simulates(t)
	for _, load := range []float64{1.02, 1.05, 1.1} {
		for _, proxies := range []int{1, 4, 10} {
			run := upstream(1, slowserver.Exponential, load, 15*time.Minute, patients(proxies)...)
			run.Service = 100 * time.Millisecond
			r := run.Do()
			for from := 0; from < 900; from += 60 {
				if good := r.Goodput(from, from+60); good < 0.8 {
					t.Errorf("load %v, %d proxies: goodput %.1f %% in the minute from %d s, want at least 80 %%", load, proxies, 100*good, from)
				}
			}
		}
	}
}

// The limit is from a time when the upstream could do fifty times as much.
func TestLimitOfAnotherTime(t *testing.T) {
	simulates(t)
	for _, proxies := range []int{1, 4} {
		all := patients(proxies)
		for _, p := range all {
			l := p.(*patient).Limiter //nolint:forcetypeassert,errcheck // of patients
			now := int64(1e15)
			for range 40 {
				now = burst(l, now, 200*ms)
			}
			if limit := l.State().Limit; limit < 500 {
				t.Fatalf("a limit of %d after bursts, want 500", limit)
			}
		}
		run := slowserver.Run{
			Seed: 1, Servers: 10, Service: 200 * time.Millisecond, Draw: slowserver.Exponential, Load: 10, Timeout: time.Second, Length: 5 * time.Minute, Proxies: all,
		}
		if good := run.Do().Goodput(120, 300); good < 0.5 {
			t.Errorf("%d proxies: goodput %.1f %%, want at least 50 %%", proxies, 100*good)
		}
	}
}

// burst fills a limiter and answers all after a while. It returns that time.
func burst(l *adaptive.Limiter, now, took int64) int64 {
	var places []adaptive.Place
	for p, ok, _ := l.Take(now, adaptive.Class{}); ok; p, ok, _ = l.Take(now, adaptive.Class{}) {
		places = append(places, p)
	}
	for _, p := range places {
		l.Done(p, now+took, adaptive.Answered)
	}
	return now + took
}

// Long polls of a minute come all at once. They hold their places for a second, or for four if
// nothing is answered, once: soon all are let in, and stay so.
func TestLongPollsAtOnce(t *testing.T) {
	simulates(t)
	p := &patient{proxy: newProxy()}
	now := int64(1e18)
	asks := make([]int64, 300) // when each client asks
	for i := range asks {
		asks[i] = now + int64(i)*ms
	}
	var refused [5]int // by minute
	for i := range len(refused) * 60_000 {
		now += ms
		for c, at := range asks {
			if at > now {
				continue
			}
			if _, ok := p.Take(now, 0); ok {
				asks[c] = now + int64(time.Minute)
				continue
			}
			asks[c] = now + int64(2*time.Second)
			refused[i/60_000]++
		}
	}
	if refused[0] == 0 || refused[1]+refused[2]+refused[3]+refused[4] > 0 {
		t.Errorf("refused by minute: %v, want some in the first and none later", refused)
	}
}
