package regions

import (
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Part is what a region has of a limit.
type Part struct {
	Region string
	Limit  headgate.Limit
}

// Parts returns what each of some regions has of a limit, in the order of their names, as
// a [Store] divides it.
func Parts(whole headgate.Limit, names ...string) []Part {
	sorted := slices.Sorted(slices.Values(names))
	parts := make([]Part, len(sorted))
	for i, name := range sorted {
		parts[i] = Part{name, headgate.LimitOf(whole.Rule().Part(i, len(sorted)))}
	}
	return parts
}

// Over is why n regions together can admit more tokens of a key than its limit, and how
// many.
type Over struct {
	Slack    int64 // may be on their way between regions while a bucket refills
	Rounding int64 // of a sliding limit: each region rounds its part of the estimate down
	Blocks   int64 // that the processes of all regions hold of buckets with sync: blocks
}

// OverOf returns why n regions together can admit more than a limit. They never admit
// more than the limit and the sum of these.
func OverOf(whole headgate.Limit, n int) Over {
	over := Over{Slack: whole.Rule().RegionOver()}
	if a := whole.Algorithm(); a == store.SlidingWindow || a == store.SlidingBuckets {
		over.Rounding = int64(n - 1)
	}
	for i := range n {
		over.Blocks += whole.Rule().Part(i, n).BlockOver()
	}
	return over
}

// Sum returns how many tokens it is in all.
func (o Over) Sum() int64 { return o.Slack + o.Rounding + o.Blocks }
