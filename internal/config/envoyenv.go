package config

import (
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
)

// EnvoyEnvironment is the variable that makes Load understand those of
// envoyproxy/ratelimit too, so that its manifests go on working. They are
// weaker than HEADGATE_… and stronger than the file. docs/envoy.md has them all.
const EnvoyEnvironment = "HEADGATE_ENVOY_ENV"

// effect is what comes of a variable of envoyproxy/ratelimit.
type effect uint8

const (
	// mapped: it is one of our settings, or a part of one.
	mapped effect = iota
	// needless: what it is about does not exist here, or is always so.
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
	key string
	// harmless, of one that is refused, is the value that changes nothing.
	harmless string
	// hint says what to do instead.
	hint string
}

// envoyVariables are all that it has, in the order of docs/envoy.md.
func envoyVariables() []envoyVariable {
	list := []envoyVariable{
		{name: "HOST"},
		{name: "PORT"},
		{name: "GRPC_HOST"},
		{name: "GRPC_PORT"},
		{name: "GRPC_UDS"},
		{name: "GRPC_MAX_CONNECTION_AGE", key: "grpc.max_connection_age"},
		{name: "GRPC_MAX_CONNECTION_AGE_GRACE", key: "grpc.max_connection_age_grace"},
		{name: "GRPC_SERVER_USE_TLS"},
		{name: "GRPC_SERVER_TLS_CERT"},
		{name: "GRPC_SERVER_TLS_KEY"},
		{name: "GRPC_CLIENT_TLS_CACERT"},
		{name: "GRPC_CLIENT_TLS_SAN"},
		{name: "LOG_LEVEL"},
		{name: "LOG_FORMAT", key: "log.format"},
		{name: "RUNTIME_ROOT"},
		{name: "RUNTIME_SUBDIRECTORY"},
		{name: "RUNTIME_APPDIRECTORY"},
		{name: "LIMIT_RESPONSE_HEADERS_ENABLED", key: "envoy.legacy_headers"},
		{name: "LIMIT_LIMIT_HEADER", key: "envoy.limit_header"},
		{name: "LIMIT_REMAINING_HEADER", key: "envoy.remaining_header"},
		{name: "LIMIT_RESET_HEADER", key: "envoy.reset_header"},
		{name: "RESPONSE_DYNAMIC_METADATA", key: "envoy.dynamic_metadata"},
		{name: "SHADOW_MODE", key: "envoy.shadow_mode"},
		{name: "DEBUG_HOST"},
		{name: "DEBUG_PORT"},
		{name: "REDIS_URL"},
		{name: "REDIS_TYPE"},
		{name: "REDIS_AUTH"},
		{name: "REDIS_TIMEOUT"},
		{name: "CACHE_KEY_PREFIX"},
		{name: "REDIS_TLS"},
		{name: "REDIS_TLS_CLIENT_CERT"},
		{name: "REDIS_TLS_CLIENT_KEY"},
		{name: "REDIS_TLS_CACERT"},
		{
			name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", effect: refused, harmless: "false",
			hint: "set store.redis.tls_server_name to the name in the certificate",
		},
		{name: "REDIS_SOCKET_TYPE", effect: refused, harmless: "tcp", hint: "Redis has to be reached by TCP"},
		{name: "BACKEND_TYPE", effect: refused, harmless: "redis", hint: "counts are kept in memory or in Redis"},
		{name: "CONFIG_TYPE"},
		{name: "CONFIG_GRPC_XDS_SERVER_URL", key: "xds.address"},
		{name: "CONFIG_GRPC_XDS_NODE_ID", key: "xds.node_id"},
		{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", key: "xds.tls"},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", key: "xds.tls_ca"},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", key: "xds.tls_cert"},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key: "xds.tls_key"},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", key: "xds.tls_server_name"},
		{name: "MERGE_DOMAIN_CONFIG", key: "merge_domains"},
		{name: "QUOTA_MODE", effect: refused, harmless: "false", hint: "write quota_mode: true into the rules"},
		{name: "REDIS_PERSECOND", effect: refused, harmless: "false", hint: "one Redis has all counts"},
		{name: "USE_STATSD", effect: refused, harmless: "false", hint: "unset it; there is no statsd"},
		{name: "USE_DOG_STATSD", effect: refused, harmless: "false", hint: "unset it; there is no statsd"},
		{name: "TRACING_ENABLED", effect: refused, harmless: "false", hint: "unset it; there are no traces"},
	}
	for name := range strings.FieldsSeq(needlessVariables) {
		list = append(list, envoyVariable{name: name, effect: needless})
	}
	return list
}

