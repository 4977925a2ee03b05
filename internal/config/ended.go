package config

import (
	"slices"
	"strings"
)

// ended are the settings that are no more, and what to use instead. They are keys,
// sections, or with a * the ends of keys. See docs/scope.md.
func ended() [][2]string {
	const (
		ofAdmin = "leave it out: operators are few, and the door has limits that suit them (docs/run/tls.md)"
		ofDoor  = "leave it out: the door has limits that suit its callers (docs/run/tls.md)"
		inURL   = "write them in store.redis.url: redis://host:6379, redis+sentinel://a,b/primary or redis+cluster://a,b (docs/run/redis.md)"
		fixed   = "leave it out: the thresholds are fixed; write others as alerts on /metrics (docs/watch/warnings.md)"
	)
	return [][2]string{
		{"api.max_streams", ofDoor},
		{"api.max_header", ofDoor},
		{"api.header_timeout", ofDoor},
		{"api.read_timeout", ofDoor},
		{"api.write_timeout", ofDoor},
		{"api.stall_timeout", ofDoor},
		{"grpc.handshake_timeout", ofDoor},
		{"grpc.max_connections_per_client", "set grpc.max_connections, half of which one client may have"},
		{"resp.max_connections_per_client", "set resp.max_connections, half of which one client may have"},
		{"admin.max_connections_per_client", "set admin.max_connections, half of which one client may have"},
		{"shared.handshake_timeout", ofDoor},
		{"proxy.h2c", "leave it out: the proxy accepts HTTP/2 without TLS (docs/connect/proxy.md)"},
		{"proxy.abandoned.max_bytes", "leave it out: it is 16MiB; proxy.abandoned.timeout: off ends such requests at once"},
		{"proxy.abandoned.max_requests", "leave it out: it is 1000; proxy.abandoned.timeout: off ends such requests at once"},
		{"store.redis.addresses", inURL},
		{"store.redis.mode", inURL},
		{"store.redis.master_name", inURL},
		{"store.redis.db", "write it at the end of store.redis.url: redis://host:6379/2 (docs/run/redis.md)"},
		{"store.redis.tls", "write rediss:// in store.redis.url (docs/run/redis.md)"},
		{"store.redis.strict_atomic", "write it in store.redis.url: redis+cluster://a,b?strict_atomic=true (docs/run/redis.md)"},
		{"store.redis.deny_cache_max_age", "leave it out: it is 250ms, and store.redis.deny_cache: 0 remembers nothing (docs/run/failure.md)"},
		{"store.redis.probe_after", "leave it out: a store is tried again after 50ms to 250ms (docs/run/failure.md)"},
		{"store.redis.probe_every", "leave it out: a store is tried again after 50ms to 250ms (docs/run/failure.md)"},
		{"regions.interval", "leave it out: it is 200ms (docs/many/regions.md)"},
		{"rules_siblings", "list the files in rules; RUNTIME_WATCH_ROOT is read as before (docs/connect/envoy.md)"},
		{"candidate.rules", "name the files as candidate: [rules-new/] (docs/try/rollout.md)"},
		{"candidate.max_keys", "leave it out: it is 1,000,000 (docs/try/rollout.md)"},
		{"inline_limits.algorithms", "leave it out: callers may ask for all (docs/rules/inline-limits.md)"},
		{"inline_limits.max_log", "leave it out: it is 1000 (docs/rules/inline-limits.md)"},
		{"inline_limits.max_id", "leave it out: it is 256 bytes (docs/rules/inline-limits.md)"},
		{"shutdown_idle", "leave it out: it is 1s (docs/run/configuration.md)"},
		{"warnings.key_refused.share", fixed},
		{"warnings.key_refused.refusals", fixed},
		{"warnings.key_refused.for", fixed},
		{"warnings.new_keys.factor", fixed},
		{"warnings.new_keys.least", fixed},
		{"warnings.again", fixed},
		{"admin.max_streams", ofAdmin},
		{"admin.max_header", ofAdmin},
		{"admin.header_timeout", ofAdmin},
		{"admin.read_timeout", ofAdmin},
		{"admin.write_timeout", ofAdmin},
		{"admin.stall_timeout", ofAdmin},
		{"admin.idle_timeout", ofAdmin},
		{"telemetry.otlp.endpoint", "set the variable OTEL_EXPORTER_OTLP_ENDPOINT (docs/watch/tracing.md)"},
		{"telemetry.otlp.protocol", "set the variable OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf (docs/watch/tracing.md)"},
		{"telemetry.otlp.headers", "set the variable OTEL_EXPORTER_OTLP_HEADERS (docs/watch/tracing.md)"},
		{"telemetry.otlp.headers_file", "set the variable OTEL_EXPORTER_OTLP_HEADERS (docs/watch/tracing.md)"},
		{"telemetry.otlp.tls.ca", "set the variable OTEL_EXPORTER_OTLP_CERTIFICATE (docs/watch/tracing.md)"},
		{"telemetry.otlp.tls.cert", "set the variable OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE (docs/watch/tracing.md)"},
		{"telemetry.otlp.tls.key", "set the variable OTEL_EXPORTER_OTLP_CLIENT_KEY (docs/watch/tracing.md)"},
		{"telemetry.otlp.tls", "leave it out: OTEL_EXPORTER_OTLP_ENDPOINT names the server (docs/watch/tracing.md)"},
		{"telemetry.otlp.signals", "set the variable OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER to none (docs/watch/tracing.md)"},
		{"telemetry.otlp.traces", "set the variables OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG (docs/watch/tracing.md)"},
		{"telemetry.otlp.metrics", "set the variable OTEL_METRIC_EXPORT_INTERVAL, in milliseconds (docs/watch/tracing.md)"},
		{"telemetry.otlp.service_name", "set the variable OTEL_SERVICE_NAME (docs/watch/tracing.md)"},
		{"telemetry.otlp.resource", "set the variable OTEL_RESOURCE_ATTRIBUTES (docs/watch/tracing.md)"},
		{"*.tls.min_version", "set tls.min_version, which is for all doors"},
		{"*.tls.client_name", "set client_names, which takes a single name too"},
		{"warnings.webhooks", "name one receiver, as warnings.webhook: https://hooks.example.com/headgate; Alertmanager tells others (docs/watch/warnings.md)"},
		{"warnings.path", "leave it out: messages are in memory; Alertmanager keeps what must not be lost (docs/watch/warnings.md)"},
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
