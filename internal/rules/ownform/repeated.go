package ownform

import (
	"reflect"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
)

// warnRepeated warns of rules that change nothing, as another one counts the
// same requests by the same key, in the same way, and is at least as strict.
func (p *Parser) warnRepeated() {
	const most = 64 // of one signature that are compared
	groups := map[string][]parsedRule{}
	for _, q := range p.parsed {
		group := groups[q.signature]
		if len(group) >= most {
			continue
		}
		groups[q.signature] = append(group, q)
		for _, other := range group {
			if p.warnPair(other, q) {
				break
			}
		}
	}
}

// warnPair compares two rules of one signature and reports whether it warned.
func (p *Parser) warnPair(first, second parsedRule) bool {
	a, b := first.rule, second.rule
	stricter := "stricter"
	if a.Limit.Equal(b.Limit) {
		stricter = "as strict"
	}
	switch {
	case !a.Limit.Valid() || !b.Limit.Valid():
		return false // its rate is wrong, and what it would be nobody knows
	case a.Repeats(b) && p.isReplaced(a) == p.isReplaced(b):
		second.report.Warnf(second.name, "remove one of them", "the rule %s repeats %s (%s): same match, key and limit", clip.Quote(b.Name), clip.Quote(a.Name), a.Position())
	case a.Covers(b) && p.answersFor(first, second):
		second.report.Warnf(second.name, "", "the rule %s can never refuse: %s (%s) counts the same and is %s", clip.Quote(b.Name), clip.Quote(a.Name), a.Position(), stricter)
	case b.Covers(a) && p.answersFor(second, first):
		first.report.Warnf(first.name, "", "the rule %s can never refuse: %s (%s) counts the same and is %s", clip.Quote(a.Name), clip.Quote(b.Name), b.Position(), stricter)
	default:
		return false
	}
	return true
}

// answersFor reports whether a request that both refuse is answered as a says,
// which rejects it: of two that reject, and for equally long, the first in the
// files is named.
func (p *Parser) answersFor(a, b parsedRule) bool {
	on := &b.rule.OnLimit
	return !p.isReplaced(a.rule) && (a.order < b.order || on.Action == rules.ShadowBan || reflect.DeepEqual(a.rule.OnLimit, *on))
}

// isReplaced reports whether another rule takes the place of r, for some requests.
func (p *Parser) isReplaced(r *rules.Rule) bool { return p.replaced[LimitName{r.Domain, r.LimitName}] }
