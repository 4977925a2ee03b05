package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// The exporters read everything else from OpenTelemetry's variables, such as
// OTEL_EXPORTER_OTLP_ENDPOINT.

// maxResponse is the maximum size of a collector's response, in bytes.
const maxResponse = 64 << 10

// reconnect finds a collector that is back within seconds; gRPC's default wait grows
// to two minutes.
func reconnect() grpc.DialOption {
	b := backoff.DefaultConfig
	b.MaxDelay = 5 * time.Second
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: b, MinConnectTimeout: 5 * time.Second})
}

func newSpanExporter(ctx context.Context, o *Options) (sdktrace.SpanExporter, error) {
	if o.Protocol == HTTP {
		return otlptracehttp.New(ctx, otlptracehttp.WithMaxResponseSize(maxResponse), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
		}))
	}
	return otlptracegrpc.New(ctx, otlptracegrpc.WithDialOption(reconnect()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
	}))
}

// newMetricExporter returns an exporter without retries: the next message has the same
// metrics again.
func newMetricExporter(ctx context.Context, o *Options) (sdkmetric.Exporter, error) {
	if o.Protocol == HTTP {
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithMaxResponseSize(maxResponse), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	}
	return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithDialOption(reconnect()), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
}

// newProducer returns the metrics of a gatherer for OpenTelemetry.
func newProducer(from prometheus.Gatherer) sdkmetric.Producer {
	return bridge.NewMetricProducer(bridge.WithGatherer(classic{from}))
}

// classic drops the native buckets of histograms, so that dashboards and alerts for
// /metrics work with OTLP too. Otherwise the bridge would use the native ones only.
type classic struct{ prometheus.Gatherer }

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
