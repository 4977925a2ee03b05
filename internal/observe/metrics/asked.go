package metrics

import "github.com/prometheus/client_golang/prometheus"

// Asked is a collector that calls functions at every scrape. Describe metrics with
// Gauge and Counter, and report their values with Ask.
type Asked struct {
	list []*prometheus.Desc
	asks []func(out chan<- prometheus.Metric)
}

// Value sends one value of a metric.
type Value func(out chan<- prometheus.Metric, v float64, labels ...string)

// Describe implements prometheus.Collector.
func (c *Asked) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.list {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Asked) Collect(out chan<- prometheus.Metric) {
	for _, ask := range c.asks {
		ask(out)
	}
}

// Gauge describes a metric that goes up and down.
func (c *Asked) Gauge(name, help string, labels ...string) Value {
	return c.metric(prometheus.GaugeValue, name, help, labels)
}

// Counter describes a metric that only grows.
func (c *Asked) Counter(name, help string, labels ...string) Value {
	return c.metric(prometheus.CounterValue, name, help, labels)
}

func (c *Asked) metric(kind prometheus.ValueType, name, help string, labels []string) Value {
	d := prometheus.NewDesc(name, help, labels, nil)
	c.list = append(c.list, d)
	return func(out chan<- prometheus.Metric, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
}

// Ask calls f at every scrape.
func (c *Asked) Ask(f func(out chan<- prometheus.Metric)) { c.asks = append(c.asks, f) }

// OneIf returns 1 for true and 0 for false, as the value of a gauge.
func OneIf(yes bool) float64 { //nolint:revive // a fact, not a mode
	if yes {
		return 1
	}
	return 0
}
