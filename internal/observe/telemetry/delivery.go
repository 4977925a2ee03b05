package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/observe/metrics"
)

// delivery counts messages of a signal, and logs once when they fail and once when
// they work again.
type delivery struct {
	signal       string
	life         context.Context // cancels exports when the process gives up
	log          *slog.Logger
	failing      atomic.Bool
	sent, failed atomic.Uint64
}

// record records the result of a message.
func (d *delivery) record(err error) {
	if err == nil {
		d.sent.Add(1)
		if d.failing.CompareAndSwap(true, false) {
			d.log.Info("telemetry export recovered", "signal", d.signal)
		}
		return
	}
	d.failed.Add(1)
	if d.failing.CompareAndSwap(false, true) {
		d.log.Warn("telemetry export failed", "signal", d.signal, "err", clip.Text(err.Error(), maxWords))
	}
}

// maxWords is how much of a collector's error is logged, in bytes.
const maxWords = 512

// within returns ctx, also cancelled when the process gives up.
func (d *delivery) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// spanCounts counts spans by result.
type spanCounts struct {
	pending    atomic.Int64
	sent, lost atomic.Uint64
}

// bounded drops spans beyond MaxPending.
type bounded struct {
	sdktrace.SpanProcessor

	spans *spanCounts
}

// OnEnd implements sdktrace.SpanProcessor. It never blocks.
func (b *bounded) OnEnd(s sdktrace.ReadOnlySpan) {
	if b.spans.pending.Add(1) > MaxPending {
		b.spans.pending.Add(-1)
		b.spans.lost.Add(1)
		return
	}
	b.SpanProcessor.OnEnd(s)
}

// spanExporter records the results of its messages and hides them from the SDK.
type spanExporter struct {
	sdktrace.SpanExporter

	delivery *delivery
	spans    *spanCounts
}

func (e *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, end := e.delivery.within(ctx)
	defer end()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.delivery.record(err)
	e.spans.pending.Add(-int64(len(spans)))
	if err != nil {
		e.spans.lost.Add(uint64(len(spans)))
	} else {
		e.spans.sent.Add(uint64(len(spans)))
	}
	return nil
}

// metricExporter records the results of its messages and hides them from the SDK.
type metricExporter struct {
	sdkmetric.Exporter

	delivery *delivery
}

func (e *metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	ctx, end := e.delivery.within(ctx)
	defer end()
	e.delivery.record(e.Exporter.Export(ctx, m))
	return nil
}

// Collector returns the metrics of the export, or nil.
func (t *Telemetry) Collector() prometheus.Collector {
	if t == nil {
		return nil
	}
	c := new(metrics.Asked)
	messages := c.Counter("headgate_otlp_messages_total",
		"Messages to the OpenTelemetry collector, by signal and result: sent or failed.", "signal", "result")
	spans := c.Counter("headgate_otlp_spans_total",
		"Spans for the OpenTelemetry collector, by result: sent or lost.", "result")
	c.Ask(func(out chan<- prometheus.Metric) {
		for _, d := range t.deliveries {
			messages(out, float64(d.sent.Load()), d.signal, "sent")
			messages(out, float64(d.failed.Load()), d.signal, "failed")
		}
		if t.tracer != nil {
			spans(out, float64(t.spans.sent.Load()), "sent")
			spans(out, float64(t.spans.lost.Load()), "lost")
		}
	})
	return c
}
