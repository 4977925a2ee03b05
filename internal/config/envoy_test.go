package config_test

import (
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/door/grpc"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// manifest returns the environment of an envoyproxy/ratelimit deployment.
func manifest(pairs ...string) config.Sources {
	list := map[string]string{config.EnvoyEnvironment: "1"}
	for i := 0; i < len(pairs); i += 2 {
		list[pairs[i]] = pairs[i+1]
	}
	return config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(list)}
}

func TestEnvoyEnvironment(t *testing.T) {
	from := manifest(
		"HOST", "10.0.0.1", "PORT", "80", "GRPC_PORT", "9081", "DEBUG_PORT", "6071",
		"GRPC_MAX_CONNECTION_AGE", "30m", "GRPC_MAX_CONNECTION_AGE_GRACE", "5m",
		"GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT", "/tls/cert", "GRPC_SERVER_TLS_KEY", "/tls/key",
		"GRPC_CLIENT_TLS_CACERT", "/tls/ca", "GRPC_CLIENT_TLS_SAN", "envoy",
		"LOG_LEVEL", "WARN", "LOG_FORMAT", "json",
		"RUNTIME_ROOT", "/data", "RUNTIME_SUBDIRECTORY", "ratelimit", "RUNTIME_WATCH_ROOT", "false",
		"LIMIT_RESPONSE_HEADERS_ENABLED", "true", "LIMIT_LIMIT_HEADER", "X-Limit",
		"SHADOW_MODE", "true", "RESPONSE_DYNAMIC_METADATA", "true",
		"BACKEND_TYPE", "redis", "USE_STATSD", "false", "NEAR_LIMIT_RATIO", "0.8",
	)
	c, err := config.Load(from)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"api": "10.0.0.1:80", "grpc": "0.0.0.0:9081", "resp": resp.DefaultAddress, "admin": "127.0.0.1:6071", "proxy": proxy.DefaultAddress, "shared": ""}
	if got := listening(c); !maps.Equal(got, want) {
		t.Errorf("listen: %+v, want %+v", got, want)
	}
	encrypted := config.TLS{Cert: "/tls/cert", Key: "/tls/key", ClientCA: "/tls/ca", ClientNames: []string{"envoy"}}
	if got := c.Door("grpc"); !cmp.Equal(got.TLS, encrypted) || got.HTTP != (config.HTTP{}) {
		t.Errorf("grpc: %+v, %+v, want %+v", got.TLS, got.HTTP, encrypted)
	}
	ages := grpc.Settings{MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: 5 * time.Minute}
	if got := *grpcOf(c); got != ages {
		t.Errorf("grpc: %+v, want %+v", got, ages)
	}
	envoy := config.Envoy{
		LegacyHeaders: true, LimitHeader: "X-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset",
		ShadowMode: true, DynamicMetadata: true,
	}
	if c.Envoy != envoy {
		t.Errorf("envoy: %+v, want %+v", c.Envoy, envoy)
	}
	if c.RuleOptions.Siblings {
		t.Error("siblings are read without RUNTIME_WATCH_ROOT")
	}
	if diff := cmp.Diff([]string{"/data/ratelimit/config"}, c.Rules); diff != "" || c.Log.Level.String() != "WARN" || c.Log.Format != config.JSON {
		t.Errorf("rules %s, log %+v", diff, c.Log)
	}
}

// By default envoyproxy/ratelimit watches its root, and so reads files next to config
// too. That applies to its own rules, not to those in Headgate's settings.
func TestEnvoyWatchesItsRoot(t *testing.T) {
	for _, row := range []struct {
		pairs []string
		want  bool
		wrong string
	}{
		{[]string{"RUNTIME_SUBDIRECTORY", "rl"}, true, ""},
		{[]string{"RUNTIME_ROOT", "/data", "RUNTIME_WATCH_ROOT", "T"}, true, ""},
		{[]string{"RUNTIME_ROOT", "/data", "RUNTIME_WATCH_ROOT", "0"}, false, ""},
		{[]string{"RUNTIME_ROOT", "/data", "HEADGATE_RULES", "/rules"}, false, ""},
		{[]string{"RUNTIME_WATCH_ROOT", "true"}, false, ""},
		{[]string{"RUNTIME_ROOT", "/data", "RUNTIME_WATCH_ROOT", "maybe"}, false, `RUNTIME_WATCH_ROOT: "maybe" is neither true nor false`},
	} {
		c, err := config.Load(manifest(row.pairs...))
		switch {
		case row.wrong != "":
			if err == nil || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%v: %v", row.pairs, err)
			}
		case err != nil || c.RuleOptions.Siblings != row.want || len(c.Ignored) > 0:
			t.Errorf("%v: siblings %v, ignored %v, %v", row.pairs, c.RuleOptions.Siblings, c.Ignored, err)
		}
	}
}

