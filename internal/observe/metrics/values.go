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
	// maxValues is how many descriptors of a rule have their own series, maxAllValues
	// how many of all rules.
	maxValues    = 100
	maxAllValues = 10_000
	otherValues  = "(other)" // the rest of a rule
	metricRoom   = 512       // enough for the name of nearly every descriptor
)

// values has the counters of a rule by descriptor values.
type values struct {
	detailed bool // the rule's setting
	places   []int

	mu    sync.Mutex                             // held to add a value
	known atomic.Pointer[map[string]*valueCount] // by name; replaced, never changed
	full  atomic.Bool
	told  bool // full has been logged; guarded by m.mu
	other valueCount
}

// valueCount counts the outcomes of descriptors with one name.
type valueCount struct {
	outcomes [engine.Outcomes]atomic.Uint64
}

// split makes c count by value if r is configured so. Counts are kept if the
// configuration is unchanged. m.mu must be held.
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

// unsplit drops c's counts by value.
func (m *Observer) unsplit(c *ruleCounts) {
	v := c.values.Swap(nil)
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.full.Store(true) // a concurrent decision adds none
	m.valued.Add(-int64(len(*v.known.Load())))
}

// countValue counts an outcome of q by the values of its descriptor, if q is a
// descriptor.
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

// newValue returns a counter for a new name, or the shared one.
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

// room reports whether another value may have series, and counts it.
func (m *Observer) room() bool {
	if m.valued.Add(1) <= maxAllValues {
		return true
	}
	m.valued.Add(-1)
	return false
}

// tellFull reports, once, that c has more values than series. m.mu must be held.
func (c *ruleCounts) tellFull() bool {
	v := c.values.Load()
	if v == nil || v.told || !v.full.Load() {
		return false
	}
	v.told = true
	return true
}

// logFull logs rules with more values than series.
func (m *Observer) logFull(full []*ruleCounts) {
	if m.options.Log == nil {
		return
	}
	for _, c := range full {
		m.options.Log.LogAttrs(context.Background(), slog.LevelWarn, "rule has too many values: the rest share one series",
			slog.String("domain", c.domain), slog.String("rule", c.name), slog.String("counted_as", otherValues))
	}
}

// each calls tell with every non-zero count.
func (v *values) each(add func(name string, o engine.Outcome, n uint64)) {
	one := func(name string, c *valueCount) {
		for o := range c.outcomes {
			if n := c.outcomes[o].Load(); n > 0 {
				add(name, engine.Outcome(o), n)
			}
		}
	}
	for name, c := range *v.known.Load() {
		one(name, c)
	}
	one(otherValues, &v.other)
}
