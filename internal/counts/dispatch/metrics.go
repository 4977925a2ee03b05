package dispatch

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/observe/metrics"
)

// queueStatsTimeout limits how long a store may take to return the sizes of its queues.
const queueStatsTimeout = 2 * time.Second

// Describe adds the metrics of queues.
func (d *Dispatcher) Describe(c *metrics.Asked) {
	depth := c.Gauge("headgate_queue_depth", "Requests waiting to be sent, by rule, over all servers that share the queue.", "domain", "rule")
	size := c.Gauge("headgate_queue_bytes", "Bytes of requests waiting to be sent, by rule.", "domain", "rule")
	oldest := c.Gauge("headgate_queue_oldest_seconds", "Age of the oldest request waiting to be sent, in seconds, by rule.", "domain", "rule")
	letters := c.Gauge("headgate_queue_dead", "Dead letters in the queue, by rule.", "domain", "rule")
	flight := c.Gauge("headgate_queue_in_flight", "Queued requests that this server is sending now, by rule.", "domain", "rule")
	accepted := c.Counter("headgate_queue_accepted_total", "Requests offered to the queue, by rule and result: new, repeated (known idempotency key), full, or error (could not be saved).", "domain", "rule", "result")
	delivered := c.Counter("headgate_queue_delivered_total", "Queued requests that the backend accepted, by rule.", "domain", "rule")
	failed := c.Counter("headgate_queue_failed_total", "Delivery attempts that failed, by rule.", "domain", "rule")
	dead := c.Counter("headgate_queue_dead_total", "Queued requests that became dead letters, by rule.", "domain", "rule")
	c.Ask(func(out chan<- prometheus.Metric) {
		q := d.Queue()
		if q == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), queueStatsTimeout)
		defer cancel()
		stats, err := q.Stats(ctx)
		for i := range stats {
			s := &stats[i]
			if err == nil {
				depth(out, float64(s.Entries), s.Domain, s.Rule)
				size(out, float64(s.Bytes), s.Domain, s.Rule)
				oldest(out, s.Age(d.Clock()).Seconds(), s.Domain, s.Rule)
				letters(out, float64(s.Dead), s.Domain, s.Rule)
			}
			flight(out, float64(s.InFlight), s.Domain, s.Rule)
			accepted(out, float64(s.Accepted), s.Domain, s.Rule, "new")
			accepted(out, float64(s.Repeated), s.Domain, s.Rule, "repeated")
			accepted(out, float64(s.Full), s.Domain, s.Rule, "full")
			accepted(out, float64(s.Errors), s.Domain, s.Rule, "error")
			delivered(out, float64(s.Delivered), s.Domain, s.Rule)
			failed(out, float64(s.Failed), s.Domain, s.Rule)
			dead(out, float64(s.Buried), s.Domain, s.Rule)
		}
	})
}