func TestEnvoyEnvironmentHasItsOwnDefaults(t *testing.T) {
	c, err := config.Load(manifest())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"api": "0.0.0.0:8080", "grpc": "0.0.0.0:8081", "resp": resp.DefaultAddress, "admin": "127.0.0.1:6070", "proxy": proxy.DefaultAddress, "shared": ""}
	if got := listening(c); !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	c, err = config.Load(manifest("GRPC_UDS", "/run/rls.sock"))
	if err != nil || c.Door("grpc").Address != "unix:/run/rls.sock" {
		t.Errorf("%s, %v", c.Door("grpc").Address, err)
	}
	if network, address := config.SplitAddress(c.Door("grpc").Address); network != "unix" || address != "/run/rls.sock" {
		t.Errorf("%s, %s", network, address)
	}
}

func TestEnvoyEnvironmentHasToBeAskedFor(t *testing.T) {
	variables := map[string]string{"PORT": "1", "QUOTA_MODE": "true"}
	from := config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(variables)}
	c, err := config.Load(from)
	if err != nil || c.Door("api").Address != api.DefaultAddress {
		t.Errorf("%+v, %v", c, err)
	}
	delete(variables, "QUOTA_MODE")
	from.EnvoyEnvironment = true
	if c, err = config.Load(from); err != nil || c.Door("api").Address != "0.0.0.0:1" {
		t.Errorf("with the flag: %+v, %v", c, err)
	}
	variables["HEADGATE_LISTEN_API"] = ":2"
	if c, err = config.Load(from); err != nil || c.Door("api").Address != ":2" {
		t.Errorf("our own variables come first: %+v, %v", c, err)
	}
	variables[config.EnvoyEnvironment] = "perhaps"
	from.EnvoyEnvironment = false
	if _, err = config.Load(from); err == nil || !strings.Contains(err.Error(), "perhaps") {
		t.Errorf("%v", err)
	}
}

func TestEnvoyVariablesThatCannotBeMapped(t *testing.T) {
	for _, row := range [][2]string{
		{"BACKEND_TYPE", "memcache"},
		{"QUOTA_MODE", "true"},
		{"REDIS_PERSECOND", "true"},
		{"REDIS_URL", "/run/redis.sock"},
		{"USE_STATSD", "true"},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b"},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true"},
		{"GRPC_SERVER_USE_TLS", "true"},
		{"GRPC_SERVER_USE_TLS", "maybe"},
		{"GRPC_MAX_CONNECTION_AGE", "long"},
		{"LOG_LEVEL", "loud"},
		{"PORT", "http"},
		{"SHADOW_MODE", "sometimes"},
		{"LIMIT_RESET_HEADER", "no spaces"},
	} {
		_, err := config.Load(manifest(row[0], row[1]))
		var errs config.Errors
		if !errors.As(err, &errs) || len(errs) != 1 || !strings.Contains(err.Error(), row[0]) {
			t.Errorf("%s=%s: %v", row[0], row[1], err)
		}
	}
}

