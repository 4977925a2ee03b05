package selfservice

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/base/enum"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// result is how a request for limits ended.
type result uint8

const (
	told     result = iota // with the limits
	refused                // a wrong request, or a caller that may not know
	tooOften               // by the Gate, to one client
	busy                   // by the Gate, to all
	failed                 // the store did not answer, or there are no rules
	results                // number of results
)

// String returns the label of the metric.
func (r result) String() string {
	return enum.Name(r, "result", "told", "refused", "too_often", "busy", "failed")
}

// Asked counts requests for limits by how they ended. A nil Asked counts nothing. It is
// safe for concurrent use.
type Asked [results]atomic.Uint64

func (a *Asked) count(r result) {
	if a != nil {
		a[r].Add(1)
	}
}

// Ended counts a request that was answered with the result of [Of].
func (a *Asked) Ended(err error) {
	if err != nil {
		a.count(failed)
		return
	}
	a.count(told)
}

// Wrong counts a request that could not be read.
func (a *Asked) Wrong() { a.count(refused) }

// Counts are those of all doors. The zero value is empty.
type Counts struct {
	mu    sync.Mutex
	doors map[string]*Asked
}

// Of returns the counts of a door.
func (c *Counts) Of(door string) *Asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doors == nil {
		c.doors = map[string]*Asked{}
	}
	if c.doors[door] == nil {
		c.doors[door] = new(Asked)
	}
	return c.doors[door]
}

// Collector returns the metric of the counts.
func (c *Counts) Collector() prometheus.Collector {
	m := &metrics.Asked{}
	asked := m.Counter("headgate_limits_asked_total",
		"Requests of callers for their own limits, by door and result: told, refused (wrong, or not for this caller), too_often (by one client), busy (too many at once) or failed (the store did not answer).",
		"door", "result")
	m.Ask(func(out chan<- prometheus.Metric) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, door := range slices.Sorted(maps.Keys(c.doors)) {
			for r := range results {
				asked(out, float64(c.doors[door][r].Load()), door, r.String())
			}
		}
	})
	return m
}
