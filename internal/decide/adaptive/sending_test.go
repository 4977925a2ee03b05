package adaptive_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/testkit/slowserver"
)

// Sent implements slowserver.Sender. The time in which the client sent does not count as patience.
func (p *patient) Sent(place any, took time.Duration) any {
	h := place.(*held) //nolint:forcetypeassert,errcheck // of Take
	if h.over {
		return h
	}
	h.over = true
	of := h.place.(adaptive.Place) //nolint:forcetypeassert,errcheck // of Take
	of.Waited(took)
	h = &held{place: of, until: h.until + int64(took)}
	at, _ := slices.BinarySearchFunc(p.open, h.until, func(o *held, until int64) int { return cmp.Compare(o.until, until) })
	p.open = slices.Insert(p.open, at, h)
	return h
}

// Clients take longer to send their requests than the upstream takes to work on them. Places are
// held meanwhile, so the limit has to be that much higher.
func TestClientsSendSlowly(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for name, sends := range map[string]func(r *rand.Rand) time.Duration{
		"100 ms":         func(*rand.Rand) time.Duration { return 100 * ms },
		"300 ms":         func(*rand.Rand) time.Duration { return 300 * ms },
		"0 to 800 ms":    func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(800 * ms))) },
		"half of 500 ms": func(r *rand.Rand) time.Duration { return 500 * ms * time.Duration(r.IntN(2)) },
	} {
		for _, servers := range []int{4, 32} {
			for _, load := range []float64{0.9, 1.5, 5} {
				for proxies, least := range map[int]float64{1: 0.9, 4: 0.7} {
					run := slowserver.Run{
						Seed: 1, Servers: servers, Service: 20 * ms, Draw: slowserver.Exponential, Load: load, Timeout: 3 * time.Second,
						Length: 2 * time.Minute, Proxies: patients(proxies), Sends: sends,
					}
					if load < 1 {
						least = 0.98
					}
					if good := run.Do().Goodput(20, 120); good < least {
						t.Errorf("%s, %d servers, load %v, %d proxies: goodput %.1f %%, want at least %.0f %%", name, servers, load, proxies, 100*good, 100*least)
					}
				}
			}
		}
	}
}

// body is one that arrives all at once.
type body struct{ asked, arrives time.Time }

func (b body) Sending(now time.Time) (waited time.Duration, all bool) {
	if now.Before(b.arrives) {
		return now.Sub(b.asked), false
	}
	return b.arrives.Sub(b.asked), true
}

// A request holds its place for a second, and for the time its client takes to send it; if that
// alone is a second, no longer.
func TestHeldFor(t *testing.T) {
	for _, row := range []struct{ sends, works, want time.Duration }{
		{0, 300, 300}, {0, 1500, 1000}, {400, 300, 700}, {400, 900, 1300}, {400, 1500, 1400}, {900, 500, 1400}, {900, 1500, 1900}, {1500, 100, 1000}, {60_000, 100, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, begin := adaptive.New(adaptive.Options{Min: 3, Max: 100}), time.Now()
			p, _, _ := l.Take(begin.UnixNano(), adaptive.Class{})
			var sent adaptive.Body
			if row.sends > 0 {
				sent = body{begin, begin.Add(row.sends * time.Millisecond)}
			}
			h := l.Hold(p, sent, time.Now)
			end := time.AfterFunc((row.sends+row.works)*time.Millisecond, func() { h.Done(time.Now(), adaptive.Answered) })
			for l.State().InFlight == 1 {
				time.Sleep(time.Millisecond)
			}
			if held := time.Since(begin) - time.Millisecond; held.Round(10*time.Millisecond) != row.want*time.Millisecond {
				t.Errorf("%d ms to send, %d to work: held for %v, want %d ms", row.sends, row.works, held, row.want)
			}
			end.Stop()
			h.Cancel()
			h.Done(time.Now(), adaptive.Answered)
			if n := l.State().InFlight; n != 0 {
				t.Errorf("%d in flight after three ends, want 0", n)
			}
		})
	}
}

// Handshakes of WebSockets, and uploads that take long, say nothing about the upstream. Where there is
// hardly anything else, and what there is is answered fast, the limit grows.
func TestNothingSaysAnything(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for name, streams := range map[string][]stream{
		"handshakes":              {{rate: 100, took: 400 * ms, how: silent}},
		"uploads":                 {{rate: 60, took: time.Second, how: silent}},
		"with health checks":      {{rate: 100, took: 400 * ms, how: silent}, {rate: 3, took: 2 * ms}},
		"with pages, and slow":    {{rate: 100, took: 900 * ms, how: silent}, {rate: 10, took: 30 * ms}},
		"after a page was called": {{rate: 30, took: time.Second, how: silent}, {rate: 0.2, took: 50 * ms}},
	} {
		p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(1, 2)), int64(1e18)
		play(p, rng, &now, 5*time.Second, streams)
		asked, refused := play(p, rng, &now, time.Minute, streams)
		for i := range asked {
			if refused[i]*50 > asked[i] {
				t.Errorf("%s: %d of %d refused after five seconds, want at most 2 %%; %+v", name, refused[i], asked[i], p.State())
			}
		}
	}
}

// handshaker is a proxy to which all answers say nothing.
type handshaker struct{ patient }

func (p *handshaker) Done(place any, now int64, answered bool) {
	p.lapse(now)
	h := place.(*held) //nolint:forcetypeassert,errcheck // of Take
	if h.over || !answered {
		p.patient.Done(place, now, answered)
		return
	}
	h.over = true
	p.Cancel(h.place.(adaptive.Place)) //nolint:forcetypeassert,errcheck // of Take
}

// More handshakes come than the upstream can do. They lapse then, so the limit does not grow.
func TestHandshakesInALine(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		servers int
		service time.Duration
		load    float64
	}{{10, 200 * ms, 3}, {10, 200 * ms, 1.5}, {4, 50 * ms, 3}} {
		for seed := range uint64(3) {
			r := slowserver.Run{
				Seed: seed, Servers: row.servers, Service: row.service, Draw: slowserver.Exponential, Load: row.load, Timeout: 5 * time.Second,
				Length: 2 * time.Minute, Proxies: []slowserver.Limiter{&handshaker{patient{proxy: newProxy()}}},
			}.Do()
			if good, p50 := r.Goodput(20, 120), r.Quantile(0.5, 20, 120); good < 0.8 || p50 > 3*time.Second {
				t.Errorf("%+v, seed %d: goodput %.1f %%, p50 %v", row, seed, 100*good, p50.Round(ms))
			}
		}
	}
}
