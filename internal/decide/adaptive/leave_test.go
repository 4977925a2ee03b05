package adaptive_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
)

// stream is requests of one kind, which the upstream answers at once, however many there are.
type stream struct {
	rate float64       // a second
	took time.Duration // until the end
	how  adaptive.End
	part float64 // of the requests that end so; the others are answered after full. 0 for all
	full time.Duration
}

// silent is the end of a request that says nothing about the upstream.
const silent adaptive.End = -1

// ending is a request that the upstream works on.
type ending struct {
	at    int64
	place adaptive.Place
	how   adaptive.End
}

// play sends the streams for a time, and returns how many of each found no place.
func play(p *patient, rng *rand.Rand, now *int64, d time.Duration, streams []stream) (asked, refused []int) {
	asked, refused = make([]int, len(streams)), make([]int, len(streams))
	var open []ending
	for end := *now + int64(d); *now < end || len(open) > 0; *now += ms {
		left := open[:0]
		for _, e := range open {
			if e.at > *now {
				left = append(left, e)
				continue
			}
			if e.how == silent {
				p.Cancel(e.place)
			} else {
				p.Limiter.Done(e.place, *now, e.how)
			}
		}
		open = left
		for i, s := range streams {
			if *now >= end || rng.Float64() >= s.rate/1000 {
				continue
			}
			asked[i]++
			place, ok, _ := p.Limiter.Take(*now, adaptive.Class{})
			if !ok {
				refused[i]++
				continue
			}
			took, how := s.took, s.how
			if s.part > 0 && rng.Float64() >= s.part {
				took, how = s.full, adaptive.Answered
			}
			open = append(open, ending{*now + int64(took), place, how})
		}
	}
	return asked, refused
}

// Nothing waits in a line: clients leave because they like to, or the upstream fails. The limit falls
// to find that out, for seconds of every ten minutes; otherwise, who stays is let in.
func TestWhoLeavesIsNoLine(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	ordinary := stream{rate: 10, took: 20 * ms}
	for name, row := range map[string]struct {
		before, streams []stream
	}{
		"search as you type":      {nil, []stream{{rate: 60, took: 150 * ms, how: adaptive.GaveUp, part: 5.0 / 6, full: 200 * ms}}},
		"a page that is left":     {[]stream{ordinary}, []stream{ordinary, {rate: 60, took: 60 * ms, how: adaptive.GaveUp}}},
		"the same for longer":     {[]stream{ordinary}, []stream{ordinary, {rate: 60, took: 200 * ms, how: adaptive.GaveUp}}},
		"the same from the start": {nil, []stream{ordinary, {rate: 60, took: 60 * ms, how: adaptive.GaveUp}}},
		"one client":              {[]stream{{rate: 5, took: 100 * ms}}, []stream{{rate: 5, took: 100 * ms}, {rate: 9.5, took: 950 * ms, how: adaptive.GaveUp}}},
		"a quiet site":            {[]stream{{rate: 1, took: 20 * ms}}, []stream{{rate: 1, took: 20 * ms}, {rate: 9.5, took: 800 * ms, how: adaptive.GaveUp}}},
		"not so long":             {[]stream{ordinary}, []stream{ordinary, {rate: 60, took: 45 * ms, how: adaptive.GaveUp}}},
		"errors of one page":      {[]stream{ordinary}, []stream{ordinary, {rate: 60, took: 200 * ms, how: adaptive.Failed}}},
		"and all is well again":   {[]stream{{rate: 60, took: 250 * ms, how: adaptive.Failed}}, []stream{{rate: 60, took: 200 * ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(1, 2)), int64(1e18)
			play(p, rng, &now, 30*time.Second, row.before)
			asked, refused := play(p, rng, &now, 20*time.Minute, row.streams)
			for i := range asked {
				if refused[i]*10 > asked[i] {
					t.Errorf("stream %d: %d of %d refused, want at most 1 %%; %+v", i, refused[i], asked[i], p.State())
				}
			}
		})
	}
}

// One of several servers, or something that some pages need, times out. Everything else is answered as
// fast as ever, so there is no line, and nobody is refused for long.
func TestSomeFailLate(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	for _, row := range []struct {
		rate, part  float64
		took, after time.Duration
	}{{300, 0.2, 20 * ms, 600 * ms}, {300, 0.3, 20 * ms, 300 * ms}, {100, 0.25, 50 * ms, 900 * ms}, {1000, 0.03, 10 * ms, 900 * ms}, {50, 0.3, 100 * ms, 900 * ms}, {1000, 0.2, 10 * ms, 600 * ms}} {
		for _, how := range []adaptive.End{adaptive.Failed, adaptive.GaveUp} {
			for seed := range uint64(3) {
				p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(seed, 2)), int64(1e18)
				play(p, rng, &now, 20*time.Second, []stream{{rate: row.rate, took: row.took}})
				asked, refused := play(p, rng, &now, 2*time.Minute, []stream{{rate: row.rate, took: row.after, how: how, part: row.part, full: row.took}})
				if refused[0]*25 > asked[0] {
					t.Errorf("%+v, %d, seed %d: %d of %d refused, want at most 4 %%; %+v", row, how, seed, refused[0], asked[0], p.State())
				}
			}
		}
	}
}

