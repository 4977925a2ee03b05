package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/observe/telemetry"
	"github.com/headgate/headgate/internal/transport/certs"
)

// flushFor limits the time for sending the remaining traces and metrics on shutdown.
const flushFor = 3 * time.Second

// telemetryOptions returns the options of OTLP export, or nil if it is off. The error
// is a *config.SourceError.
func (a *App) telemetryOptions() (*telemetry.Options, error) {
	c := &a.options.Config.Telemetry.OTLP
	if !c.Enabled() {
		return nil, nil
	}
	o := &telemetry.Options{
		Endpoint: c.Endpoint, Headers: map[string]string{}, Sample: c.Sample, SampleCallers: c.Callers == config.SampleCallers,
		Interval: c.Interval, Gatherer: prometheus.GathererFunc(a.gather), ServiceName: c.ServiceName, Version: versionOf(a.options.Version),
		Resource: c.Resource, Logger: a.log,
	}
	if c.Protocol == config.OTLPHTTP {
		o.Protocol = telemetry.HTTP
	}
	if !c.NoTraces {
		o.Signals |= telemetry.Traces
	}
	if !c.NoMetrics {
		o.Signals |= telemetry.Metrics
	}
	for name, value := range c.Headers {
		o.Headers[name] = string(value)
	}
	if c.TLS == (certs.ClientFiles{}) {
		return o, nil
	}
	var err error
	if o.TLS, err = c.TLS.Load(); err != nil {
		return nil, door.CertificateError("telemetry.otlp.tls", err)
	}
	return o, nil
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
		return &config.SourceError{Source: "telemetry.otlp", Message: err.Error()}
	}
	a.registry.MustRegister(a.telemetry.Collector())
	a.life.OnEnd(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.telemetry.Shutdown(ctx) // after a start that failed
	})
	to := "the endpoint in the OTEL_* variables"
	if a.otlp.Endpoint != nil {
		to = a.otlp.Endpoint.String()
	}
	a.log.Info("telemetry enabled", "to", to, "traces", a.otlp.Signals&telemetry.Traces != 0, "metrics", a.otlp.Signals&telemetry.Metrics != 0)
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
