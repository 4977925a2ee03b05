// Package upstream_test compares adaptive limiters of concurrency in front of a simulated
// upstream.
package upstream_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/testkit/slowserver"
)

var seeds = flag.Int("seeds", 1, "how many runs are the mean of a figure; the docs have 3")

// TestLimiters prints the table of docs/decisions/0146-adaptive-concurrency.md. The upstream has
// 32 servers of 20 ms, its clients wait 1 s.
func TestLimiters(t *testing.T) {
	limiters := []struct {
		name string
		make func() slowserver.Limiter
	}{
		{"none", func() slowserver.Limiter { return none{} }},
		{"AIMD", func() slowserver.Limiter { return &aimd{limit: start} }},
		{"Gradient2", func() slowserver.Limiter { return &gradient2{limit: start} }},
		{"failsafe-go", func() slowserver.Limiter { return newFailsafe() }},
		{"Headgate", func() slowserver.Limiter { return newOurs() }},
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "service\tproxies\tlimiter\tshed at 0.9x\tgoodput 1x\t2x\t5x\t10x\tp50 5x\tp99 5x\tservers halved\tback\tservice doubled\tback\tevery second from +5 s")
	for _, service := range []struct {
		name string
		draw slowserver.Service
	}{{"exponential", slowserver.Exponential}, {"lognormal", slowserver.Lognormal}} {
		for _, proxies := range []int{1, 4} {
			for _, l := range limiters {
				var row figures
				for seed := range *seeds {
					row.add(uint64(seed), service.draw, proxies, l.make) //nolint:gosec // small
				}
				_, _ = fmt.Fprintf(out, "%s\t%d\t%s\t%v\n", service.name, proxies, l.name, row)
			}
		}
	}
	_ = out.Flush()
}

// figures are sums of several runs.
type figures struct {
	runs, shed, halved, halvedBack, doubled, doubledBack float64
	goodput                                              [4]float64
	p50, p99                                             time.Duration
	worst                                                float64
}

func (f *figures) add(seed uint64, draw slowserver.Service, proxies int, limiter func() slowserver.Limiter) {
	const length = 60 // seconds; the first 10 do not count
	run := func(load float64, seconds int, changes ...slowserver.Change) (r *slowserver.Result) {
		bubble(func(advance func(time.Duration)) {
			s := slowserver.Run{
				Seed: seed, Servers: 32, Service: 20 * time.Millisecond, Draw: draw, Load: load, Timeout: time.Second,
				Length: time.Duration(seconds) * time.Second, Changes: changes, Advance: advance,
			}
			for range proxies {
				s.Proxies = append(s.Proxies, limiter())
			}
			r = s.Do()
		})
		return r
	}
	if f.runs == 0 {
		f.worst = 1
	}
	f.runs++
	f.shed += run(0.9, length).ShedPart(10, length)
	for i, load := range []float64{1, 2, 5, 10} {
		r := run(load, length)
		f.goodput[i] += r.Goodput(10, length)
		if load == 5 {
			f.p50 += r.Quantile(0.5, 10, length)
			f.p99 += r.Quantile(0.99, 10, length)
		}
	}
	back := slowserver.Change{At: 60 * time.Second, Servers: 32, Service: 20 * time.Millisecond}
	for _, c := range []struct {
		change      slowserver.Change
		after, back *float64
	}{
		{slowserver.Change{At: 30 * time.Second, Servers: 16}, &f.halved, &f.halvedBack},
		{slowserver.Change{At: 30 * time.Second, Service: 40 * time.Millisecond}, &f.doubled, &f.doubledBack},
	} {
		r := run(5, 90, c.change, back)
		*c.after += r.Goodput(35, 60)
		*c.back += r.Goodput(65, 90)
		f.worst = min(f.worst, r.Worst(35, 60), r.Worst(65, 90))
	}
}

// bubble runs f in virtual time for limiters that read the clock by themselves.
func bubble(f func(advance func(time.Duration))) {
	synctest.Test(new(testing.T), func(*testing.T) {
		begin := time.Now()
		f(func(to time.Duration) { time.Sleep(to - time.Since(begin)) })
	})
}

// String returns the means.
func (f figures) String() string {
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v/f.runs) }
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", (d / time.Duration(f.runs)).Milliseconds()) }
	return fmt.Sprintf("%.2f %%\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%", 100*f.shed/f.runs, percent(f.goodput[0]), percent(f.goodput[1]),
		percent(f.goodput[2]), percent(f.goodput[3]), ms(f.p50), ms(f.p99), percent(f.halved), percent(f.halvedBack), percent(f.doubled), percent(f.doubledBack), 100*f.worst)
}
