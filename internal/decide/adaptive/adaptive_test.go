package adaptive_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/adaptive"
	"github.com/headgate/headgate/internal/testkit/slowserver"
)

// proxy is a proxy of the simulated upstream, which keeps more for higher classes.
type proxy struct {
	*adaptive.Limiter
	more []float64
}

func newProxy(more ...float64) proxy {
	return proxy{adaptive.New(adaptive.Options{Min: 3, Max: 1000}), append(more, 0)}
}

func (p proxy) Take(now int64, class int) (any, bool) {
	taken, ok, _ := p.Limiter.Take(now, adaptive.Class{Index: class, More: p.more[class]})
	return taken, ok
}

func (p proxy) Done(place any, now int64, answered bool) {
	how := adaptive.Answered
	if !answered {
		how = adaptive.GaveUp
	}
	p.Limiter.Done(place.(adaptive.Place), now, how) //nolint:forcetypeassert,errcheck // of Take
}

func (p proxy) service() time.Duration {
	return time.Duration(p.State().Service * float64(time.Second))
}

// simulates skips a simulation in short runs: it takes seconds, many times that under the race
// detector, and has no goroutines.
func simulates(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a simulation")
	}
}

// draws are the distributions of the service time.
var draws = map[string]slowserver.Service{"exponential": slowserver.Exponential, "lognormal": slowserver.Lognormal}

// upstream returns a run with an upstream of 32 servers and 20 ms, whose clients wait 1 s.
func upstream(seed uint64, draw slowserver.Service, load float64, length time.Duration, proxies ...slowserver.Limiter) slowserver.Run {
	return slowserver.Run{
		Seed: seed, Servers: 32, Service: 20 * time.Millisecond, Draw: draw, Load: load, Timeout: time.Second, Length: length, Proxies: proxies,
	}
}

// At 5 times the load, at least 90 % of what the upstream can do is done in time.
func TestOverloadKeepsCapacity(t *testing.T) {
	simulates(t)
	for name, draw := range draws {
		for seed := range uint64(20) {
			r := upstream(seed, draw, 5, 30*time.Second, newProxy()).Do()
			if good := r.Goodput(10, 30); good < 0.9 {
				t.Errorf("%s, seed %d: goodput %.1f %%, want at least 90 %%", name, seed, 100*good)
			}
			if p99 := r.Quantile(0.99, 10, 30); p99 > 250*time.Millisecond {
				t.Errorf("%s, seed %d: p99 %v, want at most 250ms", name, seed, p99)
			}
		}
	}
}

// Without overload nobody is refused, but while the limit finds its place.
func TestUnderloadIsNotShed(t *testing.T) {
	simulates(t)
	for name, draw := range draws {
		for _, load := range []float64{0.3, 0.5, 0.7, 0.9} {
			for _, proxies := range []int{1, 4} {
				var all []slowserver.Limiter
				for range proxies {
					all = append(all, newProxy())
				}
				r := upstream(1, draw, load, 5*time.Minute, all...).Do()
				if shed := r.ShedPart(5, 300); shed > 0.001 {
					t.Errorf("%s, load %v, %d proxies: %.3f %% shed, want at most 0.1 %%", name, load, proxies, 100*shed)
				}
			}
		}
	}
}

// Half of the servers go, or each takes twice as long; later all is as before. In each second at
// least 86 % of the servers' time goes into answers in time. Where there are 128 of them, as many
// answers are counted; those of 16 differ by 3.5 % in a second in any case.
func TestCapacityHalvesAndReturns(t *testing.T) {
	simulates(t)
	for _, servers := range []int{32, 128} {
		for name, change := range map[string]slowserver.Change{
			"servers": {At: 30 * time.Second, Servers: servers / 2}, "service": {At: 30 * time.Second, Service: 40 * time.Millisecond},
		} {
			back := slowserver.Change{At: 60 * time.Second, Servers: servers, Service: 20 * time.Millisecond}
			for seed := range uint64(5) {
				run := upstream(seed, slowserver.Exponential, 5, 90*time.Second, newProxy())
				run.Servers, run.Changes = servers, []slowserver.Change{change, back}
				r := run.Do()
				for _, part := range [][2]int{{10, 30}, {35, 60}, {65, 90}} {
					worst := r.WorstWork(part[0], part[1])
					if servers == 128 {
						worst = min(worst, r.Worst(part[0], part[1]))
					}
					if worst < 0.86 {
						t.Errorf("%s of %d halved, seed %d: %.1f %% in a second from %d to %d, want at least 86 %%", name, servers, seed, 100*worst, part[0], part[1])
					}
				}
			}
		}
	}
}

