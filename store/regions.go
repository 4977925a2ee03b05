package store

import (
	"math"
	"time"
)

// Regions says how regions share a limit, each with a store of its own. Without a Home
// every region has a part of the limit, decides alone, and gives tokens that it does not
// need to regions that do. That needs package store/regions around the store, and a Home
// package store/homes; without it each region has the whole limit for itself.
type Regions struct {
	// Home, if not empty, names the region whose store counts for all regions. Every
	// algorithm works and the limit is exact, but a decision elsewhere is a round trip to
	// that region, unless InBlocks saves it. It cannot be combined with a Slack.
	Home string
	// Slack is the largest burst above a token bucket's own, as a part of that, from 0
	// to 1. A token on its way from one region to another arrives as less than one,
	// because the bucket that it comes from has drained since. With a slack, it arrives
	// whole for as long as it takes to refill so much. Windows never admit more than
	// the limit, whatever it is. It counts in steps of a millionth.
	Slack float64
}

const (
	badRegions problem = "leaky_bucket, sliding_log, concurrency, distinct, windows that start at the first request or in the caller's own zone, and limits that count refused requests cannot be shared between regions"
	badSlack   problem = "the slack of regions must be from 0 to 1"
	badHome    problem = "a limit that one region counts has no slack"
	badZone    problem = "regions share windows of the calendar only in a zone that all know by name, such as Europe/Berlin, not in time.Local or one of time.FixedZone"
	badPart    problem = "the number of a region must be from 0 to one less than there are regions"
)

// InRegions returns r so that regions share it, through package store/regions:
//
//	perMinute := headgate.PerMinute(600).WithAlgorithm(headgate.SlidingWindow)
//	limit := headgate.LimitOf(perMinute.Rule().InRegions(store.Regions{}))
//
// All regions together never admit more than the limit, whatever the network does; a token
// bucket admits [Rule.RegionOver] more, at once. What other regions hold may be refused
// here, until they have given it. A request that costs more than a region's own part is
// refused as [ReasonTooLarge]. Queues, logs, concurrency, distinct counts, limits that count
// refusals, and windows of the calendar in time.Local or in a zone of time.FixedZone, which
// others do not know, cannot be shared between regions, only counted by one, which is
// then their home: store.Regions{Home: "eu"}.
func (r *Rule) InRegions(g Regions) *Rule {
	return r.With(func(s *Settings) {
		s.inRegions, s.home, s.slack = true, g.Home, -1
		if g.Slack >= 0 && g.Slack <= 1 {
			s.slack = int64(math.Round(g.Slack * millionths))
		}
	})
}

// Regions returns what [Rule.InRegions] was given, and false for a limit that is not shared.
func (r *Rule) Regions() (settings Regions, ok bool) {
	return Regions{Home: r.home, Slack: float64(r.slack) / millionths}, r.inRegions
}

// Shared reports whether each region has a part of the limit. One with a home is that
// region's own.
func (r *Rule) Shared() bool { return r.inRegions && r.home == "" }

// Home returns the name of the region whose store counts the limit for all; empty for
// most limits. See [Regions].
func (r *Rule) Home() string { return r.home }

// RegionAge returns how long a token may be on its way from one region to another and
// still arrive whole; see [Regions]. It is 0 for windows, whose tokens arrive whole until
// the window ends.
func (r *Rule) RegionAge() time.Duration {
	if r.Algorithm != TokenBucket || !r.inRegions || r.Limit == 0 {
		return 0
	}
	return time.Duration(mulDivDown(mulDivDown(r.FullBurst(), r.Period, r.Limit), r.slack, millionths)) * time.Microsecond
}

// RegionOver returns how many tokens all regions together can admit above the limit, in
// any period of time: what is refilled in RegionAge. It is 0 for windows.
func (r *Rule) RegionOver() int64 {
	age := r.RegionAge()
	if age == 0 {
		return 0
	}
	return r.refilled(int64(age / time.Microsecond))
}

// Part returns part i of n of a limit, counted from 0, for one of n regions. Other than
// those of [Rule.Share], the parts of all regions add up to r exactly, and so none is
// left if r is smaller than n. A bucket's part refills in n periods what r refills in
// one.
func (r *Rule) Part(i, n int) *Rule {
	s := r.Settings
	s.part = true
	if i < 0 || i >= n {
		return invalid(s, badPart)
	}
	if n == 1 || s.Unlimited || r.problem != valid {
		return r
	}
	if s.Name == "" {
		s.share = r.mark
	}
	cut := func(total int64) int64 {
		return mulDivDown(total, int64(i)+1, int64(n)) - mulDivDown(total, int64(i), int64(n))
	}
	if s.Algorithm != TokenBucket {
		s.Limit = cut(s.Limit)
		return Compile(s)
	}
	s.Burst, s.HasBurst = cut(r.FullBurst()), true
	if s.Period > math.MaxInt64/int64(n) {
		s.Period = -1
	} else {
		s.Period *= int64(n)
	}
	if s.Burst == 0 {
		s.Limit, s.HasBurst = 0, false
	}
	return Compile(s)
}

// checkRegions returns why r cannot be shared between regions.
func (r *Rule) checkRegions() problem {
	switch {
	case !r.inRegions:
		return valid
	case r.slack < 0:
		return badSlack
	case r.home != "":
		if r.slack > 0 {
			return badHome
		}
		return valid
	case !r.divides() || r.Algorithm == SlidingLog || r.OwnZone || r.Anchor != AnchorClock:
		return badRegions
	case !r.part && r.Calendar != NoCalendar && !isKnown(r.Zone):
		return badZone
	}
	return valid
}

// isKnown reports whether another process finds the same zone by its name.
func isKnown(zone *time.Location) bool {
	name := zone.String()
	if name == "" || name == "Local" { // which are UTC, or anything
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}
