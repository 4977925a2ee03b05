package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EnvoyEnvironment is the variable that makes Load read those of
// envoyproxy/ratelimit too, so that its manifests keep working. HEADGATE_… wins over
// them, and they win over the file. docs/connect/envoy.md lists them.
const EnvoyEnvironment = "HEADGATE_ENVOY_ENV"

// Ignored is a variable that is set but has no effect.
type Ignored struct{ Variable, Why string }

// fromEnvoy translates the variables of envoyproxy/ratelimit to settings. Its errs
// are about those without a counterpart.
func fromEnvoy(environment func(string) (string, bool)) *envoyEnvironment {
	e := &envoyEnvironment{lookup: environment, values: map[string]string{}}
	for _, v := range envoyVariables() {
		value := e.get(v.name)
		switch {
		case value == "":
		case v.effect == needless:
			e.ignored = append(e.ignored, Ignored{v.name, v.hint})
		case v.effect == refused && !v.isHarmless(value):
			e.refuse(v.name, fmt.Sprintf("%q is not supported", value), v.hint)
		case v.effect == mapped && v.key != "":
			e.values[v.key] = value
		}
	}
	e.doors()
	e.tls()
	e.rest()
	if e.get("REDIS_URL") != "" {
		e.redis()
	}
	return e
}

type envoyEnvironment struct {
	lookup  func(string) (string, bool)
	values  map[string]string
	ignored []Ignored
	errs    Errors

	siblings bool // reads files next to the folder of rules too
}

func (e *envoyEnvironment) get(name string) string {
	value, _ := e.lookup(name)
	return strings.TrimSpace(value)
}

// or returns a variable's value, or otherwise if it is not set.
func (e *envoyEnvironment) or(name, otherwise string) string {
	return cmp.Or(e.get(name), otherwise)
}

func (e *envoyEnvironment) refuse(name, message, hint string) {
	e.errs.addAt(name, message, hint)
}

// boolean returns whether a variable is true, and reports invalid values.
func (e *envoyEnvironment) boolean(name string) bool {
	value := e.get(name)
	if value == "" {
		return false
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		e.refuse(name, fmt.Sprintf("%q is neither true nor false", value), "")
	}
	return yes
}

// doors sets the addresses. The defaults are those of envoyproxy/ratelimit, which
// listens on all interfaces, except that the admin door stays on loopback: it can do
// more than the original's debug port.
func (e *envoyEnvironment) doors() {
	e.values["listen.api"] = net.JoinHostPort(e.or("HOST", "0.0.0.0"), e.or("PORT", "8080"))
	e.values["listen.grpc"] = net.JoinHostPort(e.or("GRPC_HOST", "0.0.0.0"), e.or("GRPC_PORT", "8081"))
	e.values["listen.admin"] = net.JoinHostPort(e.or("DEBUG_HOST", "127.0.0.1"), e.or("DEBUG_PORT", "6070"))
	if socket := e.get("GRPC_UDS"); socket != "" {
		e.values["listen.grpc"] = UnixPrefix + socket
	}
}