// Several proxies find the capacity together, and share it: none is left with nothing. Their
// clocks differ a little.
func TestProxiesOfOneUpstream(t *testing.T) {
	simulates(t)
	ms := time.Millisecond
	for name, skew := range map[string][]time.Duration{"aligned": nil, "clocks 100 ms apart": {0, 50 * ms, -50 * ms, 30 * ms}} {
		all := []slowserver.Limiter{newProxy(), newProxy(), newProxy(), newProxy()}
		run := upstream(1, slowserver.Exponential, 5, time.Minute, all...)
		run.Skew = skew
		r := run.Do()
		if good := r.Goodput(10, 60); good < 0.9 {
			t.Errorf("%s: goodput %.1f %%, want at least 90 %%", name, 100*good)
		}
		for i, l := range all {
			if s := l.(proxy).State(); s.Limit < 6 || s.Limit > 60 { //nolint:forcetypeassert,errcheck // made above
				t.Errorf("%s: proxy %d has a limit of %d, want about 18", name, i, s.Limit)
			}
		}
	}
}

// In an hour of overload, S does not drift.
func TestHourOfOverload(t *testing.T) {
	simulates(t)
	all := []slowserver.Limiter{newProxy(), newProxy(), newProxy(), newProxy()}
	run := upstream(1, slowserver.Exponential, 5, time.Hour, all...)
	ms := time.Millisecond
	run.Skew = []time.Duration{0, 10 * ms, -10 * ms, 20 * ms}
	minutes := make([]time.Duration, 60)
	run.Second = func(second int) {
		for _, l := range all {
			minutes[second/60] += l.(proxy).service() / 240 //nolint:forcetypeassert,errcheck // made above
		}
	}
	run.Do()
	early, late := mean(minutes[1:11]), mean(minutes[50:])
	if change := float64(late-early) / float64(early); change < -0.1 || change > 0.1 {
		t.Errorf("S is %v in the first ten minutes and %v in the last, want a difference of at most 10 %%", early, late)
	}
	if late < 15*ms || late > 30*ms {
		t.Errorf("S is %v, want about 20ms", late)
	}
}

func mean(of []time.Duration) (sum time.Duration) {
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(len(of))
}

// While an upstream has lost nearly all of its capacity, S is still what a request takes,
// not what it waits: the limit does not grow with the line (failsafe-go#127).
func TestBaselineDoesNotFollowAnIncident(t *testing.T) {
	simulates(t)
	p := newProxy()
	run := upstream(1, slowserver.Exponential, 0.8, 10*time.Minute, p)
	run.Changes = []slowserver.Change{{At: time.Minute, Servers: 4}}
	r := run.Do()
	if s := p.service(); s > 40*time.Millisecond {
		t.Errorf("S is %v after 9 minutes, want about 20ms", s)
	}
	if good := r.Goodput(70, 600); good < 0.9 {
		t.Errorf("goodput %.1f %%, want at least 90 %%", 100*good)
	}
}

// If all clients give up before their answers, no answer says that there are too many
// requests.
func TestClientsThatGiveUpAreASign(t *testing.T) {
	simulates(t)
	p := newProxy()
	run := upstream(1, slowserver.Exponential, 5, time.Minute, p)
	run.Changes = []slowserver.Change{{At: 20 * time.Second, Service: 2 * time.Second}, {At: 30 * time.Second, Service: 20 * time.Millisecond}}
	if good := run.Do().Goodput(40, 60); good < 0.9 {
		t.Errorf("goodput %.1f %% after it, want at least 90 %%", 100*good)
	}
}

