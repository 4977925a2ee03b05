package rules

import (
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
)

// finishTrees warns of descriptors that can never match or have no effect, and
// of replaces of limits that do not exist.
func (p *parser) finishTrees() {
	for i := range p.branches {
		b := &p.branches[i]
		if !b.warnUnreachable() {
			b.warnUseless()
		}
	}
	names := map[limitName]bool{}
	known := map[string][]string{}
	for _, r := range p.set.rules {
		if r.LimitName != "" {
			names[limitName{r.Domain, r.LimitName}] = true
			known[r.Domain] = append(known[r.Domain], r.LimitName)
		}
	}
	for _, r := range p.replaces {
		if !names[r.limitName] {
			const most = 1000 // names that are worth a comparison
			list := known[r.domain]
			r.report.Warnf(r.at, "", "no limit of the domain %s is named %s%s",
				clip.Quote(r.domain), clip.Quote(r.name), nearest.DidYouMean(r.name, list[:min(len(list), most)]))
		}
	}
}

// warnUnreachable reports whether another descriptor is taken for all that b
// would match.
func (b *parsedBranch) warnUnreachable() bool {
	var by *branch
	switch {
	case b.compat == CompatEnvoy:
		by = b.coveredInOrder()
	case b.same != nil:
		by = b.same.branch
	case b.kind == bareStep && b.below == nil:
		// A lone star is preferred and matches every value. Requests that end
		// here are its, if it has an answer for them.
		var at wildcardCursor
		if w := b.beside.wild.next(&at, anyText); w != nil && w.branch.answers() {
			by = w.branch
		}
	}
	if by == nil {
		return false
	}
	b.report.Warnf(b.at, "", "the descriptor %s can never match: %s (%s) is taken for all that it would match",
		clip.Quote(b.composite()), clip.Quote(by.composite()), by.position())
	return true
}

// coveredInOrder returns the wildcard before b in the file that matches all
// that b does.
func (b *parsedBranch) coveredInOrder() *branch {
	switch {
	case b.isPrefix():
		w := b.parent.wild.covering(newPrefix(b.composite(), b.branch))
		if w != nil && w.branch.order < b.order {
			return w.branch
		}
	case b.kind == bareStep:
		if w := b.parent.wild.first(b.key + "_" + anyText); w != nil {
			return w.branch
		}
	}
	return nil
}

// warnUseless warns of a descriptor that limits nothing and exempts from
// nothing, as no other of its key would limit what it matches.
func (b *parsedBranch) warnUseless() {
	if b.rule != nil || b.below != nil || b.report.Errors > 0 {
		return // what is missing may be what is wrong
	}
	others := len(b.beside.wild.lengths) > 0 || b.beside.bare != nil
	switch b.kind {
	case bareStep:
		others = false
	case wildStep, sharedStep:
		others = b.beside.bare != nil || b.beside.manyWild()
	case exactStep:
	}
	if !others {
		b.report.Warnf(b.at, "", "the descriptor %s has no effect: it has no rate_limit, and no other would limit what it matches", clip.Quote(b.composite()))
	}
}

// manyWild reports whether there are at least two patterns.
func (c *choice) manyWild() bool {
	n := 0
	for _, g := range c.wild.byPrefix {
		n += len(g.bySuffix) + len(g.others)
	}
	return n > 1
}
