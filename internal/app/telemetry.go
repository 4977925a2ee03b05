package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/telemetry"
)

// flushFor limits the time for sending the remaining traces and metrics on shutdown.
const flushFor = 3 * time.Second

// telemetryOptions returns the options of OTLP export, or nil if it is off.
func (a *App) telemetryOptions() *telemetry.Options {
	c := &a.options.Config.Telemetry
	if !c.Enabled() {
		return nil
	}
	o := &telemetry.Options{
		Protocol: telemetry.HTTP, Sampler: c.Sampler, Interval: c.Interval,
		Gatherer: prometheus.GathererFunc(a.gather), Version: versionOf(a.options.Version), Logger: a.log,
	}
	if c.GRPC {
		o.Protocol = telemetry.GRPC
	}
	if c.Traces {
		o.Signals |= telemetry.Traces
	}
	if c.Metrics {
		o.Signals |= telemetry.Metrics
	}
	return o
}

// gather returns the metrics, or none until Start has finished, which may take
// longer than an interval.
func (a *App) gather() ([]*dto.MetricFamily, error) {
	if !a.opened.Load() {
		return nil, nil
	}
	return a.registry.Gather()
}

// openTelemetry starts exporting. It does not wait for a collector.
func (a *App) openTelemetry(ctx context.Context) error {
	if a.otlp == nil {
		return nil
	}
	var err error
	if a.telemetry, err = telemetry.New(ctx, *a.otlp); err != nil {
		return &config.SourceError{Source: "OTEL_EXPORTER_OTLP_ENDPOINT", Message: err.Error()}
	}
	a.registry.MustRegister(a.telemetry.Collector())
	a.life.OnEnd(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.telemetry.Shutdown(ctx) // after a start that failed
	})
	a.log.Info("telemetry enabled", "traces", a.otlp.Signals&telemetry.Traces != 0, "metrics", a.otlp.Signals&telemetry.Metrics != 0)
	return nil
}

// flushTelemetry sends the remaining traces and metrics.
func (a *App) flushTelemetry(ctx context.Context) {
	if a.telemetry == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	if err := a.telemetry.Shutdown(ctx); err != nil {
		a.log.Warn("some traces and metrics were not sent", "err", err)
	}
}
