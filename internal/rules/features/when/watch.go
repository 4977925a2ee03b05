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
	live, candidate *rules.Ruleset
	domain          string
	rules, trying   []*rules.Rule // of live and candidate, with a Slow each
}

// Wanted reports whether a rule of the domain asks for the upstream to be measured: one of the
// live rules or of the candidate, which is nil for none.
func (w *Watch) Wanted(live, candidate *rules.Ruleset, domain string) bool {
	a := w.asking.Load()
	if a == nil || a.live != live || a.candidate != candidate || a.domain != domain {
		a = &asking{live: live, candidate: candidate, domain: domain, rules: slow(live, domain)}
		if candidate != nil {
			a.trying = slow(candidate, domain)
		}
		w.asking.Store(a)
	}
	return len(a.rules)+len(a.trying) > 0
}

// slow returns the rules of a domain that ask for a measure.
func slow(rs *rules.Ruleset, domain string) (list []*rules.Rule) {
	for _, r := range rs.Rules() {
		if r.Domain == domain && rules.TraitOf[*Slow](r) != nil {
			list = append(list, r)
		}
	}
	return list
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
	asking := w.asking.Load()
	for _, r := range asking.trying {
		rules.TraitOf[*Slow](r).measured(at, p90) // without a word: it affects no request
	}
	for _, r := range asking.rules {
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
