package telemetry

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"time"

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

// What is not set here is read by the exporters themselves from OpenTelemetry's
// variables, such as OTEL_EXPORTER_OTLP_COMPRESSION.

// maxResponse is the largest answer of a collector that is read, in bytes: it
// says in a few words what was not taken.
const maxResponse = 64 << 10

// reconnect has a collector that comes back found within seconds; gRPC's own
// wait grows to two minutes.
func reconnect() grpc.DialOption {
	b := backoff.DefaultConfig
	b.MaxDelay = 5 * time.Second
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: b, MinConnectTimeout: 5 * time.Second})
}

func newSpanExporter(ctx context.Context, o *Options) (sdktrace.SpanExporter, error) {
	plain := o.Endpoint != nil && o.Endpoint.Scheme == "http"
	if o.Protocol == HTTP {
		options := []otlptracehttp.Option{otlptracehttp.WithMaxResponseSize(maxResponse), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
		})}
		if o.Endpoint != nil {
			options = append(options, otlptracehttp.WithEndpoint(o.Endpoint.Host), otlptracehttp.WithURLPath(below(o.Endpoint, "v1/traces")))
		}
		if plain {
			options = append(options, otlptracehttp.WithInsecure())
		}
		if len(o.Headers) > 0 {
			options = append(options, otlptracehttp.WithHeaders(o.Headers))
		}
		if o.TLS != nil {
			options = append(options, otlptracehttp.WithTLSClientConfig(o.TLS))
		}
		return otlptracehttp.New(ctx, options...)
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithDialOption(reconnect()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
	})}
	if o.Endpoint != nil {
		options = append(options, otlptracegrpc.WithEndpoint(target(o.Endpoint)))
	}
	if plain {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	if len(o.Headers) > 0 {
		options = append(options, otlptracegrpc.WithHeaders(o.Headers))
	}
	if o.TLS != nil {
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(o.TLS)))
	}
	return otlptracegrpc.New(ctx, options...)
}

// newMetricExporter returns one that does not try again: the next message says
// all that the last one did.
func newMetricExporter(ctx context.Context, o *Options) (sdkmetric.Exporter, error) {
	plain := o.Endpoint != nil && o.Endpoint.Scheme == "http"
	if o.Protocol == HTTP {
		options := []otlpmetrichttp.Option{otlpmetrichttp.WithMaxResponseSize(maxResponse), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
		if o.Endpoint != nil {
			options = append(options, otlpmetrichttp.WithEndpoint(o.Endpoint.Host), otlpmetrichttp.WithURLPath(below(o.Endpoint, "v1/metrics")))
		}
		if plain {
			options = append(options, otlpmetrichttp.WithInsecure())
		}
		if len(o.Headers) > 0 {
			options = append(options, otlpmetrichttp.WithHeaders(o.Headers))
		}
		if o.TLS != nil {
			options = append(options, otlpmetrichttp.WithTLSClientConfig(o.TLS))
		}
		return otlpmetrichttp.New(ctx, options...)
	}
	options := []otlpmetricgrpc.Option{
		otlpmetricgrpc.WithDialOption(reconnect()), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}),
	}
	if o.Endpoint != nil {
		options = append(options, otlpmetricgrpc.WithEndpoint(target(o.Endpoint)))
	}
	if plain {
		options = append(options, otlpmetricgrpc.WithInsecure())
	}
	if len(o.Headers) > 0 {
		options = append(options, otlpmetricgrpc.WithHeaders(o.Headers))
	}
	if o.TLS != nil {
		options = append(options, otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(o.TLS)))
	}
	return otlpmetricgrpc.New(ctx, options...)
}

// below returns the path of a signal at an endpoint.
func below(endpoint *url.URL, signal string) string {
	return strings.TrimSuffix(endpoint.Path, "/") + "/" + signal
}

// target returns host:port, 4317 if there is no port.
func target(endpoint *url.URL) string {
	if endpoint.Port() == "" {
		return endpoint.Host + ":4317"
	}
	return endpoint.Host
}

// instance returns a random UUID (RFC 9562, version 4), by which the metrics of
// this process are told from those of others of the same name.
func instance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
