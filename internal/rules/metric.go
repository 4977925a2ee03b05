package rules

import "github.com/headgate/headgate/internal/base/clip"

// maxMetricValue is how many bytes of a value are in the name of a metric.
const maxMetricValue = 64

// SplitsMetric reports whether the rule asks for metrics by the values of its
// descriptors, which AppendMetric then names.
func (r *Rule) SplitsMetric() bool { return r.DetailedMetric || len(r.MetricValues) > 0 }

// AppendMetric appends to b the name of the metric, of those that the rule asks
// for, that a request of these entries belongs to: the path of the descriptor as
// envoyproxy/ratelimit writes it, such as tenant_a.user_bob. It has the values of
// the entries where detailed_metric or value_to_metric asks for them and
// share_threshold does not count them together. It is short, of one line and
// valid UTF-8 whatever they are. It is only for requests that the rule applies to.
func (r *Rule) AppendMetric(b []byte, entries []Entry) []byte {
	for i, s := range r.steps {
		if i > 0 {
			b = append(b, '.')
		}
		e := Entry{s.Key, s.Value}
		if s.Kind == BareStep {
			e.Value = ""
		}
		if i < len(entries) && s.Kind != SharedStep && (r.DetailedMetric || s.ValueToMetric) {
			e = entries[i]
		}
		b = clip.Append(b, e.Key, maxMetricValue)
		if e.Value != "" {
			b = clip.Append(append(b, '_'), e.Value, maxMetricValue)
		}
	}
	return b
}
