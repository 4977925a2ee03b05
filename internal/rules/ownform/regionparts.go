package ownform

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// checkParts warns of a limit that has no token for some region, and refuses one that
// cannot be divided. If it is not known which regions there are, there are at least two.
func (l *LimitForm) checkParts(n *yamltext.Node, limit headgate.Limit) {
	count := max(len(l.Regions.Names()), 2)
	lacking := false
	for i := range count {
		part := limit.Part(i, count)
		if !part.Valid() {
			l.Errorf(n, "use a shorter period, or a window: algorithm: fixed_window",
				"%d regions cannot share this bucket: the part of each refills in %d times its period, which is longer than %d days",
				count, count, int(headgate.MaxPeriod.Hours()/24))
			return
		}
		lacking = lacking || part.Capacity() == 0
	}
	if lacking && limit.Capacity() > 0 {
		l.Warnf(n, "use a limit of at least as many as there are regions",
			"a region without a part of this limit refuses everything: it is %d, for %d regions", limit.Capacity(), count)
	}
}
