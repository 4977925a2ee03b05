package rules

import (
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// concurrencyKeys are the keys of a limit of what is under way at the same
// time, which has no rate.
func concurrencyKeys() []string { return []string{"concurrency", "lease"} }

// The shortest and the longest lease.
const (
	minLease = 10 * time.Millisecond
	maxLease = 24 * time.Hour
)

// parseLimitOf returns the limit that a rule's keys ask for: so many at the same
// time, or a rate.
func (p *parser) parseLimitOf(f yamltext.Fields, at *yamltext.Node) headgate.Limit {
	n := f.Get("concurrency")
	if n == nil {
		if field, ok := f["lease"]; ok {
			p.Errorf(field.Key, "add concurrency:, such as concurrency: 20", "\"lease\" has no meaning for a rate")
		}
		limit, _ := p.parseRateAndOptions(f, at)
		return limit
	}
	l := limitForm{parser: p, f: f, at: at}
	l.refuseBeside("concurrency, which has no rate", limitKeys()...)
	most, ok := p.Integer(n, "concurrency", 0, headgate.MaxConcurrent)
	if !ok {
		return headgate.Limit{}
	}
	limit := headgate.Concurrent(most)
	if n := f.Get("lease"); n != nil {
		text, ok := p.Span(n, "lease")
		if !ok {
			return headgate.Limit{}
		}
		d, err := duration(text, minLease, maxLease)
		if err != nil {
			p.Errorf(n, "for example lease: 60s", "\"lease\": %v", err)
			return headgate.Limit{}
		}
		limit = limit.Lease(d)
	}
	return limit
}

// inheritLimit drops from f, the keys that a tier inherits, those of the sort
// of limit that the tier replaces.
func inheritLimit(f, own yamltext.Fields) {
	if own.Get("concurrency") != nil {
		for _, key := range limitKeys() {
			delete(f, key)
		}
	}
	if own.Get("rate") != nil {
		for _, key := range concurrencyKeys() {
			delete(f, key)
		}
	}
}

// Concurrent reports whether r limits what is under way at the same time, which
// only a caller can keep to who knows when a request has ended.
func (r *Rule) Concurrent() bool { return r.Limit.Algorithm() == headgate.Concurrency }

// HasConcurrent reports whether there is such a rule.
func (s *Ruleset) HasConcurrent() bool { return s.concurrent }

// DropConcurrent takes those rules out of m.
func (m *Matches) DropConcurrent() {
	m.Checks = slices.DeleteFunc(m.Checks, func(c Check) bool { return c.Rule.Concurrent() })
}
