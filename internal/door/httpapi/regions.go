package httpapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/store/regions"
)

// Regions says how regions share a limit.
type Regions struct {
	Region string       `json:"region,omitempty"` // the one that says so; empty if it is not known
	Home   string       `json:"home,omitempty"`   // the one that counts for all; empty if each has a part
	Limit  int64        `json:"limit"`            // of all regions together
	Parts  []RegionPart `json:"parts"`            // by name; none with a home, or if the regions are not known
	Over   int64        `json:"over"`             // the most tokens of a key that all regions together can admit above Limit
	Bound  string       `json:"bound"`            // Limit and Over in words
	Alone  string       `json:"alone"`            // what the region has while it cannot reach the others, in words
}

// RegionPart is what a region has of a limit before regions give each other anything.
type RegionPart struct {
	Region string `json:"region"` // its name
	Limit  int64  `json:"limit"`  // its part of the limit
}

// RegionsOf describes a limit; nil means that regions do not share it. Without regions it
// says what several would have.
func RegionsOf(limit headgate.Limit, among *rules.Regions) *Regions {
	if _, inRegions := limit.Rule().Regions(); !inRegions || limit.Rule().Unlimited {
		return nil
	}
	out := &Regions{Limit: limit.Burst(), Parts: []RegionPart{}}
	if home := limit.Rule().Home(); home != "" {
		out.Home, out.Over = home, limit.Rule().BlockOver()
		out.Bound = regionBound(limit, regions.Over{Blocks: out.Over})
		out.Alone = "without " + home + ", on_store_error decides"
		if among != nil {
			out.Region = among.Own
		}
		return out
	}
	if among == nil {
		out.Over = limit.Rule().RegionOver()
		out.Bound, out.Alone = regionBound(limit, regions.Over{Slack: out.Over}), "each region keeps what it has, and its own part"
		if a := limit.Algorithm(); a == headgate.SlidingWindow || a == headgate.SlidingBuckets {
			out.Bound += ", and by rounding one more for each region after the first"
		}
		return out
	}
	out.Region = among.Own
	for _, p := range regions.Parts(limit, among.Names()...) {
		out.Parts = append(out.Parts, RegionPart{p.Region, p.Limit.Burst()})
	}
	over := regions.OverOf(limit, len(out.Parts))
	out.Over, out.Bound = over.Sum(), regionBound(limit, over)
	own, _ := out.Own()
	out.Alone = fmt.Sprintf("it keeps what it has, and has %d in every window; what others hold is refused here", own)
	if limit.Algorithm() == headgate.TokenBucket {
		out.Alone = fmt.Sprintf("it keeps what it has, in a bucket of %d with its part of the rate; what others hold is refused here", own)
	}
	return out
}

// Own returns the part of the region that says so, and false if it is not known.
func (r *Regions) Own() (limit int64, ok bool) {
	if r == nil {
		return 0, false
	}
	i := slices.IndexFunc(r.Parts, func(p RegionPart) bool { return p.Region == r.Region })
	if i < 0 {
		return 0, false
	}
	return r.Parts[i].Limit, true
}

// regionBound says how much all regions together can admit.
func regionBound(l headgate.Limit, over regions.Over) string {
	what, when := "the limit", "in a window"
	switch l.Algorithm() {
	case headgate.TokenBucket, headgate.LeakyBucket:
		what, when = "the burst", "at once"
	case headgate.Concurrency:
		when = "at once"
	case headgate.Distinct:
		when = "different values in a window"
	case headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingBuckets, headgate.SlidingLog:
	}
	text := fmt.Sprintf("all regions together admit at most %d %s", l.Burst()+over.Sum(), when)
	var more []string
	for _, o := range []struct {
		n   int64
		why string
	}{{over.Slack, "on the way between regions"}, {over.Rounding, "by rounding"}, {over.Blocks, "of blocks"}} {
		if o.n > 0 {
			more = append(more, fmt.Sprintf("%d %s", o.n, o.why))
		}
	}
	if len(more) > 0 {
		text += fmt.Sprintf(": %s of %d, and %s", what, l.Burst(), strings.Join(more, ", and "))
	}
	return text
}
