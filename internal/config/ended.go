package config

import (
	"slices"
	"strings"
)

// ended are the settings that are no more, and what to use instead. They are keys,
// sections, or with a * the ends of keys. See docs/scope.md.
func ended() [][2]string {
	const ofAdmin = "leave it out: operators are few, and the door has limits that suit them (docs/tls.md)"
	return [][2]string{
		{"admin.max_streams", ofAdmin},
		{"admin.max_header", ofAdmin},
		{"admin.header_timeout", ofAdmin},
		{"admin.read_timeout", ofAdmin},
		{"admin.write_timeout", ofAdmin},
		{"admin.stall_timeout", ofAdmin},
		{"admin.idle_timeout", ofAdmin},
		{"telemetry.otlp.endpoint", "set the variable OTEL_EXPORTER_OTLP_ENDPOINT (docs/tracing.md)"},
		{"telemetry.otlp.protocol", "set the variable OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf (docs/tracing.md)"},
		{"telemetry.otlp.headers", "set the variable OTEL_EXPORTER_OTLP_HEADERS (docs/tracing.md)"},
		{"telemetry.otlp.headers_file", "set the variable OTEL_EXPORTER_OTLP_HEADERS (docs/tracing.md)"},
		{"telemetry.otlp.tls.ca", "set the variable OTEL_EXPORTER_OTLP_CERTIFICATE (docs/tracing.md)"},
		{"telemetry.otlp.tls.cert", "set the variable OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE (docs/tracing.md)"},
		{"telemetry.otlp.tls.key", "set the variable OTEL_EXPORTER_OTLP_CLIENT_KEY (docs/tracing.md)"},
		{"telemetry.otlp.tls", "leave it out: OTEL_EXPORTER_OTLP_ENDPOINT names the server (docs/tracing.md)"},
		{"telemetry.otlp.signals", "set the variable OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER to none (docs/tracing.md)"},
		{"telemetry.otlp.traces", "set the variables OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG (docs/tracing.md)"},
		{"telemetry.otlp.metrics", "set the variable OTEL_METRIC_EXPORT_INTERVAL, in milliseconds (docs/tracing.md)"},
		{"telemetry.otlp.service_name", "set the variable OTEL_SERVICE_NAME (docs/tracing.md)"},
		{"telemetry.otlp.resource", "set the variable OTEL_RESOURCE_ATTRIBUTES (docs/tracing.md)"},
		{"*.tls.min_version", "set tls.min_version, which is for all doors"},
		{"*.tls.client_name", "set client_names, which takes a single name too"},
		{"warnings.webhooks", "name one receiver, as warnings.webhook: https://hooks.example.com/headgate; Alertmanager tells others (docs/warnings.md)"},
		{"warnings.path", "leave it out: messages are in memory; Alertmanager keeps what must not be lost (docs/warnings.md)"},
		{"warnings.dashboard", "leave it out: a message names the domain and the rule"},
	}
}

// insteadOf returns what to use instead of a setting that has ended; empty for others.
func insteadOf(key string) string { return instead(key, ".", func(key string) string { return key }) }

// insteadOfVariable is insteadOf for a variable.
func insteadOfVariable(name string) string {
	return instead(strings.TrimPrefix(name, ours), "_", func(key string) string { return strings.TrimPrefix(variable(key), ours) })
}

// instead finds a setting by its name, whose words are separated by a dot or an underscore.
func instead(name, separator string, named func(key string) string) string {
	for _, row := range ended() {
		tail, anywhere := strings.CutPrefix(row[0], "*")
		if key := named(row[0]); name == key || strings.HasPrefix(name, key+separator) || anywhere && strings.HasSuffix(name, named(tail)) {
			return row[1]
		}
	}
	return ""
}

// hadSettings reports whether settings that have ended were below a section.
func hadSettings(section string) bool {
	return slices.ContainsFunc(ended(), func(row [2]string) bool { return strings.HasPrefix(row[0], section+".") })
}
