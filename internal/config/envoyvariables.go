package config

import (
	"strconv"
	"strings"
)

// effect is what comes of a variable of envoyproxy/ratelimit.
type effect uint8

const (
	// mapped: it is one of our settings, or a part of one.
	mapped effect = iota
	// needless: what it is about does not exist here, or is always so. Who sets
	// it is told so.
	needless
	// refused: leaving it out would change what the operator wants.
	refused
)

// envoyVariable is a variable of envoyproxy/ratelimit.
type envoyVariable struct {
	name   string
	effect effect
	// key is the setting of a variable that is mapped alone; those without are
	// put together by their group.
	key      string
	harmless string // harmless, of one that is refused, is the value that changes nothing
	hint     string // says what to do instead, or why it changes nothing
}

// isHarmless reports whether a value changes nothing. Switches have all the words
// that the original reads as false.
func (v *envoyVariable) isHarmless(value string) bool {
	if yes, err := strconv.ParseBool(value); v.harmless == "false" && err == nil {
		return !yes
	}
	return strings.EqualFold(value, v.harmless)
}

// envoyVariables are all that it has. docs/envoy.md has them too.
func envoyVariables() []envoyVariable {
	var list []envoyVariable
	for _, name := range [...]string{
		"HOST", "PORT", "GRPC_HOST", "GRPC_PORT", "GRPC_UDS", "DEBUG_HOST", "DEBUG_PORT", "LOG_LEVEL", "LOG_FORMAT",
		"GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN",
		"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT", "CONFIG_TYPE", "CONFIG_GRPC_XDS_NODE_ID",
		"REDIS_URL", "REDIS_TYPE", "REDIS_AUTH", "REDIS_SENTINEL_AUTH", "REDIS_TIMEOUT", "CACHE_KEY_PREFIX",
		"REDIS_TLS", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT",
	} {
		list = append(list, envoyVariable{name: name})
	}
	for _, alone := range [...][2]string{
		{"GRPC_MAX_CONNECTION_AGE", "grpc.max_connection_age"},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "grpc.max_connection_age_grace"},
		{"LIMIT_RESPONSE_HEADERS_ENABLED", "envoy.legacy_headers"},
		{"LIMIT_LIMIT_HEADER", "envoy.limit_header"},
		{"LIMIT_REMAINING_HEADER", "envoy.remaining_header"},
		{"LIMIT_RESET_HEADER", "envoy.reset_header"},
		{"RESPONSE_DYNAMIC_METADATA", "envoy.dynamic_metadata"},
		{"SHADOW_MODE", "envoy.shadow_mode"},
		{"MERGE_DOMAIN_CONFIG", "merge_domains"},
		{"RUNTIME_IGNOREDOTFILES", "ignore_dot_files"},
		{"CONFIG_GRPC_XDS_SERVER_URL", "xds.address"},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "xds.tls"},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "xds.tls_ca"},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "xds.tls_cert"},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "xds.tls_key"},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.tls_server_name"},
	} {
		list = append(list, envoyVariable{name: alone[0], key: alone[1]})
	}
	return append(append(list, refusedVariables()...), needlessVariables()...)
}

// refusedVariables end the start unless they have their harmless value.
func refusedVariables() []envoyVariable {
	list := []envoyVariable{
		{
			name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", harmless: "false",
			hint: "set store.redis.tls_server_name to the name in the certificate",
		},
		{name: "REDIS_SOCKET_TYPE", harmless: "tcp", hint: "Redis has to be reached by TCP"},
		{name: "BACKEND_TYPE", harmless: "redis", hint: "counts are kept in memory or in Redis"},
		{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", hint: "unset it; put what adds them before the control plane"},
		{name: "QUOTA_MODE", harmless: "false", hint: "write quota_mode: true into the rules"},
		{name: "REDIS_PERSECOND", harmless: "false", hint: "one Redis has all counts"},
		{name: "USE_STATSD", harmless: "false", hint: "unset it; there is no statsd, but /metrics"},
		{name: "USE_DOG_STATSD", harmless: "false", hint: "unset it; there is no statsd, but /metrics"},
	}
	for i := range list {
		list[i].effect = refused
	}
	return list
}

// needlessVariables may be set and change nothing: they tune what is not here,
// or ask for what is always so.
func needlessVariables() []envoyVariable {
	var list []envoyVariable
	for _, group := range [...]struct{ why, names string }{
		{"the process waits for rules of a control plane, and does not start with wrong files", "FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"},
		{"by default what is refused is not counted; under compat: envoy it is", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"},
		{"see store.redis.deny_cache", "LOCAL_CACHE_SIZE_IN_BYTES"},
		{"headgate_near_limit_total counts from 80%", "NEAR_LIMIT_RATIO"},
		{"counts end with their window", "EXPIRATION_JITTER_MAX_SECONDS"},
		{
			"requests share connections and are pipelined as they come",
			"REDIS_POOL_SIZE REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM",
		},
		{"/readyz tells how the store is", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"},
		{
			"one Redis has all counts",
			`REDIS_PERSECOND_URL REDIS_PERSECOND_TYPE REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_AUTH REDIS_PERSECOND_SENTINEL_AUTH
			REDIS_PERSECOND_TLS REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
			REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT`,
		},
		{
			"there is no memcached",
			`MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_MAX_IDLE_CONNS MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT
			MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION`,
		},
		{"there is no statsd", "STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL EXTRA_TAGS USE_DOG_STATSD_MOGRIFIERS"},
		{
			"/metrics of the admin door is always there, in the form of Prometheus",
			"DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML",
		},
		{
			"traces are sent where OTEL_EXPORTER_OTLP_ENDPOINT or telemetry.otlp.endpoint says",
			`TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL
			TRACING_SAMPLING_RATE`,
		},
		{"this process has no metadata of its own", "CONFIG_GRPC_XDS_NODE_METADATA"},
		{
			"a control plane is asked again after 1 s to 30 s, longer each time, with jitter",
			`CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL
			XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER`,
		},
		{"what a control plane sends may have 32 MiB", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"},
	} {
		for name := range strings.FieldsSeq(group.names) {
			list = append(list, envoyVariable{name: name, effect: needless, hint: group.why})
		}
	}
	return list
}