// An upstream that has failed for a while has too much to do afterwards. That is noticed at once, not
// only when errors are looked at again.
func TestOverloadAfterErrors(t *testing.T) {
	simulates(t)
	const ms = time.Millisecond
	p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(1, 2)), int64(1e18)
	fast := stream{rate: 5, took: 2 * ms}
	play(p, rng, &now, 30*time.Second, []stream{fast, {rate: 100, took: 20 * ms}})
	play(p, rng, &now, time.Minute, []stream{fast, {rate: 100, took: 900 * ms, how: adaptive.Failed}})
	if limit := p.State().Limit; limit < 20 {
		t.Errorf("limit %d while errors are known to be no line, want 20", limit)
	}
	lowest := 20
	for range 10 {
		play(p, rng, &now, time.Second, []stream{fast, {rate: 100, took: 300 * ms, how: adaptive.GaveUp}})
		lowest = min(lowest, p.State().Limit)
	}
	if lowest > 3 {
		t.Errorf("the limit falls to %d in 10 s after clients give up instead, want 3", lowest)
	}
}

// Clients that left, or errors, have made the limit small. Then only long polls come, which are
// not answered while they hold a place: all of them are let in again.
func TestLongPollsAfterOthersHaveLeft(t *testing.T) {
	simulates(t)
	const ms = int64(time.Millisecond)
	for name, before := range map[string]stream{
		"left":   {rate: 60, took: 300 * time.Millisecond, how: adaptive.GaveUp},
		"failed": {rate: 60, took: 300 * time.Millisecond, how: adaptive.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(1, 2)), int64(1e18)
			play(p, rng, &now, 8*time.Second, []stream{before})
			asks := make([]int64, 140) // when each client asks
			for i := range asks {
				asks[i] = now + int64(i)*70*ms
			}
			begun, refused := now, 0
			for now < begun+int64(time.Minute) {
				now += ms
				for c, at := range asks {
					if at > now {
						continue
					}
					if _, ok := p.Take(now, 0); ok {
						asks[c] = now + int64(10*time.Second)
						continue
					}
					if asks[c] = now + int64(2*time.Second); now > begun+int64(30*time.Second) {
						refused++
					}
				}
			}
			if refused > 0 {
				t.Errorf("%d refused after half a minute, %+v", refused, p.State())
			}
		})
	}
}

// Long polls fill the places for as long as a place is held. Others are answered as fast as ever,
// so the limit grows, and they find a place.
func TestLongPollsBesideOthers(t *testing.T) {
	simulates(t)
	const ms = int64(time.Millisecond)
	for seed := range uint64(4) {
		p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(seed, 2)), int64(1e18)
		ordinary := []stream{{rate: 5, took: 200 * time.Millisecond}}
		play(p, rng, &now, 20*time.Second, ordinary)
		asks := make([]int64, 100) // when each client asks
		for i := range asks {
			asks[i] = now + int64(i)*ms
		}
		asked, refused := 0, 0
		var open []ending
		for begun := now; now < begun+int64(3*time.Minute); now += ms {
			p.lapse(now)
			for c, at := range asks {
				if at > now {
					continue
				}
				if _, ok := p.Take(now, 0); ok {
					asks[c] = now + 25_000*ms
				} else {
					asks[c] = now + 1000*ms + rng.Int64N(2000)*ms
				}
			}
			for len(open) > 0 && open[0].at <= now {
				p.Limiter.Done(open[0].place, now, adaptive.Answered)
				open = open[1:]
			}
			if rng.Float64() >= 0.005 {
				continue
			}
			counts := now > begun+int64(time.Minute)
			if counts {
				asked++
			}
			if place, ok, _ := p.Limiter.Take(now, adaptive.Class{}); ok {
				open = append(open, ending{at: now + 200*ms, place: place})
			} else if counts {
				refused++
			}
		}
		if refused*20 > asked {
			t.Errorf("seed %d: %d of %d refused after a minute of polls, want at most 5 %%; %+v", seed, refused, asked, p.State())
		}
	}
}

// Answers take longer than a request holds its place, and some clients leave before. Most are
// answered, so it is no line, and nobody is refused.
func TestSomeLeaveSlowPages(t *testing.T) {
	simulates(t)
	const ms = int64(time.Millisecond)
	for name, row := range map[string]struct {
		takes        time.Duration
		rate, leaves float64 // a second; who leaves does so after 2 s
	}{
		"a report":           {1500 * time.Millisecond, 5, 1},
		"many":               {1500 * time.Millisecond, 15, 5},
		"polls":              {25 * time.Second, 8, 1},
		"polls, more leave":  {25 * time.Second, 10, 3},
		"with fast pages":    {3 * time.Second, 6, 4},
		"nearly all of them": {2500 * time.Millisecond, 10, 8},
	} {
		t.Run(name, func(t *testing.T) {
			p, rng, now := &patient{proxy: newProxy()}, rand.New(rand.NewPCG(1, 2)), int64(1e18)
			type end struct {
				at       int64
				place    any
				answered bool
			}
			var open []end
			asked, refused := 0, 0
			for begun := now; now < begun+int64(10*time.Minute); now += ms {
				left := open[:0]
				for _, e := range open {
					if e.at > now {
						left = append(left, e)
						continue
					}
					p.Done(e.place, now, e.answered)
				}
				open = left
				ask := func(rate float64, takes time.Duration, answered bool) {
					if rng.Float64() >= rate/1000 {
						return
					}
					asked++
					place, ok := p.Take(now, 0)
					if !ok {
						refused++
						return
					}
					open = append(open, end{now + int64(takes), place, answered})
				}
				ask(row.rate, row.takes, true)
				ask(row.leaves, 2*time.Second, false)
				if name == "with fast pages" {
					ask(2, 20*time.Millisecond, true)
				}
			}
			if refused*20 > asked {
				t.Errorf("%d of %d refused, want at most 5 %%; %+v", refused, asked, p.State())
			}
		})
	}
}
