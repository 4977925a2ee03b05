package engine

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
)

// multiScratch is the memory of one decision about several parts, used again
// for the next.
type multiScratch struct {
	q        MultiQuery
	v        MultiVerdict
	matches  []rules.Matches // one for each part, since keys point into them
	items    []item
	results  []Result // one for each item
	verdicts []Verdict
	pending  []headgate.Op
	out      []headgate.Decision
	places   []int // of each pending op in items
	failure  error // the store's, the first time
}

// item is one limit to ask about.
type item struct {
	part int
	key  string
	cost int64 // of a request of cost 1
	sort sort
	// charged says that it is charged whatever becomes of the request.
	charged bool
}

// maxParts is the number of parts up to which a multiScratch is kept.
const maxParts = 32

// match fills s.items, s.results and s.verdicts, and reports whether the
// domain is known.
func (s *multiScratch) match(rs *rules.Ruleset, q *MultiQuery) (known bool) {
	s.items, s.results, s.verdicts = s.items[:0], s.results[:0], s.verdicts[:0]
	for len(s.matches) < len(q.Parts) {
		s.matches = append(s.matches, rules.Matches{})
	}
	for i := range q.Parts {
		p, m := &q.Parts[i], &s.matches[i]
		known = rs.Match(q.Domain, p.Request, m)
		s.verdicts = append(s.verdicts, Verdict{
			Allowed: true, Known: known, at: q.At,
			Decision: headgate.Decision{Allowed: true, Reason: headgate.NoLimit},
		})
		if !known {
			continue
		}
		if p.Rule != nil {
			m.Checks = append(m.Checks[:0], rules.Check{Rule: p.Rule, Key: p.Key, Cost: p.Rule.Cost, Enforced: true})
		}
	}
	if known && rs.HasConcurrent() {
		for i := range q.Parts {
			s.matches[i].DropConcurrent() // nobody says when the request has ended
		}
	}
	if known {
		rules.ApplyReplaces(s.matches[:len(q.Parts)])
		s.fill(q)
	}
	return known
}

// fill makes an item and a result of each check.
func (s *multiScratch) fill(q *MultiQuery) {
	for i := range q.Parts {
		p, m := &q.Parts[i], &s.matches[i]
		for j := range m.Checks {
			c := &m.Checks[j]
			it := item{part: i, key: c.Key, cost: c.Cost}
			switch {
			case p.Kind == headgate.Refund:
				it.sort = refunded
			case !c.Enforced || q.Observe:
				it.sort = observed
			case c.Rule.QuotaMode:
				it.sort = quota
			}
			it.charged = c.Rule.ChargeDenied && it.sort != refunded
			s.items = append(s.items, it)
			s.results = append(s.results, Result{Rule: c.Rule, Key: c.Key, Enforced: c.Enforced && !q.Observe})
		}
	}
}

// op returns the question about item i. kind is for parts that take.
func (s *multiScratch) op(q *MultiQuery, i int, kind headgate.Kind) headgate.Op {
	it, rule := &s.items[i], s.results[i].Rule
	p := &q.Parts[it.part]
	if p.Kind == headgate.Peek {
		kind = headgate.Peek
	}
	return headgate.Op{
		Key: it.key, Scope: rule.Scope, Limit: rule.Limit,
		Cost: times(p.Cost, it.cost), At: q.At, Kind: kind,
	}
}

// quotaLeft reports whether a part that rules in quota mode apply to is refused
// by none of them, or if there is no such part.
func (s *multiScratch) quotaLeft() bool {
	quotas := false
	for i := 0; i < len(s.items); {
		part, has, left := s.items[i].part, false, true
		for ; i < len(s.items) && s.items[i].part == part; i++ {
			if s.items[i].sort == quota {
				has, left = true, left && s.results[i].Decision.Allowed
			}
		}
		if has && left {
			return true
		}
		quotas = quotas || has
	}
	return !quotas
}

// conclude makes each part's verdict of its results.
func (s *multiScratch) conclude() {
	for i := 0; i < len(s.items); {
		first, part := i, s.items[i].part
		v := &s.verdicts[part]
		for ; i < len(s.items) && s.items[i].part == part; i++ {
			r := &s.results[i]
			switch {
			case r.Enforced:
				v.consider(r)
			case r.Decision.Reason == headgate.Shadow:
				v.WouldRefuse++
			}
		}
		v.results = s.results[first:i:i]
	}
}

// room makes s.out as long as s.pending.
func (s *multiScratch) room() {
	if n := len(s.pending); cap(s.out) < n {
		s.out = make([]headgate.Decision, n, 2*n)
	}
	s.out = s.out[:len(s.pending)]
}

// tidy lets go of what is too large to keep.
func (s *multiScratch) tidy() {
	if len(s.matches) > maxParts || cap(s.results) > maxKept {
		*s = multiScratch{}
	}
}