// What envoyproxy/ratelimit reads as false, no limit or text does not prevent the start.
func TestEnvoyVariablesInOtherWords(t *testing.T) {
	for _, word := range []string{"0", "f", "F", "FALSE", "False"} {
		for _, name := range []string{"USE_STATSD", "USE_DOG_STATSD", "QUOTA_MODE", "REDIS_PERSECOND", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"} {
			if _, err := config.Load(manifest(name, word)); err != nil {
				t.Errorf("%s=%s: %v", name, word, err)
			}
		}
	}
	c, err := config.Load(manifest("LOG_FORMAT", "JSON", "GRPC_MAX_CONNECTION_AGE", "0", "GRPC_MAX_CONNECTION_AGE_GRACE", "0s",
		"REDIS_URL", "127.0.0.1:6379", "REDIS_TIMEOUT", "0"))
	if err != nil {
		t.Fatal(err)
	}
	year := 365 * 24 * time.Hour
	if c.Log.Format != "json" || grpcOf(c).MaxConnectionAge < year || grpcOf(c).MaxConnectionAgeGrace < year || c.Store.Redis.Timeout != 0 {
		t.Errorf("%v, %v", c.Log, grpcOf(c))
	}
	if len(c.Ignored) != 1 || c.Ignored[0].Variable != "REDIS_TIMEOUT" {
		t.Errorf("ignored: %v", c.Ignored)
	}
	if c, err = config.Load(manifest("LOG_FORMAT", "logfmt")); err != nil || c.Log.Format != "text" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestRedisOfEnvoy(t *testing.T) {
	rows := []struct {
		from config.Sources
		want config.Redis
	}{
		{manifest("REDIS_URL", "redis:6379", "REDIS_SOCKET_TYPE", "tcp"), config.Redis{URL: "redis://redis:6379"}},
		{
			manifest("REDIS_URL", "a:1,b:2", "REDIS_TYPE", "CLUSTER", "REDIS_AUTH", "secret", "REDIS_TIMEOUT", "1s", "CACHE_KEY_PREFIX", "rl"),
			config.Redis{URL: "redis+cluster://a:1,b:2", Password: "secret", Timeout: time.Second, KeyPrefix: "rl"},
		},
		{
			manifest("REDIS_URL", "mymaster,a:1,b:2", "REDIS_TYPE", "sentinel", "REDIS_AUTH", "ann:secret", "REDIS_TLS", "true", "REDIS_TLS_CACERT", "/ca"),
			config.Redis{URL: "rediss+sentinel://a:1,b:2/mymaster", Username: "ann", Password: "secret", CA: "/ca"},
		},
		{manifest("REDIS_URL", "rediss://ann:secret@redis:6379"), config.Redis{URL: "rediss://ann:secret@redis:6379"}},
		{manifest("REDIS_URL", "redis://redis:6379", "REDIS_TLS", "true"), config.Redis{URL: "rediss://redis:6379"}},
		{manifest("REDIS_URL", "redis://a:1", "REDIS_TYPE", "CLUSTER"), config.Redis{URL: "redis+cluster://a:1"}},
		{manifest("REDIS_URL", "rediss://a:1,rediss://b:2", "REDIS_TYPE", "cluster"), config.Redis{URL: "rediss+cluster://a:1,b:2"}},
		{manifest("REDIS_URL", "redis+sentinel://a/m", "REDIS_TYPE", "sentinel"), config.Redis{URL: "redis+sentinel://a/m"}},
		{manifest("REDIS_URL", "valkey+cluster://a,b", "REDIS_TLS", "true", "REDIS_TYPE", "cluster"), config.Redis{URL: "valkeys+cluster://a,b"}},
	}
	for _, row := range rows {
		c, err := config.Load(row.from)
		if err != nil {
			t.Error(err)
			continue
		}
		row.want.DenyCache = config.DefaultDenyCache
		if diff := cmp.Diff(row.want, c.Store.Redis); diff != "" || c.Store.Kind != config.InRedis {
			t.Errorf("kind %s: %s", c.Store.Kind, diff)
		}
	}
	if c, err := config.Load(manifest("REDIS_TYPE", "CLUSTER", "CACHE_KEY_PREFIX", "x")); err != nil || c.Store.Kind != config.InMemory {
		t.Errorf("without an address: %v", err)
	}
	if _, err := config.Load(manifest("REDIS_URL", "redis://a:1", "REDIS_TYPE", "sentinel")); err == nil || !strings.Contains(err.Error(), "REDIS_URL: it does not name the primary") {
		t.Errorf("sentinels at a URL: %v", err)
	}
	if _, err := config.Load(manifest("REDIS_URL", "a:1", "REDIS_TYPE", "ring")); err == nil || !strings.Contains(err.Error(), "ring") {
		t.Errorf("ring: %v", err)
	}
}

// TestEnvoyVariablesAreDocumented: whatever the original reads is used, refused or
// ignored, and docs/connect/envoy.md says which. The list comes from the original: see
// differential/envoy.
func TestEnvoyVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/connect/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("testdata/envoy-settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := config.EnvoyVariables()
	seen := map[string]bool{}
	for _, name := range known {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/connect/envoy.md does not mention %s", name)
		}
		if seen[name] {
			t.Errorf("duplicate %s", name)
		}
		seen[name] = true
	}
	read := 0
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "#") {
			continue
		}
		if read++; !seen[name] {
			t.Errorf("%s is neither honored, refused nor ignored", name)
		}
	}
	if read < 100 {
		t.Errorf("the list has only %d variables", read)
	}
}

