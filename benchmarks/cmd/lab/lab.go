package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// Subject is one algorithm with its options.
type Subject struct {
	Name   string
	Limit  headgate.Limit
	Window bool // it limits windows, so its decisions can be compared with the log's
}

// Subjects returns every algorithm with a limit of n per period.
func Subjects(n int64, period time.Duration) []Subject {
	base := headgate.Per(n, period)
	buckets := func(edge headgate.Edge) headgate.Limit {
		return base.WithAlgorithm(headgate.SlidingBuckets).WithBuckets(store.DefaultBuckets, edge)
	}
	return []Subject{
		{"fixed_window", base.WithAlgorithm(headgate.FixedWindow), true},
		{"sliding_window", base.WithAlgorithm(headgate.SlidingWindow), true},
		{"sliding_buckets 60 lenient", buckets(headgate.EdgeLenient), true},
		{"sliding_buckets 60 weighted", buckets(headgate.EdgeWeighted), true},
		{"sliding_buckets 60 strict", buckets(headgate.EdgeStrict), true},
		{"sliding_log", base.WithAlgorithm(headgate.SlidingLog), true},
		{"token_bucket", base, false},
	}
}

// Request is one request.
type Request struct {
	At  int64 // microseconds
	Key int
}

// Profile is a stream of requests.
type Profile struct {
	Name     string
	Requests []Request // sorted by time
	Keys     int
}

// start is the time of the first request: on the hour, when fixed windows start too.
const start = int64(1_795_262_400_000_000)

const second = int64(1_000_000)

// Profiles returns minutes of synthetic traffic for a limit of 100 a minute, with few keys and
// with many.
func Profiles(minutes int64, few, keys int) []Profile {
	length := minutes * 60 * second
	var out []Profile
	for _, load := range []float64{0.5, 0.9, 1.1, 2} {
		name := fmt.Sprintf("Poisson, %g times the limit", load)
		out = append(out, newProfile(name, few, func(rnd *rand.Rand, _ int) []int64 { return poisson(rnd, load*100/60, length) }))
	}
	return append(out,
		newProfile("bursts: 10 s at 6 times the limit, then 20 s of silence", few, func(rnd *rand.Rand, _ int) []int64 {
			var times []int64
			for _, at := range poisson(rnd, 6*100.0/60, length) {
				if at%(30*second) < 10*second {
					times = append(times, at)
				}
			}
			return times
		}),
		newProfile("an attacker at the boundary", few, func(_ *rand.Rand, key int) []int64 { return boundary(length, key) }),
		newProfile(fmt.Sprintf("%d keys with Pareto rates", keys), keys, func(rnd *rand.Rand, _ int) []int64 {
			return poisson(rnd, min(0.02*math.Pow(1-rnd.Float64(), -1/1.16), 20), length/8)
		}),
		newProfile(fmt.Sprintf("%d keys, most far below the limit", 3*keys), 3*keys, func(rnd *rand.Rand, _ int) []int64 {
			return poisson(rnd, min(0.004*math.Pow(1-rnd.Float64(), -1/1.3), 5), length/4)
		}),
	)
}

