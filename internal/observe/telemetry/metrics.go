package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// newProducer returns what has the metrics of a gatherer for OpenTelemetry.
func newProducer(from prometheus.Gatherer) sdkmetric.Producer {
	return bridge.NewMetricProducer(bridge.WithGatherer(classic{from}))
}

// classic gathers histograms without their native buckets, so that they have the
// bounds that /metrics shows, and dashboards and alerts hold for both. The bridge
// would otherwise take the native ones alone.
type classic struct{ prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (g classic) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); len(h.GetBucket()) > 0 {
				h.Schema, h.ZeroThreshold, h.ZeroCount = nil, nil, nil
				h.PositiveSpan, h.PositiveDelta, h.NegativeSpan, h.NegativeDelta = nil, nil, nil, nil
			}
		}
	}
	return families, err
}