// tls sets the certificate files of the gRPC door.
func (e *envoyEnvironment) tls() {
	if !e.boolean("GRPC_SERVER_USE_TLS") {
		return
	}
	for name, key := range map[string]string{
		"GRPC_SERVER_TLS_CERT": "grpc.tls.cert", "GRPC_SERVER_TLS_KEY": "grpc.tls.key",
		"GRPC_CLIENT_TLS_CACERT": "grpc.tls.client_ca", "GRPC_CLIENT_TLS_SAN": "grpc.tls.client_names",
	} {
		e.optional(key, e.get(name))
	}
	if e.values["grpc.tls.cert"] == "" || e.values["grpc.tls.key"] == "" {
		e.refuse("GRPC_SERVER_USE_TLS", "no certificate is set", "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
}

// rest sets the source of rules and the log.
func (e *envoyEnvironment) rest() {
	xds := false
	switch kind := e.get("CONFIG_TYPE"); kind {
	case "", "FILE":
	case "GRPC_XDS_SOTW":
		xds = true
		e.values["rules_from"] = string(FromXDS)
		e.values["xds.node_id"] = e.or("CONFIG_GRPC_XDS_NODE_ID", "default")
	default:
		e.refuse("CONFIG_TYPE", fmt.Sprintf("%q is not one of FILE, GRPC_XDS_SOTW", kind), "")
	}
	if root, sub := e.get("RUNTIME_ROOT"), e.get("RUNTIME_SUBDIRECTORY"); !xds && (root != "" || sub != "") {
		root = e.or("RUNTIME_ROOT", "/srv/runtime_data/current")
		e.values["rules"] = path.Join(root, sub, e.or("RUNTIME_APPDIRECTORY", "config"))
		if e.get("RUNTIME_WATCH_ROOT") == "" || e.boolean("RUNTIME_WATCH_ROOT") {
			e.siblings = true
		}
	}
	level := strings.ToLower(e.get("LOG_LEVEL"))
	e.optional("log.level", cmp.Or(map[string]string{"trace": "debug", "warning": "warn", "fatal": "error", "panic": "error"}[level], level))
	switch format := strings.ToLower(e.get("LOG_FORMAT")); format {
	case "":
	case "json":
		e.values["log.format"] = format
	default: // the original treats any other word as text
		e.values["log.format"] = "text"
	}
	for name, key := range map[string]string{
		"GRPC_MAX_CONNECTION_AGE": "grpc.max_connection_age", "GRPC_MAX_CONNECTION_AGE_GRACE": "grpc.max_connection_age_grace",
	} {
		if age, err := time.ParseDuration(e.get(name)); err == nil && age == 0 {
			e.values[key] = forever
		}
	}
}

// forever stands for an age of 0, which grpc-go treats as no limit.
const forever = "87600h"

// redis sets the Redis store. Without REDIS_URL counts are in memory.
func (e *envoyEnvironment) redis() {
	mode := strings.ToLower(e.or("REDIS_TYPE", "single"))
	scheme, address, isURL := strings.Cut(e.get("REDIS_URL"), "://")
	if !isURL {
		scheme, address = "redis", e.get("REDIS_URL")
	}
	kind, arrangement, _ := strings.Cut(scheme, "+")
	address = strings.ReplaceAll(address, ","+scheme+"://", ",") // each may have its scheme
	switch {
	case strings.HasPrefix(address, "/"):
		e.refuse("REDIS_URL", "unix sockets are not supported", "use the TCP address of Redis")
		return
	case mode != "single" && mode != "sentinel" && mode != "cluster":
		e.refuse("REDIS_TYPE", fmt.Sprintf("%q is not one of SINGLE, SENTINEL, CLUSTER", mode), "")
		return
	case arrangement != "" || mode == "single":
	case mode == "cluster":
		arrangement = mode
	case isURL:
		e.refuse("REDIS_URL", "it does not name the primary", "write NAME,host:port,host:port, or redis+sentinel://host:port,host:port/NAME")
		return
	default:
		name, sentinels, _ := strings.Cut(address, ",")
		arrangement, address = mode, sentinels+"/"+url.PathEscape(name)
	}
	if e.boolean("REDIS_TLS") && (kind == "redis" || kind == "valkey") {
		kind += "s"
	}
	e.values["store.redis.url"] = strings.TrimSuffix(kind+"+"+arrangement, "+") + "://" + address
	e.auth("REDIS_AUTH", "store.redis.")
	if mode == "sentinel" {
		e.auth("REDIS_SENTINEL_AUTH", "store.redis.sentinel_")
	}
	timeout := e.get("REDIS_TIMEOUT")
	if none, err := time.ParseDuration(timeout); err == nil && none == 0 {
		e.ignored = append(e.ignored, Ignored{"REDIS_TIMEOUT", "0 would disable the timeout; store.redis.timeout keeps its default"})
		timeout = ""
	}
	e.optional("store.redis.timeout", timeout)
	e.optional("store.redis.prefix", e.get("CACHE_KEY_PREFIX"))
	if e.boolean("REDIS_TLS") {
		e.optional("store.redis.tls_cert", e.get("REDIS_TLS_CLIENT_CERT"))
		e.optional("store.redis.tls_key", e.get("REDIS_TLS_CLIENT_KEY"))
		e.optional("store.redis.tls_ca", e.get("REDIS_TLS_CACERT"))
	}
}

// auth sets user and password from USER:PASSWORD or PASSWORD.
func (e *envoyEnvironment) auth(name, prefix string) {
	auth := e.get(name)
	user, password, named := strings.Cut(auth, ":")
	if !named {
		user, password = "", auth
	}
	e.optional(prefix+"username", user)
	e.optional(prefix+"password", password)
}

// optional sets a setting unless value is empty.
func (e *envoyEnvironment) optional(key, value string) {
	if value != "" {
		e.values[key] = value
	}
}

// applyEnvoy applies the variables of envoyproxy/ratelimit, if enabled.
func (c *Config) applyEnvoy(from Sources, environment func(string) (string, bool)) (errs Errors) {
	asked, err := asksForEnvoy(from, environment)
	if err != nil {
		return Errors{err}
	}
	if !asked {
		return nil
	}
	e := fromEnvoy(environment)
	values, errs := e.values, e.errs
	c.Ignored = e.ignored
	for _, s := range c.settings() {
		value, ok := values[s.key]
		if !ok {
			continue
		}
		delete(values, s.key)
		errs.add(s.apply(c, sourceOf(s.key), value))
	}
	c.RuleOptions.Siblings = e.siblings
	for _, key := range slices.Sorted(maps.Keys(values)) { // without a setting
		errs.addAt(sourceOf(key), "this version of headgate has no setting "+key, "")
	}
	return errs
}

// asksForEnvoy reports whether to read the variables of envoyproxy/ratelimit.
func asksForEnvoy(from Sources, environment func(string) (string, bool)) (bool, error) {
	word, _ := environment(EnvoyEnvironment)
	if from.EnvoyEnvironment || word == "" {
		return from.EnvoyEnvironment, nil
	}
	yes, err := boolean(word)
	if err != nil {
		return false, sourceError(EnvoyEnvironment, err)
	}
	return yes, nil
}

// sourceOf returns the variables that a setting comes from.
func sourceOf(key string) string {
	for _, v := range envoyVariables() {
		if v.key == key {
			return v.name
		}
	}
	composed := map[string]string{
		"listen.api": "HOST, PORT", "listen.grpc": "GRPC_HOST, GRPC_PORT, GRPC_UDS", "listen.admin": "DEBUG_HOST, DEBUG_PORT",
		"rules": "RUNTIME_ROOT", "rules_from": "CONFIG_TYPE", "xds.node_id": "CONFIG_GRPC_XDS_NODE_ID",
		"log.level": "LOG_LEVEL", "log.format": "LOG_FORMAT", "compat": "",
	}
	if names, ok := composed[key]; ok {
		return names
	}
	if strings.HasPrefix(key, "store.redis.") {
		return "REDIS_URL and related variables"
	}
	return "GRPC_SERVER_USE_TLS"
}

// effect is how a variable of envoyproxy/ratelimit is handled.
type effect uint8

const (
	mapped   effect = iota // it is one of our settings, or part of one
	needless               // it has no effect here, which is logged
	refused                // an error: without it the server would behave differently
)

// envoyVariable is a variable of envoyproxy/ratelimit.
type envoyVariable struct {
	name   string
	effect effect
	// key is the setting of a mapped variable; empty if several variables make one
	// setting.
	key      string
	harmless string // the value of a refused variable that has no effect
	hint     string // what to do instead, or why it has no effect
}

// isHarmless reports whether a value has no effect. For switches that is every word
// that the original reads as false.
func (v *envoyVariable) isHarmless(value string) bool {
	if yes, err := strconv.ParseBool(value); v.harmless == "false" && err == nil {
		return !yes
	}
	return strings.EqualFold(value, v.harmless)
}

// envoyVariables returns all its variables, as docs/connect/envoy.md lists them.
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

// refusedVariables are errors unless they have their harmless value.
func refusedVariables() []envoyVariable {
	list := []envoyVariable{
		{
			name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", harmless: "false",
			hint: "set store.redis.tls_server_name to the name in the certificate",
		},
		{name: "REDIS_SOCKET_TYPE", harmless: "tcp", hint: "only TCP connections to Redis are supported"},
		{name: "BACKEND_TYPE", harmless: "redis", hint: "only memory and Redis are supported"},
		{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", hint: "unset it, and add the headers in a proxy in front of the control plane"},
		{name: "QUOTA_MODE", harmless: "false", hint: "set quota_mode: true in the rules"},
		{name: "REDIS_PERSECOND", harmless: "false", hint: "unset it; one Redis keeps all counts"},
		{name: "USE_STATSD", harmless: "false", hint: "unset it; statsd is not supported, use /metrics"},
		{name: "USE_DOG_STATSD", harmless: "false", hint: "unset it; statsd is not supported, use /metrics"},
	}
	for i := range list {
		list[i].effect = refused
	}
	return list
}

// needlessVariables have no effect: they tune what does not exist here, or enable
// what is always on.
func needlessVariables() []envoyVariable {
	var list []envoyVariable
	for _, group := range [...]struct{ why, names string }{
		{"the server always waits for rules from a control plane, and never starts with invalid files", "FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"},
		{"a refused request counts in every limit with compat: envoy, and in none without it", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"},
		{"there is no local cache with compat: envoy, which counts refusals in the store; otherwise see store.redis.deny_cache", "LOCAL_CACHE_SIZE_IN_BYTES"},
		{"headgate_near_limit_total always counts from 80% of the limit", "NEAR_LIMIT_RATIO"},
		{"counts always expire with their window", "EXPIRATION_JITTER_MAX_SECONDS"},
		{
			"requests share connections and are pipelined automatically",
			"REDIS_POOL_SIZE REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM",
		},
		{"/readyz reports the state of the store", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"},
		{
			"one Redis keeps all counts",
			`REDIS_PERSECOND_URL REDIS_PERSECOND_TYPE REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_AUTH REDIS_PERSECOND_SENTINEL_AUTH
			REDIS_PERSECOND_TLS REDIS_PERSECOND_TIMEOUT REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
			REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT`,
		},
		{
			"memcached is not supported",
			`MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_MAX_IDLE_CONNS MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT
			MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION`,
		},
		{"statsd is not supported", "STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL EXTRA_TAGS USE_DOG_STATSD_MOGRIFIERS"},
		{
			"the admin door always serves Prometheus metrics at /metrics",
			"DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML",
		},
		{
			"traces are sent to OTEL_EXPORTER_OTLP_ENDPOINT",
			`TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL
			TRACING_SAMPLING_RATE`,
		},
		{"node metadata is not supported", "CONFIG_GRPC_XDS_NODE_METADATA"},
		{
			"reconnects to the control plane back off from 1s to 30s, with jitter",
			`CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL
			XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER`,
		},
		{"messages from the control plane are limited to 32 MiB", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"},
	} {
		for name := range strings.FieldsSeq(group.names) {
			list = append(list, envoyVariable{name: name, effect: needless, hint: group.why})
		}
	}
	return list
}