// needlessVariables may be set and change nothing: they tune what is not here,
// or ask for what is always so.
const needlessVariables = `CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL RUNTIME_WATCH_ROOT RUNTIME_IGNOREDOTFILES
FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO EXPIRATION_JITTER_MAX_SECONDS
REDIS_POOL_SIZE REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM
REDIS_HEALTH_CHECK_ACTIVE_CONNECTION DISABLE_STATS STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL EXTRA_TAGS
USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML`

// fromEnvoy translates the variables of envoyproxy/ratelimit to settings. The
// errors are about those that cannot be.
func fromEnvoy(environment func(string) (string, bool)) (values map[string]string, errs Errors) {
	e := envoyEnvironment{look: environment, values: map[string]string{}}
	for _, v := range envoyVariables() {
		value := e.get(v.name)
		switch {
		case value == "":
		case v.effect == refused && !strings.EqualFold(value, v.harmless):
			e.refuse(v.name, fmt.Sprintf("%q has no counterpart", value), v.hint)
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
	return e.values, e.errs
}

type envoyEnvironment struct {
	look   func(string) (string, bool)
	values map[string]string
	errs   Errors
}

func (e *envoyEnvironment) get(name string) string {
	value, _ := e.look(name)
	return strings.TrimSpace(value)
}

// or returns a variable's value or, if it is not set, another.
func (e *envoyEnvironment) or(name, otherwise string) string {
	if value := e.get(name); value != "" {
		return value
	}
	return otherwise
}

func (e *envoyEnvironment) refuse(name, message, hint string) {
	e.errs = append(e.errs, &SourceError{Source: name, Message: message, Hint: hint})
}

// boolean returns whether a variable is true, and reports any other word.
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

// doors sets the addresses. Where nothing is said they are those of
// envoyproxy/ratelimit, which listens on all interfaces; but the admin door,
// which can do more than its debug port, stays on loopback.
func (e *envoyEnvironment) doors() {
	e.values["listen.api"] = net.JoinHostPort(e.or("HOST", "0.0.0.0"), e.or("PORT", "8080"))
	e.values["listen.grpc"] = net.JoinHostPort(e.or("GRPC_HOST", "0.0.0.0"), e.or("GRPC_PORT", "8081"))
	e.values["listen.admin"] = net.JoinHostPort(e.or("DEBUG_HOST", "127.0.0.1"), e.or("DEBUG_PORT", "6070"))
	if socket := e.get("GRPC_UDS"); socket != "" {
		e.values["listen.grpc"] = unixPrefix + socket
	}
}

// tls sets the files of the gRPC door.
func (e *envoyEnvironment) tls() {
	if !e.boolean("GRPC_SERVER_USE_TLS") {
		return
	}
	for name, key := range map[string]string{
		"GRPC_SERVER_TLS_CERT": "grpc.tls.cert", "GRPC_SERVER_TLS_KEY": "grpc.tls.key",
		"GRPC_CLIENT_TLS_CACERT": "grpc.tls.client_ca", "GRPC_CLIENT_TLS_SAN": "grpc.tls.client_name",
	} {
		e.optional(key, e.get(name))
	}
	if e.values["grpc.tls.cert"] == "" || e.values["grpc.tls.key"] == "" {
		e.refuse("GRPC_SERVER_USE_TLS", "there is no certificate", "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
}

// rest sets where the rules are and how to log.
func (e *envoyEnvironment) rest() {
	xds := false
	switch kind := e.get("CONFIG_TYPE"); kind {
	case "", "FILE":
	case "GRPC_XDS_SOTW":
		xds = true
		e.values["rules_from"] = FromXDS.String()
	default:
		e.refuse("CONFIG_TYPE", fmt.Sprintf("%q is not one of FILE, GRPC_XDS_SOTW", kind), "")
	}
	if root, sub := e.get("RUNTIME_ROOT"), e.get("RUNTIME_SUBDIRECTORY"); !xds && (root != "" || sub != "") {
		root = e.or("RUNTIME_ROOT", "/srv/runtime_data/current")
		e.values["rules"] = path.Join(root, sub, e.or("RUNTIME_APPDIRECTORY", "config"))
	}
	switch level := strings.ToLower(e.get("LOG_LEVEL")); level {
	case "":
	case "trace":
		e.values["log.level"] = "debug"
	case "warning":
		e.values["log.level"] = "warn"
	case "fatal", "panic":
		e.values["log.level"] = "error"
	default:
		e.values["log.level"] = level
	}
}

// redis sets where the counts are. Without REDIS_URL they are in memory.
func (e *envoyEnvironment) redis() {
	address, mode := e.get("REDIS_URL"), strings.ToLower(e.or("REDIS_TYPE", "single"))
	switch {
	case strings.HasPrefix(address, "/"):
		e.refuse("REDIS_URL", "this is a unix socket", "Redis has to be reached by TCP")
		return
	case mode == "single":
		mode = "standalone"
	case mode == "sentinel":
		var name string
		name, address, _ = strings.Cut(address, ",")
		e.values["store.redis.master_name"] = name
	case mode != "cluster":
		e.refuse("REDIS_TYPE", fmt.Sprintf("%q is not one of SINGLE, SENTINEL, CLUSTER", mode), "")
		return
	}
	e.values["store.redis.mode"] = mode
	if strings.Contains(address, "://") {
		e.values["store.redis.url"] = address
		delete(e.values, "store.redis.mode")
	} else {
		e.values["store.redis.addresses"] = address
	}
	if auth := e.get("REDIS_AUTH"); auth != "" {
		user, password, named := strings.Cut(auth, ":")
		if !named {
			user, password = "", auth
		}
		e.optional("store.redis.username", user)
		e.optional("store.redis.password", password)
	}
	e.optional("store.redis.timeout", e.get("REDIS_TIMEOUT"))
	e.optional("store.redis.prefix", e.get("CACHE_KEY_PREFIX"))
	if e.boolean("REDIS_TLS") {
		e.values["store.redis.tls"] = "true"
		e.optional("store.redis.tls_cert", e.get("REDIS_TLS_CLIENT_CERT"))
		e.optional("store.redis.tls_key", e.get("REDIS_TLS_CLIENT_KEY"))
		e.optional("store.redis.tls_ca", e.get("REDIS_TLS_CACERT"))
	}
}

// optional sets a setting to a value if there is one.
func (e *envoyEnvironment) optional(key, value string) {
	if value != "" {
		e.values[key] = value
	}
}

// applyEnvoy applies the variables of envoyproxy/ratelimit, if it is asked for.
func (c *Config) applyEnvoy(from Sources, environment func(string) (string, bool)) (errs Errors) {
	if !from.EnvoyEnvironment {
		word, _ := environment(EnvoyEnvironment)
		if word == "" {
			return nil
		}
		yes, err := boolean(word)
		if err != nil {
			return Errors{sourceError(EnvoyEnvironment, err)}
		}
		if !yes {
			return nil
		}
	}
	values, errs := fromEnvoy(environment)
	for _, s := range settings() {
		value, ok := values[s.key]
		if !ok {
			continue
		}
		delete(values, s.key)
		if err := s.apply(c, sourceOf(s.key), value); err != nil {
			errs = append(errs, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) { // what no setting is for
		errs = append(errs, &SourceError{Source: sourceOf(key), Message: "this version has no " + key})
	}
	return errs
}

// sourceOf returns which variables a setting comes from.
func sourceOf(key string) string {
	for _, v := range envoyVariables() {
		if v.key == key {
			return v.name
		}
	}
	switch key {
	case "listen.api":
		return "HOST, PORT"
	case "listen.grpc":
		return "GRPC_HOST, GRPC_PORT, GRPC_UDS"
	case "listen.admin":
		return "DEBUG_HOST, DEBUG_PORT"
	case "rules":
		return "RUNTIME_ROOT"
	case "rules_from":
		return "CONFIG_TYPE"
	case "log.level":
		return "LOG_LEVEL"
	}
	if strings.HasPrefix(key, "store.redis.") {
		return "REDIS_URL and its like"
	}
	return "GRPC_SERVER_USE_TLS"
}
