package telemetry

import (
	"context"
	"crypto/tls"
	"strings"
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
	"google.golang.org/grpc/credentials"
)

// The exporters read everything else from OpenTelemetry's variables, such as
// OTEL_EXPORTER_OTLP_COMPRESSION.

// maxResponse is the maximum size of a collector's response, in bytes.
const maxResponse = 64 << 10

// reconnect finds a collector that is back within seconds; gRPC's default wait grows
// to two minutes.
func reconnect() grpc.DialOption {
	b := backoff.DefaultConfig
	b.MaxDelay = 5 * time.Second
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: b, MinConnectTimeout: 5 * time.Second})
}

// settings makes the options O of one exporter.
type settings[O any] struct {
	endpoint func(string) O
	headers  func(map[string]string) O
	tls      func(*tls.Config) O
}

// of returns the options for a signal. path is used with HTTP only.
func (s settings[O]) of(o *Options, path string, always ...O) []O {
	if o.Endpoint != nil {
		u := *o.Endpoint
		if u.Path = strings.TrimSuffix(u.Path, "/") + "/" + path; o.Protocol == GRPC && u.Port() == "" {
			u.Host += ":4317"
		}
		always = append(always, s.endpoint(u.String()))
	}
	if len(o.Headers) > 0 {
		always = append(always, s.headers(o.Headers))
	}
	if o.TLS != nil {
		always = append(always, s.tls(o.TLS))
	}
	return always
}

func newSpanExporter(ctx context.Context, o *Options) (sdktrace.SpanExporter, error) {
	const path = "v1/traces"
	if o.Protocol == HTTP {
		s := settings[otlptracehttp.Option]{otlptracehttp.WithEndpointURL, otlptracehttp.WithHeaders, otlptracehttp.WithTLSClientConfig}
		return otlptracehttp.New(ctx, s.of(o, path, otlptracehttp.WithMaxResponseSize(maxResponse), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
		}))...)
	}
	s := settings[otlptracegrpc.Option]{otlptracegrpc.WithEndpointURL, otlptracegrpc.WithHeaders, func(c *tls.Config) otlptracegrpc.Option {
		return otlptracegrpc.WithTLSCredentials(credentials.NewTLS(c))
	}}
	return otlptracegrpc.New(ctx, s.of(o, path, otlptracegrpc.WithDialOption(reconnect()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
	}))...)
}

// newMetricExporter returns an exporter without retries: the next message has the same
// metrics again.
func newMetricExporter(ctx context.Context, o *Options) (sdkmetric.Exporter, error) {
	const path = "v1/metrics"
	if o.Protocol == HTTP {
		s := settings[otlpmetrichttp.Option]{otlpmetrichttp.WithEndpointURL, otlpmetrichttp.WithHeaders, otlpmetrichttp.WithTLSClientConfig}
		return otlpmetrichttp.New(ctx, s.of(o, path, otlpmetrichttp.WithMaxResponseSize(maxResponse), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))...)
	}
	s := settings[otlpmetricgrpc.Option]{otlpmetricgrpc.WithEndpointURL, otlpmetricgrpc.WithHeaders, func(c *tls.Config) otlpmetricgrpc.Option {
		return otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(c))
	}}
	return otlpmetricgrpc.New(ctx, s.of(o, path, otlpmetricgrpc.WithDialOption(reconnect()), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))...)
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