// A quiet upstream answers few requests a second. That is no reason to let in few.
func TestThroughputWithoutRefusalsIsNoCapacity(t *testing.T) {
	simulates(t)
	p := newProxy()
	upstream(1, slowserver.Exponential, 0.9, time.Minute, p).Do()
	before := p.State().Limit
	upstream(2, slowserver.Exponential, 0.02, 10*time.Minute, p).Do()
	if after := p.State().Limit; after < before {
		t.Errorf("the limit fell from %d to %d", before, after)
	}
}

// critical returns runs in which half of the upstream goes after a minute. A part of what the
// other half can do is asked for by critical requests, for which the limiters keep more.
func critical(seeds int, part, more float64, proxies int) (all []*slowserver.Result) {
	for seed := range seeds {
		run := upstream(uint64(seed), slowserver.Exponential, 5, 150*time.Second)
		for range proxies {
			run.Proxies = append(run.Proxies, newProxy(more))
		}
		run.Classes = []float64{part / 10, 1 - part/10}
		run.Changes = []slowserver.Change{{At: time.Minute, Servers: 16}}
		all = append(all, run.Do())
	}
	return all
}

// Critical requests find a place in any overload by others, with as much kept for them as the
// formula of docs/more/priorities.md says. That is on top of the limit: the upstream does as much
// as without it. Several proxies each keep a part, and the busiest may run out of it.
func TestCriticalRequestsAreServed(t *testing.T) {
	simulates(t)
	for _, row := range []struct {
		proxies       int
		part          float64
		steady, after float64 // wanted
	}{{1, 0.2, 0.999, 0.995}, {1, 0.5, 0.999, 0.995}, {4, 0.2, 0.998, 0.995}, {4, 0.5, 0.985, 0.98}} {
		share := 16 / float64(row.proxies)
		more := math.Ceil(math.Log(1000)/math.Log(1/row.part)) / (share + 3*math.Sqrt(share) + 1)
		const seeds = 4
		before, first, after, good := 0.0, 0.0, 0.0, 1.0
		for _, r := range critical(seeds, row.part, more, row.proxies) {
			before, first, after = before+r.Served(0, 10, 60)/seeds, first+r.Served(0, 60, 65)/seeds, after+r.Served(0, 65, 150)/seeds
			good = min(good, r.Goodput(10, 60), r.Goodput(65, 150))
		}
		if before < row.steady || first < row.after || after < row.steady || good < 0.97 {
			t.Errorf("%d proxies, critical requests are %v: %.4f are served, %.4f in 5 s after half is gone, %.4f later; goodput %.3f",
				row.proxies, row.part, before, first, after, good)
		}
	}
}

// If most of what an upstream can do is critical, probes that spare it measure its line.
func TestProbesEmptyTheLineOfCriticalRequestsToo(t *testing.T) {
	simulates(t)
	for _, part := range []float64{0.7, 0.8, 2} {
		for _, proxies := range []int{1, 4} {
			for seed, r := range critical(2, part, 0.25, proxies) {
				if good, p99 := r.Goodput(65, 150), r.Quantile(0.99, 65, 150); good < 0.95 || p99 > 200*time.Millisecond {
					t.Errorf("critical %v, %d proxies, seed %d: goodput %.3f, p99 %v", part, proxies, seed, good, p99)
				}
			}
		}
	}
}

// What is kept for a class is on top of the limit, and each class leaves that of those above it.
func TestHeadroomIsOnTop(t *testing.T) {
	simulates(t)
	l := adaptive.New(adaptive.Options{Min: 3, Max: 60})
	for i, row := range []struct {
		class adaptive.Class
		want  int // in progress at most
	}{{adaptive.Class{Index: 2}, 20}, {adaptive.Class{Index: 1, More: 0.1}, 22}, {adaptive.Class{More: 0.25}, 25}, {adaptive.Class{Index: 2}, 25}} {
		for {
			if _, ok, _ := l.Take(int64(time.Hour), row.class); !ok {
				break
			}
		}
		if s := l.State(); s.InFlight != row.want || s.Limit != 20 || !l.Refuses(int64(time.Hour), row.class) {
			t.Errorf("%d: %+v, want %d in flight", i, s, row.want)
		}
	}
}

