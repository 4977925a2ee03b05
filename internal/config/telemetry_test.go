package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The settings of OTLP are no more; the error names the variable instead, and no secret.
func TestEndedTelemetry(t *testing.T) {
	const prefix = "set the variable "
	for _, tt := range []struct{ text, want string }{
		{"telemetri: {}", `:1:1: unknown key "telemetri"`},
		{"telemetry: {otpl_: {}}", `:1:13: unknown key "otpl_" in telemetry`},
		{"telemetry: {otlp: {endpont: x}}", `:1:20: unknown key "endpont" in telemetry.otlp`},
		{"telemetry: {otlp: {endpoint: 'http://u:hush@h'}}", ":1:20: telemetry.otlp.endpoint is not a setting any more; " + prefix + "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"telemetry: {otlp: {protocol: grpc}}", prefix + "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"telemetry: {otlp: {headers: {a: hush}}}", prefix + "OTEL_EXPORTER_OTLP_HEADERS"},
		{"telemetry: {otlp: {headers_file: hush}}", prefix + "OTEL_EXPORTER_OTLP_HEADERS"},
		{"telemetry: {otlp: {tls: {ca: x}}}", ":1:26: telemetry.otlp.tls.ca is not a setting any more; " + prefix + "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{"telemetry: {otlp: {tls: {cert: x}}}", prefix + "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
		{"telemetry: {otlp: {tls: {key: x}}}", prefix + "OTEL_EXPORTER_OTLP_CLIENT_KEY"},
		{"telemetry: {otlp: {tls: {server_name: x}}}", "telemetry.otlp.tls.server_name is not a setting any more; leave it out"},
		{"telemetry: {otlp: {tls: {min_version: x}}}", "telemetry.otlp.tls.min_version is not a setting any more; leave it out"},
		{"telemetry: {otlp: {signals: [traces]}}", prefix + "OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER"},
		{"telemetry: {otlp: {traces: {sample: 0.1}}}", prefix[:len(prefix)-1] + "s OTEL_TRACES_SAMPLER"},
		{"telemetry: {otlp: {metrics: {interval: 15s}}}", prefix + "OTEL_METRIC_EXPORT_INTERVAL"},
		{"telemetry: {otlp: {service_name: x}}", prefix + "OTEL_SERVICE_NAME"},
		{"telemetry: {otlp: {resource: {a: b}}}", prefix + "OTEL_RESOURCE_ATTRIBUTES"},
		{"admin: {read_timeout: 5s}", ":1:9: admin.read_timeout is not a setting any more; leave it out"},
	} {
		_, err := load(t, tt.text+"\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
	_, err := config.Load(config.Sources{
		Doors: app.Sections(), NoFile: true, Environment: none, Environ: func() []string { return []string{"HEADGATE_TELEMETRY_OTLP_HEADERS=a=hush"} },
	})
	source, ok := errors.AsType[*config.SourceError](err)
	if !ok || !strings.Contains(source.Hint, "OTEL_EXPORTER_OTLP_HEADERS") || strings.Contains(err.Error(), "hush") {
		t.Errorf("the variable: %v", err)
	}
}

// OTLP is enabled by OpenTelemetry's variables.
func TestTelemetry(t *testing.T) {
	at := func(o config.Telemetry) string {
		if !o.Enabled() {
			return "off"
		}
		return fmt.Sprintf("traces=%t metrics=%t grpc=%t sampler=%t interval=%t", o.Traces, o.Metrics, o.GRPC, o.Sampler, o.Interval)
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	for _, tt := range []struct{ variables, want string }{
		{"", "off"},
		{"OTEL_TRACES_SAMPLER=always_on", "off"},
		{prefix + "ENDPOINT=http://x", "traces=true metrics=true grpc=false sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x " + prefix + "PROTOCOL=grpc", "traces=true metrics=true grpc=true sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x " + prefix + "PROTOCOL=http/protobuf", "traces=true metrics=true grpc=false sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x OTEL_TRACES_SAMPLER=always_on OTEL_METRIC_EXPORT_INTERVAL=100", "traces=true metrics=true grpc=false sampler=true interval=true"},
		{prefix + "TRACES_ENDPOINT=http://x", "traces=true metrics=false grpc=false sampler=false interval=false"},
		{prefix + "METRICS_ENDPOINT=http://x", "traces=false metrics=true grpc=false sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x OTEL_METRICS_EXPORTER=none", "traces=true metrics=false grpc=false sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x OTEL_TRACES_EXPORTER=none", "traces=false metrics=true grpc=false sampler=false interval=false"},
		{prefix + "ENDPOINT=http://x OTEL_SDK_DISABLED=true", "off"},
		{prefix + "ENDPOINT=http://u:hush%zz@x", "OTEL_EXPORTER_OTLP_ENDPOINT: the value is not a URL"},
		{prefix + "TRACES_ENDPOINT=http://u:hush%zz@x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: the value is not a URL"},
		{prefix + "ENDPOINT=http://x " + prefix + "HEADERS=a=b,hush", "OTEL_EXPORTER_OTLP_HEADERS: an entry is not name=value"},
		{prefix + "ENDPOINT=http://x " + prefix + "HEADERS=a=hush%zz", "OTEL_EXPORTER_OTLP_HEADERS: an entry is not name=value"},
		{prefix + "ENDPOINT=http://x " + prefix + "HEADERS=a=b%20c,d=e,", "traces=true metrics=true"},
		{prefix + "ENDPOINT=http://x " + prefix + "PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not one of grpc, http/protobuf`},
		{prefix + "ENDPOINT=http://x " + prefix + "CERTIFICATE=nowhere.pem", "OTEL_EXPORTER_OTLP_CERTIFICATE: stat nowhere.pem: no such file"},
		{prefix + "ENDPOINT=http://x " + prefix + "METRICS_CLIENT_KEY=nowhere.pem", "OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY: stat nowhere.pem: no such file"},
	} {
		variables := map[string]string{}
		for one := range strings.FieldsSeq(tt.variables) {
			name, value, _ := strings.Cut(one, "=")
			variables[name] = value
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(variables)})
		got := fmt.Sprint(err)
		if err == nil {
			got = at(c.Telemetry)
		}
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "hush") {
			t.Errorf("%s\ngot  %s\nwant %s", tt.variables, got, tt.want)
		}
	}
}
