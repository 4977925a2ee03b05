package blocks

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// usage checks what was admitted against the definition of the limit. It does not
// depend on blocks, or on the state of the store.
type usage struct {
	limit  headgate.Limit
	rule   *store.Rule
	total  int64
	worst  int64 // for a bucket, the most above the burst so far, in tokens
	wrong  string
	counts map[int64]int64 // by window or sub-window

	meter, last int64 // of a bucket: see admitBucket
	log         []admission
	ends        []int64 // of windows that start with the first request
	burst       int64   // of the limit without blocks
}

type admission struct{ at, cost int64 }

func newUsage(l headgate.Limit, burst int64) usage {
	return usage{limit: l, rule: l.Rule(), burst: burst, counts: make(map[int64]int64)}
}

// sees notes when the store's present window ends.
func (u *usage) sees(end int64) {
	if u.rule.Anchor == store.AnchorFirstRequest && end > 0 && (len(u.ends) == 0 || u.ends[len(u.ends)-1] != end) {
		u.ends = append(u.ends, end)
	}
}

func (u *usage) failf(format string, args ...any) {
	if u.wrong == "" {
		u.wrong = fmt.Sprintf(format, args...)
	}
}

func (u *usage) admit(at, cost int64) {
	u.total += cost
	switch u.rule.Algorithm {
	case store.TokenBucket:
		u.admitBucket(at, cost)
	case store.FixedWindow:
		w := u.window(at)
		if u.counts[w] += cost; u.counts[w] > u.rule.Limit {
			u.failf("%d in one window, at %d", u.counts[w], at)
		}
	case store.SlidingLog:
		u.admitLog(at, cost)
	case store.SlidingWindow:
		u.counts[at/u.rule.Period] += cost
		w, into := at/u.rule.Period, at%u.rule.Period
		if used := u.counts[w-1]*(u.rule.Period-into)/u.rule.Period + u.counts[w]; used > u.rule.Limit {
			u.failf("%d in the sliding window, at %d", used, at)
		}
	case store.SlidingBuckets:
		u.admitBuckets(at, cost)
	case store.LeakyBucket, store.Concurrency, store.Distinct:
		u.failf("%s cannot be used in blocks", u.rule.Algorithm)
	}
}

// admitBucket: meter is the most, over all intervals that end now, of what was admitted
// in the interval less what it refills. That is at most the burst and what blocks may
// admit above it.
func (u *usage) admitBucket(at, cost int64) {
	r := u.rule
	if u.last > 0 {
		u.meter = max(u.meter-(at/r.Tick-u.last/r.Tick)*r.Leak, 0)
	}
	u.last = at
	u.log = append(u.log, admission{at, cost})
	u.meter += cost * r.Token
	u.worst = max(u.worst, u.meter/r.Token-u.burst)
	if most := u.burst + u.limit.Rule().BlockOver(); u.meter > most*r.Token {
		u.failf("%d above a burst of %d, at %d: more than %d", u.meter/r.Token-u.burst, u.burst, at, u.limit.Rule().BlockOver())
	}
}

func (u *usage) admitLog(at, cost int64) {
	sum := cost
	u.log = append(u.log, admission{at, cost})
	for len(u.log) > 0 && u.log[0].at+u.rule.Period <= at {
		u.log = u.log[1:]
	}
	for _, a := range u.log[:len(u.log)-1] {
		sum += a.cost
	}
	if sum > u.rule.Limit {
		u.failf("%d in one period, at %d", sum, at)
	}
}

func (u *usage) admitBuckets(at, cost int64) {
	width, from := u.rule.Tick, at-u.rule.Period
	u.counts[at/width] += cost
	used := int64(0)
	for j, count := range u.counts {
		switch start, end := j*width, (j+1)*width; {
		case end <= from:
			delete(u.counts, j)
		case start >= from || u.rule.Edge == store.EdgeStrict:
			used += count
		case u.rule.Edge == store.EdgeWeighted:
			used += count * (end - from) / width
		}
	}
	if used > u.rule.Limit {
		u.failf("%d in the sub-windows, at %d", used, at)
	}
}

// window returns the window of at.
func (u *usage) window(at int64) int64 {
	switch {
	case u.rule.Anchor == store.AnchorFirstRequest:
		for _, end := range slices.Backward(u.ends) {
			if at < end && at >= end-u.rule.Period {
				return end
			}
		}
		return 0
	case u.rule.Calendar != store.NoCalendar:
		start, _ := algorithm.CalendarWindow(u.rule.Calendar, u.rule.Zone, at)
		return start
	}
	return at / u.rule.Period
}

// inWindow returns what was admitted in the window of at.
func (u *usage) inWindow(at int64) int64 { return u.counts[u.window(at)] }

// inRefill returns what was admitted in the time before at in which the bucket refills.
func (u *usage) inRefill(at int64) (sum int64) {
	r := u.rule
	from := at - (r.Burst*r.Token/r.Leak+2)*r.Tick
	u.log = slices.DeleteFunc(u.log, func(a admission) bool { return a.at < from })
	for _, a := range u.log {
		sum += a.cost
	}
	return sum
}
