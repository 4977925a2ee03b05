package offenders

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/feature"
)

// logEvery is how often each kind of failure is logged.
const logEvery = time.Minute

// stats are for metrics and for operators.
type stats struct {
	full, long, uncounted, unbanned, unsaved atomic.Int64
	uncountedAt, unbannedAt                  time.Time // last logged; guarded by Watch.flushing

	mu     sync.Mutex
	banned map[banned]int64
	last   []feature.Ban // a ring
	next   int
}

// maxLast is how many bans [Watch.Last] returns.
const maxLast = 1000

func (s *stats) add(b *feature.Ban) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.banned[banned{b.Rule.Domain, b.Rule.Name, b.Mode}]++
	if len(s.last) < maxLast {
		s.last = append(s.last, *b)
		return
	}
	s.last[s.next] = *b
	s.next = (s.next + 1) % maxLast
}

// mayLog reports whether a failure that was logged at last may be logged now, and sets last.
func mayLog(last *time.Time, now time.Time) bool {
	if since := now.Sub(*last); since >= 0 && since < logEvery {
		return false
	}
	*last = now
	return true
}

// Last implements feature.Worker.
func (w *Watch) Last(n int) []feature.Ban {
	s := &w.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]feature.Ban, 0, min(n, len(s.last)))
	for i := range min(n, len(s.last)) {
		out = append(out, s.last[(s.next+len(s.last)-1-i)%len(s.last)])
	}
	return out
}

// banned is a rule and whether it bans.
type banned struct {
	domain, rule string
	mode         rules.Mode
}

// Metrics implements feature.Worker.
func (w *Watch) Metrics() []feature.Metric {
	s := &w.stats
	return []feature.Metric{
		feature.Counter("headgate_offenders_banned_total",
			"Keys that this process has banned by on_repeat, by mode: enforce, or shadow for those that only would have been.",
			"domain", "rule", "mode").By(func(value feature.Value) {
			s.mu.Lock()
			now := maps.Clone(s.banned)
			s.mu.Unlock()
			for b, n := range now {
				value(n, b.domain, b.rule, b.mode.String())
			}
		}),
		feature.Counter("headgate_offenders_lost_total",
			"Refusals that on_repeat has not counted, by reason: too_many_keys, long_key or store; and bans that could not be saved: not_saved.",
			"reason").By(func(value feature.Value) {
			value(s.full.Load(), "too_many_keys")
			value(s.long.Load(), "long_key")
			value(s.uncounted.Load(), "store")
			value(s.unbanned.Load()+s.unsaved.Load(), "not_saved")
		}),
	}
}
