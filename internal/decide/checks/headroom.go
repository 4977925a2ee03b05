package checks

import (
	"math"

	"github.com/headgate/headgate/store"
)

// leave returns what a request must leave of a limit, in millionths. What is no part of it
// counts as the whole limit: a mistake must not lift a limit.
func leave(part float64) uint32 {
	if !(part >= 0 && part <= 1) { // not a number, too
		return store.Whole
	}
	return uint32(math.Ceil(part * store.Whole))
}

// unkeepable returns why r cannot keep a part for others, as o says, or "".
func (o *Options[R]) unkeepable(r *store.Rule) string {
	switch {
	case o.Headroom == nil, r.Unlimited && o.LimitBy != nil:
	case r.Unlimited:
		return "Headroom has no effect without a limit: there is nothing to keep"
	case o.soft > 0 || o.passes:
		return "Headroom does not work with SoftAt or OnlyMark: how much is used depends on the request. Use Also for a second limit"
	case r.CountRefused:
		return "Headroom does not work with WithRefusalsCounted: what is refused would use up what is kept"
	case r.Shared():
		return "Headroom does not work with a limit that regions share: what is kept would be in other regions"
	case r.BlockAge() > 0:
		return "Headroom does not work with a limit in blocks: what is kept would be in the blocks of other processes"
	}
	return ""
}
