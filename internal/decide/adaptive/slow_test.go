package adaptive_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/testkit/slowserver"
)

// patient is a proxy whose requests lapse.
type patient struct {
	proxy
	open []*held // by the time at which they lapse, about
}

type held struct {
	place any
	until int64
	over  bool
}

func (p *patient) lapse(now int64) {
	for len(p.open) > 0 && (p.open[0].over || p.open[0].until <= now) {
		if h := p.open[0]; !h.over {
			h.over = true
			p.Lapse(h.place.(adaptive.Place)) //nolint:forcetypeassert,errcheck // of Take
		}
		p.open = p.open[1:]
	}
}

func (p *patient) Take(now int64, class int) (any, bool) {
	p.lapse(now)
	h := &held{until: now + int64(p.Patience())}
	var ok bool
	if h.place, ok = p.proxy.Take(now, class); ok {
		p.open = append(p.open, h)
	}
	return h, ok
}

func (p *patient) Done(place any, now int64, answered bool) {
	p.lapse(now)
	if h := place.(*held); !h.over { //nolint:forcetypeassert,errcheck // of Take
		h.over = true
		p.proxy.Done(h.place, now, answered)
	} else if answered {
		p.Late(now, adaptive.Answered)
	} else {
		p.Late(now, adaptive.GaveUp)
	}
}

func patients(n int) (all []slowserver.Limiter) {
	for range n {
		all = append(all, &patient{proxy: newProxy()})
	}
	return all
}

// Requests take many times as long as before, as when a cache is cold or a dependency slow, and
// the upstream works on as many as ever. That looks like a line, and is none: the limit grows until
// nothing is refused, and does not fall to its minimum.
func TestSlowerWithoutALine(t *testing.T) {
	simulates(t)
	for _, row := range []struct {
		rate        float64
		before, now time.Duration
		after       int // seconds in which this is known
	}{
		{1000, 5, 50, 30},
		{1000, 5, 100, 30},
		{1000, 5, 200, 30},
		{1000, 5, 500, 40},
		{500, 5, 800, 60},
		{500, 20, 200, 30},
		{300, 50, 300, 40},
		{500, 1, 100, 60},
		{150, 5, 100, 60},
		{200, 5, 500, 60},
		{500, 5, 1500, 240},
		{100, 20, 3000, 1000},
	} {
		for _, proxies := range []int{1, 4} {
			after := row.after
			if proxies > 1 { // each has only a part of the samples
				after *= 3
			}
			const servers = 10_000
			run := slowserver.Run{
				Seed: 1, Servers: servers, Service: row.before * time.Millisecond, Draw: evenly, Load: row.rate * float64(row.before) / 1000 / servers,
				Timeout: time.Minute, Length: time.Duration(90+after) * time.Second, Changes: []slowserver.Change{{At: 30 * time.Second, Service: row.now * time.Millisecond}},
				Proxies: patients(proxies),
			}
			if shed := run.Do().ShedPart(30+after, 90+after); shed > 0.02 {
				t.Errorf("%v requests a second, %d proxies, %d ms instead of %d: %.1f %% shed, want none after %d s", row.rate, proxies, row.now, row.before, 100*shed, after)
			}
		}
	}
}

// evenly draws from 0.8 to 1.2 times the mean.
func evenly(r *rand.Rand, mean float64) float64 { return mean * (0.8 + 0.4*r.Float64()) }

// Somebody asks for a slow page all the time, of which the upstream can answer any number. That
// takes nothing from the others.
func TestSlowPageAmongFastOnes(t *testing.T) {
	simulates(t)
	for _, row := range []struct {
		fast, slow float64       // requests a second
		page       time.Duration // of the slow ones; the others take 5 ms
	}{
		{140, 60, 800}, {140, 60, 950}, {100, 60, 500}, {200, 100, 300}, {60, 40, 900}, {1000, 100, 800}, {300, 100, 900}, {500, 26, 900}, {500, 125, 300}, {210, 90, 300},
	} {
		for name, from := range map[string]time.Duration{"from the start": 0, "later": 30 * time.Second} {
			part := row.slow / (row.fast + row.slow)
			const fast, servers = 5, 10_000
			mean := (1-part)*fast + part*float64(row.page)
			run := slowserver.Run{
				Seed: 7, Servers: servers, Service: fast * time.Millisecond, Load: (row.fast + row.slow) * fast / 1000 / servers,
				Timeout: time.Minute, Length: 180 * time.Second, Proxies: patients(1),
				Changes: []slowserver.Change{{At: from, Service: time.Duration(mean * float64(time.Millisecond))}},
				Draw: func(r *rand.Rand, mean float64) float64 {
					if took := float64(row.page) * float64(time.Millisecond); mean > fast*float64(time.Millisecond) && r.Float64() < part {
						return evenly(r, took)
					}
					return evenly(r, fast*float64(time.Millisecond))
				},
			}
			if shed := run.Do().ShedPart(120, 180); shed > 0.02 {
				t.Errorf("%v of 5 ms and %v of %d ms a second, %s: %.1f %% shed, want none after two minutes", row.fast, row.slow, row.page, name, 100*shed)
			}
		}
	}
}

// Each request takes five and ten times as long, and as many servers work as before: then capacity
// is less too, and the limit finds it, with a line and without.
func TestMuchSlowerServers(t *testing.T) {
	simulates(t)
	for _, load := range []float64{0.5, 0.9, 5} {
		for _, service := range []time.Duration{60, 100, 200} {
			for _, proxies := range []int{1, 4} {
				run := upstream(1, slowserver.Exponential, load, 180*time.Second, patients(proxies)...)
				run.Changes = []slowserver.Change{{At: 30 * time.Second, Service: service * time.Millisecond}}
				if good := run.Do().Goodput(90, 180); good < 0.8 {
					t.Errorf("load %v, %d proxies, %d ms instead of 20: goodput %.1f %%, want at least 80 %%", load, proxies, service, 100*good)
				}
			}
		}
	}
}

// Nearly all servers go.
func TestFewServersAreLeft(t *testing.T) {
	simulates(t)
	for _, load := range []float64{0.9, 5} {
		for _, servers := range []int{8, 4, 2} {
			for _, proxies := range []int{1, 4} {
				run := upstream(1, slowserver.Exponential, load, 180*time.Second, patients(proxies)...)
				run.Changes = []slowserver.Change{{At: 30 * time.Second, Servers: servers}}
				if good := run.Do().Goodput(60, 180); good < 0.9 {
					t.Errorf("load %v, %d proxies, %d of 32 servers are left: goodput %.1f %%, want at least 90 %%", load, proxies, servers, 100*good)
				}
			}
		}
	}
}
