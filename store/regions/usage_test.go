package regions

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// usage checks what all regions admitted against the definition of the limit. It does
// not depend on parts, gifts, or the state of any store. Windows are counted by their
// number, each region by its own clock.
type usage struct {
	limit   headgate.Limit
	rule    *store.Rule
	regions int
	fullest int64 // in a window
	wrong   string
	counts  map[int64]int64

	meter, last int64 // of a bucket: see admitBucket
}

func newUsage(l headgate.Limit, regions int) usage {
	return usage{limit: l, rule: l.Rule(), regions: regions, counts: make(map[int64]int64)}
}

func (u *usage) checkf(used, most int64, format string, args ...any) {
	u.fullest = max(u.fullest, used)
	if used > most && u.wrong == "" {
		u.wrong = fmt.Sprintf("%d of %d "+format, append([]any{used, most}, args...)...)
	}
}

func (u *usage) admit(at, cost int64) {
	r := u.rule
	switch r.Algorithm {
	case store.TokenBucket:
		u.admitBucket(at, cost)
	case store.FixedWindow:
		w := at / r.Period
		if r.Calendar != store.NoCalendar {
			w, _ = algorithm.CalendarWindow(r.Calendar, r.Zone, at)
		}
		u.counts[w] += cost
		u.checkf(u.counts[w], r.Limit, "in one window, at %d", at)
	case store.SlidingWindow:
		w, into := at/r.Period, at%r.Period
		u.counts[w] += cost
		used := u.counts[w-1]*(r.Period-into)/r.Period + u.counts[w]
		u.checkf(used, r.Limit+int64(u.regions-1), "in the sliding window, at %d", at) // each region rounds down
	case store.SlidingBuckets:
		u.admitBuckets(at, cost)
	case store.LeakyBucket, store.SlidingLog, store.Concurrency, store.Distinct:
		u.wrong = "cannot be shared"
	}
}

// admitBucket: meter is the most, over all intervals that end now, of what was admitted
// in the interval less what it refills.
func (u *usage) admitBucket(at, cost int64) {
	r := u.rule
	if u.last > 0 {
		u.meter = max(u.meter-(at/r.Tick-u.last/r.Tick)*r.Leak, 0)
	}
	u.last = at
	u.meter += cost * r.Token
	u.checkf((u.meter+r.Token-1)/r.Token, r.Burst+u.limit.Rule().RegionOver(), "above what is refilled, at %d", at)
}

func (u *usage) admitBuckets(at, cost int64) {
	r := u.rule
	width, from := r.Tick, at-r.Period
	u.counts[at/width] += cost
	used := int64(0)
	for j, count := range u.counts {
		switch start, end := j*width, (j+1)*width; {
		case end <= from:
			delete(u.counts, j)
		case start >= from || r.Edge == store.EdgeStrict:
			used += count
		case r.Edge == store.EdgeWeighted:
			used += count * (end - from) / width
		}
	}
	u.checkf(used, r.Limit+int64(u.regions-1), "in the sub-windows, at %d", at) // each region rounds down
}
