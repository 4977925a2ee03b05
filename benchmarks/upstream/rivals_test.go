package upstream_test

import (
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/headgate/headgate/internal/decide/adaptive"
)

// The bounds of all limiters.
const least, most, start = 3, 1000, 20

// none limits nothing.
type none struct{}

func (none) Take(int64, int) (any, bool) { return nil, true }
func (none) Done(any, int64, bool)       {}

// ours is Headgate's limiter.
type ours struct{ *adaptive.Limiter }

func newOurs() ours { return ours{adaptive.New(adaptive.Options{Min: least, Max: most})} }

func (o ours) Take(now int64, _ int) (any, bool) {
	p, ok, _ := o.Limiter.Take(now, adaptive.Class{})
	return p, ok
}

func (o ours) Done(place any, now int64, answered bool) {
	how := adaptive.Answered
	if !answered {
		how = adaptive.GaveUp
	}
	o.Limiter.Done(place.(adaptive.Place), now, how) //nolint:forcetypeassert // of Take
}

// failsafe is the adaptive limiter of failsafe-go, in a bubble of virtual time.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

func newFailsafe() failsafe {
	return failsafe{adaptivelimiter.NewBuilder[any]().WithLimits(least, most, start).Build()}
}

func (f failsafe) Take(int64, int) (any, bool) { return f.TryAcquirePermit() }

func (f failsafe) Done(place any, _ int64, answered bool) {
	p := place.(adaptivelimiter.Permit) //nolint:forcetypeassert // of Take
	if answered {
		p.Record()
	} else {
		p.Drop()
	}
}

// aimd adds 1 for an answer within 200 ms, and takes a tenth away for any other.
type aimd struct {
	limit    float64
	inFlight int
}

func (a *aimd) Take(now int64, _ int) (any, bool) {
	if a.inFlight >= int(a.limit) {
		return nil, false
	}
	a.inFlight++
	return now, true
}

func (a *aimd) Done(place any, now int64, answered bool) {
	if took := now - place.(int64); !answered || took > int64(200*time.Millisecond) { //nolint:forcetypeassert // of Take
		a.limit = max(a.limit*0.9, least)
	} else if 2*a.inFlight >= int(a.limit) {
		a.limit = min(a.limit+1, most)
	}
	a.inFlight--
}

// gradient2 is Netflix's Gradient2 in windows of a second: the limit follows the ratio of
// the long mean of latencies to the last one, with a tolerance of 1.5.
type gradient2 struct {
	limit, long  float64
	inFlight     int
	from         int64
	sum          float64
	answers, top int
}

func (g *gradient2) Take(now int64, _ int) (any, bool) {
	if g.inFlight >= int(g.limit) {
		return nil, false
	}
	if g.from == 0 {
		g.from = now
	}
	g.inFlight++
	g.top = max(g.top, g.inFlight)
	return now, true
}

func (g *gradient2) Done(place any, now int64, answered bool) {
	g.inFlight--
	if !answered {
		return
	}
	g.answers++
	g.sum += float64(now - place.(int64)) //nolint:forcetypeassert // of Take
	if now-g.from < int64(time.Second) || g.answers < 10 {
		return
	}
	short := g.sum / float64(g.answers)
	if g.long == 0 {
		g.long = short
	}
	g.long += (short - g.long) * 2 / 601
	if g.long > 2*short {
		g.long *= 0.95
	}
	if 2*g.top >= int(g.limit) {
		next := g.limit*max(0.5, min(1, 1.5*g.long/short)) + 4
		g.limit = min(max(0.8*g.limit+0.2*next, least), most)
	}
	g.from, g.sum, g.answers, g.top = now, 0, 0, g.inFlight
}
