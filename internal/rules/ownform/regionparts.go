package ownform

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

const moreThanRegions = "use a limit of at least as many as there are regions"

// regionCount returns how many regions there are: at least two if they are not known.
func (p *Parser) regionCount() int { return max(len(p.Regions.Names()), 2) }

// lacksParts reports whether a limit that regions share has no token for some of them,
// although it has some.
func (p *Parser) lacksParts(limit headgate.Limit) bool {
	count := p.regionCount()
	if !limit.Rule().Shared() || limit.Burst() == 0 {
		return false
	}
	for i := range count {
		if headgate.LimitOf(limit.Rule().Part(i, count)).Burst() == 0 {
			return true
		}
	}
	return false
}

// warnOfParts warns of rows whose limits have no token for some region.
func (t *tableForm) warnOfParts() {
	if t.lacking > 0 {
		t.report.Warnf(t.at, moreThanRegions, "a region without a part of a limit refuses everything: line %d of the table %s has a limit below %d, the number of regions",
			t.lacking, clip.Quote(t.table.Name), t.regionCount())
	}
}

// checkParts warns of a limit that has no token for some region, and refuses one that
// cannot be divided. If it is not known which regions there are, there are at least two.
func (l *LimitForm) checkParts(n *yamltext.Node, limit headgate.Limit) {
	count := l.regionCount()
	for i := range count {
		part := headgate.LimitOf(limit.Rule().Part(i, count))
		if !part.Rule().Valid() {
			l.Errorf(n, "use a shorter period, or a window: algorithm: fixed_window",
				"%d regions cannot share this bucket: the part of each refills in %d times its period, which is longer than %d days",
				count, count, int(store.MaxPeriod.Hours()/24))
			return
		}
	}
	if l.lacksParts(limit) {
		l.Warnf(n, moreThanRegions,
			"a region without a part of this limit refuses everything: it is %d, for %d regions", limit.Burst(), count)
	}
}
