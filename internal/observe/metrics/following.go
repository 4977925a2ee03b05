package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/timeline"
)

// DescribeTimelines adds the metrics of the keys that operators follow.
func DescribeTimelines(b *timeline.Book, clock func() time.Time, c *Asked) {
	keys := c.Gauge("headgate_timeline_keys", "Keys whose last hour this process keeps, because an operator follows them.")
	c.Ask(func(out chan<- prometheus.Metric) { keys(out, float64(len(b.List(clock())))) })
}

// follows reports whether an operator follows any key.
func (m *Observer) follows() bool { return m.options.Timelines != nil && m.options.Timelines.Follows() }

// follow adds the results of a request to the timelines of their keys. Only a request
// that passes takes its cost.
func (m *Observer) follow(at, cost int64, passes bool, results []engine.Result) { //nolint:revive // a fact, not a mode
	for i := range results {
		r := &results[i]
		d, o := &r.Decision, r.Outcome()
		s := timeline.Sample{
			At: at, Refused: o != engine.Allowed && o != engine.Delayed, Remaining: max(d.Remaining, 0), Limit: d.Limit,
		}
		switch d.Reason {
		case headgate.FailOpen, headgate.FailClosed, headgate.NoLimit:
			s.Remaining = timeline.Unknown
		default:
		}
		if passes && !s.Refused {
			s.Cost = r.CostOf(cost)
		}
		m.options.Timelines.Add(r.Rule.Scope, r.Key, &s)
	}
}