// TestEnvoyVariablesThatChangeNothing: setting one logs why it has no effect.
func TestEnvoyVariablesThatChangeNothing(t *testing.T) {
	c, err := config.Load(manifest(
		"USE_PROMETHEUS", "true", "PROMETHEUS_ADDR", ":9090", "TRACING_ENABLED", "true", "REDIS_URL", "a:1",
		"REDIS_PERSECOND_URL", "b:1", "NEAR_LIMIT_RATIO", "",
	))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, v := range c.Ignored {
		told[v.Variable] = v.Why
	}
	for name, says := range map[string]string{
		"USE_PROMETHEUS": "/metrics", "PROMETHEUS_ADDR": "/metrics", "TRACING_ENABLED": "OTEL_EXPORTER_OTLP_ENDPOINT",
		"REDIS_PERSECOND_URL": "one Redis",
	} {
		if !strings.Contains(told[name], says) {
			t.Errorf("%s: %q", name, told[name])
		}
	}
	if len(told) != 4 {
		t.Errorf("%v", told)
	}
}

func TestEnvoyNodeAndSentinel(t *testing.T) {
	c, err := config.Load(manifest("CONFIG_TYPE", "GRPC_XDS_SOTW", "REDIS_URL", "m,a:1", "REDIS_TYPE", "SENTINEL", "REDIS_SENTINEL_AUTH", "ann:sentinel"))
	if err != nil || c.XDS.NodeID != "default" || c.Store.Redis.SentinelUsername != "ann" || c.Store.Redis.SentinelPassword != "sentinel" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = config.Load(manifest("CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID", "me"))
	if err != nil || c.XDS.NodeID != "me" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestLoadOffline: check reads rules like serve, and ignores other wrong variables
// in the environment.
func TestLoadOffline(t *testing.T) {
	envoy := rulefile.Options{Compat: rules.CompatEnvoy}
	for _, tt := range []struct {
		name string
		from config.Sources
		want rulefile.Options
	}{
		{"nothing", config.Sources{Environment: none}, rulefile.Options{}},
		{"a flag", config.Sources{Environment: none, Flags: map[string]string{"compat": "envoy"}}, envoy},
		{"the environment", manifest("HEADGATE_COMPAT", "envoy", "PORT", "none"), envoy},
		{"a flag before it", func() config.Sources {
			from := manifest("HEADGATE_COMPAT", "envoy")
			from.Flags = map[string]string{"compat": "none"}
			return from
		}(), rulefile.Options{}},
		{
			"the original's", manifest("MERGE_DOMAIN_CONFIG", "true", "RUNTIME_IGNOREDOTFILES", "true"),
			rulefile.Options{MergeDomains: true, IgnoreDotFiles: true},
		},
	} {
		if c, err := config.LoadOffline(tt.from); err != nil || c.RuleOptions != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, c, err)
		}
	}
	if _, err := config.LoadOffline(manifest("HEADGATE_COMPAT", "envoi")); err == nil || !strings.Contains(err.Error(), "HEADGATE_COMPAT") {
		t.Error(err)
	}
}

func TestEnvoySettingsInTheFile(t *testing.T) {
	for _, row := range []struct{ key, value, says string }{
		{"listen.grpc", "unix:", "has no path"},
		{"listen.grpc", "8081", "not an address"},
		{"grpc.max_message", "1GiB", "more than 64MiB"},
		{"grpc.max_connection_age", "1ms", "too short"},
		{"envoy.legacy_headers", "perhaps", "neither true nor false"},
		{"decision_time", "maybe", "neither true nor false"},
		{"envoy.limit_header", "a b", "not a valid header name"},
	} {
		_, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: map[string]string{row.key: row.value}})
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s %s: %v, want …%s…", row.key, row.value, err, row.says)
		}
	}
}
