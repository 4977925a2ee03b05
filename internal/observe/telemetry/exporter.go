package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/tls"
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

// settings make options of what is set, in the terms of one exporter, whose O are
// its options.
type settings[O any] struct {
	endpoint func(*url.URL) []O
	insecure func() O
	headers  func(map[string]string) O
	tls      func(*tls.Config) O
}

func (s settings[O]) of(o *Options, always ...O) []O {
	if o.Endpoint != nil {
		always = append(always, s.endpoint(o.Endpoint)...)
		if o.Endpoint.Scheme == "http" {
			always = append(always, s.insecure())
		}
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
	if o.Protocol == HTTP {
		s := settings[otlptracehttp.Option]{insecure: otlptracehttp.WithInsecure, headers: otlptracehttp.WithHeaders, tls: otlptracehttp.WithTLSClientConfig}
		s.endpoint = func(u *url.URL) []otlptracehttp.Option {
			return []otlptracehttp.Option{otlptracehttp.WithEndpoint(u.Host), otlptracehttp.WithURLPath(below(u, "v1/traces"))}
		}
		return otlptracehttp.New(ctx, s.of(o, otlptracehttp.WithMaxResponseSize(maxResponse), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
		}))...)
	}
	s := settings[otlptracegrpc.Option]{insecure: otlptracegrpc.WithInsecure, headers: otlptracegrpc.WithHeaders}
	s.endpoint = func(u *url.URL) []otlptracegrpc.Option {
		return []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(target(u))}
	}
	s.tls = func(c *tls.Config) otlptracegrpc.Option {
		return otlptracegrpc.WithTLSCredentials(credentials.NewTLS(c))
	}
	return otlptracegrpc.New(ctx, s.of(o, otlptracegrpc.WithDialOption(reconnect()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 2 * time.Second, MaxElapsedTime: retryFor,
	}))...)
}

// newMetricExporter returns one that does not try again: the next message says
// all that the last one did.
func newMetricExporter(ctx context.Context, o *Options) (sdkmetric.Exporter, error) {
	if o.Protocol == HTTP {
		s := settings[otlpmetrichttp.Option]{insecure: otlpmetrichttp.WithInsecure, headers: otlpmetrichttp.WithHeaders, tls: otlpmetrichttp.WithTLSClientConfig}
		s.endpoint = func(u *url.URL) []otlpmetrichttp.Option {
			return []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(u.Host), otlpmetrichttp.WithURLPath(below(u, "v1/metrics"))}
		}
		return otlpmetrichttp.New(ctx, s.of(o, otlpmetrichttp.WithMaxResponseSize(maxResponse), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))...)
	}
	s := settings[otlpmetricgrpc.Option]{insecure: otlpmetricgrpc.WithInsecure, headers: otlpmetricgrpc.WithHeaders}
	s.endpoint = func(u *url.URL) []otlpmetricgrpc.Option {
		return []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(target(u))}
	}
	s.tls = func(c *tls.Config) otlpmetricgrpc.Option {
		return otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(c))
	}
	return otlpmetricgrpc.New(ctx, s.of(o, otlpmetricgrpc.WithDialOption(reconnect()), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))...)
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
