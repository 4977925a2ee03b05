package envoyform

import (
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules/ownform"
)

// Finish warns of descriptors that can never match or have no effect, and
// of replaces of limits that do not exist.
func (p *Parser) Finish() {
	for i := range p.branches {
		b := &p.branches[i]
		switch by := b.CoveredBy(); {
		case by != nil:
			b.report.Warnf(b.at, "", "the descriptor %s can never match: %s (%s) is taken for all that it would match",
				clip.Quote(b.Composite()), clip.Quote(by.Composite()), by.Position())
		case b.report.Errors == 0 && b.IsUseless(): // what is missing may be what is wrong
			b.report.Warnf(b.at, "", "the descriptor %s has no effect: it has no rate_limit, and no other would limit what it matches", clip.Quote(b.Composite()))
		}
	}
	names := map[ownform.LimitName]bool{}
	known := map[string][]string{}
	for _, r := range p.Rules.Rules() {
		if r.LimitName != "" {
			names[ownform.LimitName{Domain: r.Domain, Name: r.LimitName}] = true
			known[r.Domain] = append(known[r.Domain], r.LimitName)
		}
	}
	for _, r := range p.replaces {
		if !names[r.LimitName] {
			const most = 1000 // names that are worth a comparison
			list := known[r.Domain]
			r.report.Warnf(r.at, "", "no limit of the domain %s is named %s%s",
				clip.Quote(r.Domain), clip.Quote(r.Name), nearest.DidYouMean(r.Name, list[:min(len(list), most)]))
		}
	}
}
