package when

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/rules"
)

// interval is how often rules are told of what has been measured, at most.
const interval = 100 * time.Millisecond

// Watch measures an upstream for the rules of a domain. The zero Watch is ready to use, and safe
// for concurrent use.
type Watch struct {
	asking atomic.Pointer[asking]
	next   atomic.Int64 // when rules are told again
	meter  meter
}

// asking are the rules that ask for a measure.
type asking struct {
	of     *rules.Ruleset
	domain string
	rules  []*rules.Rule // with a Slow each
}

// Wanted reports whether a rule of the domain asks for the upstream to be measured.
func (w *Watch) Wanted(rs *rules.Ruleset, domain string) bool {
	a := w.asking.Load()
	if a == nil || a.of != rs || a.domain != domain {
		a = &asking{of: rs, domain: domain}
		for _, r := range rs.Rules() {
			if r.Domain == domain && rules.TraitOf[*Slow](r) != nil {
				a.rules = append(a.rules, r)
			}
		}
		w.asking.Store(a)
	}
	return len(a.rules) > 0
}

// Answered notes how long the header of an answer took. An end without one, or with an error of
// the upstream, is no sign that it is fast, but may be one that it is slow.
func (w *Watch) Answered(now time.Time, took time.Duration, well bool, log *slog.Logger) { //nolint:revive // a fact, not a mode
	at := now.UnixMicro()
	if well || took.Microseconds() > w.meter.last.Load() {
		w.meter.add(at, took)
	}
	next := w.next.Load()
	if wait := next - at; wait > 0 && wait <= interval.Microseconds() || !w.next.CompareAndSwap(next, at+interval.Microseconds()) {
		return
	}
	p90 := w.meter.p90(at)
	for _, r := range w.asking.Load().rules {
		s := rules.TraitOf[*Slow](r)
		s.measured(at, p90)
		switch holds := s.Holds(at); {
		case s.told.Swap(holds) == holds:
		case holds:
			log.Warn("the upstream is slow: a rule applies", "domain", r.Domain, "rule", r.Name, "when", s.String(), measure, shown(p90))
		default:
			log.Info("the upstream is no longer slow: a rule no longer applies", "domain", r.Domain, "rule", r.Name, "when", s.String())
		}
	}
}
