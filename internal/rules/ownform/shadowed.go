package ownform

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
)

// warnShadowed warns about rules that can never refuse a request, since another rule
// applies to at least the same requests, counts by the same key and is at least as
// strict. Pairs with the same match are left to warnRepeated.
func (p *Parser) warnShadowed() {
	const most = 64 // wide rules of one key that others are compared with
	wide := map[string][]parsedRule{}
	var all []parsedRule
	for _, q := range p.parsed {
		if q.isComparable() {
			all = append(all, q)
			wide[q.key] = append(wide[q.key], q)
		}
	}
	for key, list := range wide {
		slices.SortStableFunc(list, func(a, b parsedRule) int { return cmp.Compare(len(a.asked), len(b.asked)) })
		wide[key] = list[:min(len(list), most)]
	}
	for _, narrow := range all {
		for _, w := range wide[narrow.key] {
			if w.signature != narrow.signature && w.rule.Covers(narrow.rule) && w.includes(narrow) && p.answersFor(w, narrow) {
				narrow.report.Warnf(narrow.name, "", "the rule %s can never refuse a request%s: %s (%s) counts the same requests and more, and is at least as strict",
					clip.Quote(narrow.rule.Name), narrow.ofNoTier(), clip.Quote(w.rule.Name), w.rule.Position())
				break
			}
		}
	}
}

// ofNoTier says, for a limit with tiers, that only its own rate is meant.
func (q parsedRule) ofNoTier() string {
	if q.rule.Tier == "" && q.rule.TierBy != (rules.Attribute{}) {
		return " without a tier"
	}
	return ""
}

// isComparable is false for limits that Covers cannot compare: windows that start with a
// request start at different times, and with count_denied each rule counts other
// refusals.
func (q parsedRule) isComparable() bool {
	limit := q.rule.Limit.Rule()
	return limit.Anchor != headgate.AnchorFirstRequest && !limit.CountRefused && !limit.Unlimited
}

// includes reports whether q certainly applies to every request that narrow applies to.
func (q parsedRule) includes(narrow parsedRule) bool {
	for name, wide := range q.asked {
		c, ok := narrow.asked[name]
		if !ok || !subset(wide.not, c.not) || len(wide.any) > 0 && (len(c.any) == 0 || !subset(c.any, wide.any)) {
			return false
		}
		switch wide.presence {
		case rules.Present:
			if c.presence != rules.Present && len(c.any) == 0 {
				return false
			}
		case rules.Absent:
			if c.presence != rules.Absent {
				return false
			}
		case rules.AnyPresence:
		}
	}
	return true
}

// subset reports whether all of a are in b.
func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(text string) bool { return !slices.Contains(b, text) })
}

// warnRepeated warns about rules that change nothing, since another one counts the same
// requests by the same key in the same way, and is at least as strict.
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
	case !a.Limit.Rule().Valid() || !b.Limit.Rule().Valid():
		return false // its rate is invalid
	case a.Repeats(b) && p.isReplaced(a) == p.isReplaced(b):
		second.report.Warnf(second.name, "remove one of them", "the rule %s repeats %s (%s): same match, key and limit", clip.Quote(b.Name), clip.Quote(a.Name), a.Position())
	case a.Covers(b) && p.answersFor(first, second):
		second.report.Warnf(second.name, "", "the rule %s can never refuse a request: %s (%s) counts the same and is %s", clip.Quote(b.Name), clip.Quote(a.Name), a.Position(), stricter)
	case b.Covers(a) && p.answersFor(second, first):
		first.report.Warnf(first.name, "", "the rule %s can never refuse a request: %s (%s) counts the same and is %s", clip.Quote(a.Name), clip.Quote(b.Name), b.Position(), stricter)
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

// isReplaced reports whether another rule replaces r for some requests.
func (p *Parser) isReplaced(r *rules.Rule) bool { return p.replaced[LimitName{r.Domain, r.LimitName}] }
