package metrics

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/rules"
)

const (
	// maxValues is how many descriptors, told apart by their values, have series
	// of their own: of one rule, and of all rules.
	maxValues    = 100
	maxAllValues = 10_000
	otherValues  = "(other)" // the rest of a rule's
	metricRoom   = 512       // enough for the name of nearly every descriptor
)

// values are the counters of a rule that asks for series by the values of
// descriptors.
type values struct {
	detailed bool // what the rule asks for
	places   []int

	mu    sync.Mutex                             // of who adds one
	known atomic.Pointer[map[string]*valueCount] // by name; replaced, never changed
	full  atomic.Bool
	told  bool // it has been logged that it is; of m.mu
	other valueCount
}

// valueCount counts what a rule said to descriptors of one name.
type valueCount struct {
	outcomes [engine.Outcomes]atomic.Uint64
}

// split makes c ready to count by value if r asks for that; what has been
// counted is kept if it asks for the same as before. It needs m.mu to be held.
func (m *Observer) split(c *ruleCounts, r *rules.Rule) {
	if !c.named || !r.SplitsMetric() {
		m.unsplit(c)
		return
	}
	if v := c.values.Load(); v != nil && v.detailed == r.DetailedMetric && slices.Equal(v.places, r.MetricValues) {
		return
	}
	m.unsplit(c)
	v := &values{detailed: r.DetailedMetric, places: slices.Clone(r.MetricValues)}
	v.known.Store(&map[string]*valueCount{})
	c.values.Store(v)
}

// unsplit drops what c has counted by value.
func (m *Observer) unsplit(c *ruleCounts) {
	v := c.values.Swap(nil)
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.full.Store(true) // a decision at this moment adds none
	m.valued.Add(-int64(len(*v.known.Load())))
}

// countValue counts what r said to q by the values of its descriptor. Requests
// that are no descriptors have none.
func (m *Observer) countValue(v *values, r *rules.Rule, q rules.Request, o engine.Outcome) {
	d, ok := q.(rules.OrderedRequest)
	if !ok || o >= engine.Outcomes {
		return
	}
	var room [metricRoom]byte
	name := r.AppendMetric(room[:0], d.Descriptor())
	c := (*v.known.Load())[string(name)]
	if c == nil {
		c = m.newValue(v, name)
	}
	c.outcomes[o].Add(1)
}

// newValue returns the counter of a name that v did not know, or that of the
// others.
func (m *Observer) newValue(v *values, name []byte) *valueCount {
	if v.full.Load() || string(name) == otherValues {
		return &v.other
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := *v.known.Load()
	if c := known[string(name)]; c != nil {
		return c
	}
	if v.full.Load() || len(known) >= maxValues || !m.room() {
		v.full.Store(true)
		return &v.other
	}
	c, more := &valueCount{}, maps.Clone(known)
	more[string(name)] = c
	v.known.Store(&more)
	return c
}

// room reports whether one more value may have series, and counts it.
func (m *Observer) room() bool {
	if m.valued.Add(1) <= maxAllValues {
		return true
	}
	m.valued.Add(-1)
	return false
}

// tellFull reports, once, that c has met more values than it has series for. It
// needs m.mu to be held.
func (c *ruleCounts) tellFull() bool {
	v := c.values.Load()
	if v == nil || v.told || !v.full.Load() {
		return false
	}
	v.told = true
	return true
}

// logFull logs which rules have met more values than they have series for.
func (m *Observer) logFull(full []*ruleCounts) {
	if m.options.Log == nil {
		return
	}
	for _, c := range full {
		m.options.Log.LogAttrs(context.Background(), slog.LevelWarn, "rule has too many values: the rest share one series",
			slog.String("domain", c.domain), slog.String("rule", c.name), slog.String("counted_as", otherValues))
	}
}

// each calls tell with every count that is not 0.
func (v *values) each(tell func(name string, o engine.Outcome, n uint64)) {
	one := func(name string, c *valueCount) {
		for o := range c.outcomes {
			if n := c.outcomes[o].Load(); n > 0 {
				tell(name, engine.Outcome(o), n)
			}
		}
	}
	for name, c := range *v.known.Load() {
		one(name, c)
	}
	one(otherValues, &v.other)
}
