// Package telemetry sends traces and metrics by OTLP, OpenTelemetry's protocol.
//
// It is the only package that imports OpenTelemetry's SDK. Doors, engine and store do
// not depend on it: package app wraps their handlers, observer and store. Without
// telemetry, *Telemetry is nil, and its methods return their argument unchanged.
//
// Nothing that is sent contains a key or parts of one: no path, query, host or client
// address.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// What is sent where OpenTelemetry's variables do not say.
const (
	DefaultInterval    = 15 * time.Second
	DefaultSample      = 0.01 // the share of new traces; those that callers record are recorded too
	DefaultServiceName = "headgate"
)

// Limits that apply when the collector fails.
const (
	MaxPending = 2048 // spans that wait to be sent, about 2 kB each; further ones are lost and counted
	// batch is how many spans are sent together, batchDelay how long the first of them
	// waits.
	batch      = 512
	batchDelay = time.Second
	// exportTimeout limits one message, retryFor the retries of spans within it.
	exportTimeout = 10 * time.Second
	retryFor      = 5 * time.Second
	maxText       = 256 // the length of the longest attribute in characters
)

// scope is the instrumentation scope.
const scope = "github.com/headgate/headgate"

// Protocol is how OTLP is transported.
type Protocol uint8

// The protocols.
const (
	GRPC Protocol = iota
	HTTP
)

// Signals are the kinds of data to send.
type Signals uint8

// The signals.
const (
	Traces Signals = 1 << iota
	Metrics
)

// Options configure Telemetry.
type Options struct {
	Protocol Protocol
	Signals  Signals
	// Sampler and Interval report that OpenTelemetry's variables say which traces are
	// recorded, and how often metrics are sent.
	Sampler, Interval bool
	Gatherer          prometheus.Gatherer // source of the metrics
	Version           string              // of the process
	// Logger receives a line when export fails, and when it works again. Required.
	Logger *slog.Logger
}

// Telemetry sends. A nil one does nothing.
type Telemetry struct {
	tracer     trace.Tracer // nil without traces
	events     int          // that a span keeps; below 0 all
	propagator propagation.TraceContext
	deliveries []*delivery
	spans      spanCounts
	closers    []func(context.Context) error
	giveUp     context.CancelFunc
	once       sync.Once
}

// New starts sending. It does not wait for a collector; data sent before there is one
// is lost. The caller must call Shutdown.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{}
	var life context.Context
	life, t.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	// The SDK has one global handler for errors.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Debug("telemetry", "err", err) }))
	otel.SetLogger(logr.New(internals{o.Logger}))
	about, err := describe(ctx, &o)
	if err != nil {
		o.Logger.Warn("OpenTelemetry resource variables partly ignored", "err", err)
	}
	if o.Signals&Traces != 0 {
		err = t.openTraces(ctx, life, &o, about)
	}
	if err == nil && o.Signals&Metrics != 0 {
		err = t.openMetrics(ctx, life, &o, about)
	}
	if err != nil {
		_ = t.Shutdown(ctx)
		return nil, err
	}
	return t, nil
}

// describe returns the attributes of the process. After an error the rest of them is
// still valid.
func describe(ctx context.Context, o *Options) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithService(), // a random instance ID, to distinguish processes
		resource.WithAttributes(semconv.ServiceName(DefaultServiceName), semconv.ServiceVersion(o.Version)),
		resource.WithFromEnv(),
	)
}

func (t *Telemetry) openTraces(ctx, life context.Context, o *Options, about *resource.Resource) error {
	exporter, err := newSpanExporter(ctx, o)
	if err != nil {
		return err
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxText
	t.events = limits.EventCountLimit
	d := t.deliver(life, "traces", o.Logger)
	processor := sdktrace.NewBatchSpanProcessor(
		&spanExporter{SpanExporter: exporter, delivery: d, spans: &t.spans},
		sdktrace.WithMaxQueueSize(MaxPending), sdktrace.WithMaxExportBatchSize(batch),
		sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(exportTimeout),
	)
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithSpanProcessor(&bounded{processor, &t.spans}),
		sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits),
	}
	if !o.Sampler {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(DefaultSample))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	t.closers = append(t.closers, provider.Shutdown)
	t.tracer = provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return nil
}

func (t *Telemetry) openMetrics(ctx, life context.Context, o *Options, about *resource.Resource) error {
	exporter, err := newMetricExporter(ctx, o)
	if err != nil {
		return err
	}
	options := []sdkmetric.PeriodicReaderOption{sdkmetric.WithTimeout(exportTimeout), sdkmetric.WithProducer(newProducer(o.Gatherer))}
	if !o.Interval {
		options = append(options, sdkmetric.WithInterval(DefaultInterval))
	}
	reader := sdkmetric.NewPeriodicReader(&metricExporter{exporter, t.deliver(life, "metrics", o.Logger)}, options...)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(about))
	t.closers = append(t.closers, provider.Shutdown)
	return nil
}

func (t *Telemetry) deliver(life context.Context, signal string, log *slog.Logger) *delivery {
	d := &delivery{signal: signal, life: life, log: log}
	t.deliveries = append(t.deliveries, d)
	return d
}

// Shutdown sends the remaining data and stops, at the latest when ctx is done. Data
// not sent by then is lost. A second call does nothing.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var errs []error
	t.once.Do(func() {
		stop := context.AfterFunc(ctx, t.giveUp)
		defer stop()
		defer t.giveUp()
		errs = make([]error, len(t.closers))
		var wg sync.WaitGroup
		for i, closer := range slices.Backward(t.closers) {
			wg.Go(func() { errs[i] = closer(ctx) })
		}
		wg.Wait()
		errs = append(errs, ctx.Err()) // an exporter that was cut off may not report it
	})
	return errors.Join(errs...)
}

// internals logs the SDK's own messages, which would otherwise go to standard error.
// Attributes are dropped: they may contain a header with a secret.
type internals struct{ log *slog.Logger }

// Init implements logr.LogSink.
func (internals) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink, for warnings only.
func (internals) Enabled(level int) bool { return level <= 1 }

// Info implements logr.LogSink.
func (i internals) Info(_ int, message string, _ ...any) {
	i.log.Warn("OpenTelemetry", "message", message)
}

// Error implements logr.LogSink.
func (i internals) Error(_ error, message string, _ ...any) {
	i.log.Warn("OpenTelemetry setting ignored", "message", message)
}

// WithValues implements logr.LogSink.
func (i internals) WithValues(...any) logr.LogSink { return i }

// WithName implements logr.LogSink.
func (i internals) WithName(string) logr.LogSink { return i }