// newProfile merges the requests of all keys.
func newProfile(name string, keys int, times func(rnd *rand.Rand, key int) []int64) Profile {
	p := Profile{Name: name, Keys: keys}
	rnd := rand.New(rand.NewPCG(2026, 11)) //nolint:gosec // the same traffic every time
	for key := range keys {
		for _, at := range times(rnd, key) {
			p.Requests = append(p.Requests, Request{start + at, key})
		}
	}
	slices.SortStableFunc(p.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return p
}

// poisson returns the times of requests at an average rate per second.
func poisson(rnd *rand.Rand, rate float64, length int64) []int64 {
	var out []int64
	for at := 0.0; ; {
		at += rnd.ExpFloat64() / rate * 1e6
		if at >= float64(length) {
			return out
		}
		out = append(out, int64(at))
	}
}

// boundary sends 100 requests in the last second of every second minute, and 100 more in the
// next second.
func boundary(length int64, key int) []int64 {
	var out []int64
	for minute := int64(0); (minute+2)*60*second < length; minute += 3 {
		for i := range int64(200) {
			out = append(out, (minute+1)*60*second-second+i*second/100+int64(key))
		}
	}
	return out
}

// Result is the accuracy of one algorithm.
type Result struct {
	Subject  string
	Requests int64
	Refused  int64 // refused by the exact log when allowed requests count
	// AllAllowed and AllRefused are wrong decisions when every request counts, so that all
	// algorithms see the same history.
	AllAllowed, AllRefused int64
	// Allowed and Denied are wrong decisions when allowed requests count, compared with a log
	// of what this algorithm has allowed.
	Allowed, Denied int64
	Most            int     // largest number allowed in any window
	BytesPerKey     float64 // memory of the store per key
}

// window is the exact log of a key: the times of the last period.
type window struct{ times []int64 }

// at drops what has left the window ending now, and returns the number left. A request leaves
// exactly one period later.
func (w *window) at(now, period int64) int {
	n := 0
	for n < len(w.times) && w.times[n] <= now-period {
		n++
	}
	w.times = w.times[n:]
	return len(w.times)
}

// Run sends the traffic through a subject, with allowed requests counting and, if it limits
// windows, with every request counting.
func Run(ctx context.Context, s Subject, p Profile, newStore func() *memory.Store) (r Result, err error) {
	r = Result{Subject: s.Name, Requests: int64(len(p.Requests))}
	db, all := newStore(), newStore()
	defer func() { err = errors.Join(err, db.Close(), all.Close()) }()
	period, limit := s.Limit.Period().Microseconds(), int(s.Limit.N())
	own, exact, every := make([]window, p.Keys), make([]window, p.Keys), make([]window, p.Keys)
	for i, q := range p.Requests {
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return r, ctx.Err()
		}
		op := store.Op{Key: fmt.Sprintf("key-%d", q.Key), Rule: s.Limit.Rule(), Cost: 1, At: q.At}
		d, err := store.Execute(ctx, db, op)
		if err != nil {
			return r, err
		}
		w := &own[q.Key]
		judge(d.Allowed, w.at(q.At, period) < limit, &r.Allowed, &r.Denied)
		if d.Allowed {
			w.times = append(w.times, q.At)
			r.Most = max(r.Most, len(w.times))
		}
		if e := &exact[q.Key]; e.at(q.At, period) < limit {
			e.times = append(e.times, q.At)
		} else {
			r.Refused++
		}
		if i == len(p.Requests)/2 { // while keys are alive
			stats := db.Stats()
			r.BytesPerKey = float64(stats.Bytes) / float64(max(stats.Keys, 1))
		}
		if !s.Window {
			continue
		}
		op.Kind = store.KindPeek
		d, err = store.Execute(ctx, all, op)
		op.Kind = store.KindCharge
		if _, charged := store.Execute(ctx, all, op); err != nil || charged != nil {
			return r, errors.Join(err, charged)
		}
		w = &every[q.Key]
		judge(d.Allowed, w.at(q.At, period) < limit, &r.AllAllowed, &r.AllRefused)
		w.times = append(w.times, q.At)
	}
	return r, nil
}

// judge counts a decision that differs from the exact log's.
func judge(allowed, fits bool, wronglyAllowed, wronglyRefused *int64) {
	switch {
	case allowed && !fits:
		*wronglyAllowed++
	case !allowed && fits:
		*wronglyRefused++
	}
}

// WriteTable writes the results of a profile as a Markdown table.
func WriteTable(w io.Writer, p Profile, results []Result) error {
	if len(results) == 0 {
		return nil
	}
	n := float64(max(results[0].Requests, 1))
	share := func(count int64) string { return fmt.Sprintf("%.4f%%", 100*float64(count)/n) }
	_, err := fmt.Fprintf(w, "### %s\n\n%d requests from %d keys; the exact log refuses %s.\n\n"+
		"| algorithm | wrongly allowed | wrongly refused | every request counts: wrongly allowed | wrongly refused | most in a window | bytes per key |\n"+
		"| --- | --- | --- | --- | --- | --- | --- |\n", p.Name, results[0].Requests, p.Keys, share(results[0].Refused))
	for i := range results {
		r := &results[i]
		all, none := share(r.AllAllowed), share(r.AllRefused)
		if r.Subject == "token_bucket" {
			all, none = "–", "–"
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %d | %.0f |\n",
				r.Subject, share(r.Allowed), share(r.Denied), all, none, r.Most, r.BytesPerKey)
		}
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
