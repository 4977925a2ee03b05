package offenders

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/internal/rules"
)

// logEvery is how often failures of the store are logged.
const logEvery = time.Minute

// stats are for metrics and for operators.
type stats struct {
	full, uncounted, unbanned atomic.Int64
	logged                    time.Time // guarded by Watch.flushing

	mu     sync.Mutex
	banned map[counted]int64
	last   []Ban // a ring
	next   int
}

type counted struct {
	domain, rule string
	mode         rules.Mode
}

// maxLast is how many bans [Watch.Last] returns.
const maxLast = 1000

func (s *stats) add(b *Ban) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.banned[counted{b.Rule.Domain, b.Rule.Name, b.Mode}]++
	if len(s.last) < maxLast {
		s.last = append(s.last, *b)
		return
	}
	s.last[s.next] = *b
	s.next = (s.next + 1) % maxLast
}

// mayLog reports whether a failure may be logged now.
func (s *stats) mayLog(now time.Time) bool {
	if since := now.Sub(s.logged); since >= 0 && since < logEvery {
		return false
	}
	s.logged = now
	return true
}

// Last returns up to n of the bans that this process has started last, in shadow mode too,
// newest first.
func (w *Watch) Last(n int) []Ban {
	s := &w.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Ban, 0, min(n, len(s.last)))
	for i := range min(n, len(s.last)) {
		out = append(out, s.last[(s.next+len(s.last)-1-i)%len(s.last)])
	}
	return out
}

// Describe adds the metrics.
func (w *Watch) Describe(c *metrics.Asked) {
	banned := c.Counter("headgate_offenders_banned_total",
		"Keys that this process has banned by on_repeat, by mode: enforce, or shadow for those that only would have been.", "domain", "rule", "mode")
	lost := c.Counter("headgate_offenders_lost_total",
		"Refusals that on_repeat has not counted, by reason: too_many_keys or store; and bans that could not be saved: not_saved.", "reason")
	c.Ask(func(out chan<- prometheus.Metric) {
		w.stats.mu.Lock()
		for id, n := range w.stats.banned {
			banned(out, float64(n), id.domain, id.rule, id.mode.String())
		}
		w.stats.mu.Unlock()
		lost(out, float64(w.stats.full.Load()), "too_many_keys")
		lost(out, float64(w.stats.uncounted.Load()), "store")
		lost(out, float64(w.stats.unbanned.Load()), "not_saved")
	})
}