// In shadow mode all pass, what would be refused is counted, and nothing is probed.
func TestShadow(t *testing.T) {
	simulates(t)
	l := adaptive.New(adaptive.Options{Min: 3, Max: 60, Shadow: true})
	now, over := int64(time.Hour), 0
	for range 100 {
		_, ok, full := l.Take(now, adaptive.Class{})
		if !ok {
			t.Fatal("refused")
		}
		if full {
			over++
		}
	}
	if s := l.State(); over != 80 || s.Refused != 80 || s.InFlight != 100 || s.Probes != 0 {
		t.Errorf("%d over the limit, and %+v; want 80 of 100", over, s)
	}
}

// A cancelled request leaves no trace.
func TestCancelledRequestsAreNoSamples(t *testing.T) {
	simulates(t)
	l := adaptive.New(adaptive.Options{Min: 3, Max: 60})
	now := int64(time.Hour)
	for range 10_000 {
		p, ok, _ := l.Take(now, adaptive.Class{})
		if !ok {
			t.Fatal("refused")
		}
		now += ms
		l.Cancel(p)
	}
	if s := l.State(); s != (adaptive.State{Limit: 20}) {
		t.Errorf("%+v, want a limiter as new", s)
	}
}

func TestAllocatesNothing(t *testing.T) {
	simulates(t)
	l := adaptive.New(adaptive.Options{Min: 3, Max: 60})
	now := int64(time.Hour)
	if n := testing.AllocsPerRun(1000, func() {
		p, _, _ := l.Take(now, adaptive.Class{})
		now += ms
		l.Done(p, now, adaptive.Answered)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkLimiter(b *testing.B) {
	l := adaptive.New(adaptive.Options{Min: 3, Max: 60})
	now := int64(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		p, _, _ := l.Take(now, adaptive.Class{})
		now += ms
		l.Done(p, now, adaptive.Answered)
	}
}

// TestBurstsAfterAStart: as long as nothing was slow the limit doubles, so bursts that the
// upstream can work on are soon let in whole.
func TestBurstsAfterAStart(t *testing.T) {
	simulates(t)
	l := adaptive.New(adaptive.Options{Min: 3, Max: 1000})
	var got []int
	for burst := range int64(5) {
		now := int64(1e18) + burst*int64(2*time.Second)
		var places []adaptive.Place
		for range 100 {
			if p, ok, _ := l.Take(now, adaptive.Class{}); ok {
				places = append(places, p)
			}
		}
		got = append(got, len(places))
		for _, p := range places {
			l.Done(p, now+int64(100*time.Millisecond), adaptive.Answered)
		}
	}
	if want := []int{20, 40, 80, 100, 100}; !slices.Equal(got, want) {
		t.Errorf("of bursts of 100, %v were let in, want %v", got, want)
	}
}

// TestAnUpstreamThatAnswersNobody: where requests lapse and none is answered, the limit falls to
// that of the start, so that the upstream catches up. Long polls among answers change nothing.
func TestAnUpstreamThatAnswersNobody(t *testing.T) {
	simulates(t)
	for _, row := range []struct {
		name  string
		every int // one of so many is answered at once; 0: none
		want  []int
	}{
		{"nothing is answered", 0, []int{1000, 500, 250, 125, 62, 31, 20, 20}},
		{"one of ten is answered", 10, []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}},
	} {
		l := adaptive.New(adaptive.Options{Min: 3, Max: 1000})
		now := int64(1e18)
		for range 100 { // bursts
			now = burst(l, now, 300*ms)
		}
		type open struct {
			adaptive.Place
			at int64
		}
		var waiting []open
		var got []int
		for range row.want {
			for i := range 100 {
				now += 10 * ms
				for len(waiting) > 0 && waiting[0].at+int64(time.Second) <= now {
					l.Lapse(waiting[0].Place)
					waiting = waiting[1:]
				}
				p, ok, _ := l.Take(now, adaptive.Class{})
				switch {
				case !ok:
				case row.every > 0 && i%row.every == 0:
					l.Done(p, now+20*ms, adaptive.Answered)
				default:
					waiting = append(waiting, open{p, now})
				}
			}
			got = append(got, l.State().Limit)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: limits %v after each second, want %v", row.name, got, row.want)
		}
	}
}
