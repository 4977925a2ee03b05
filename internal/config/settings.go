package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/engine"
)

// setRules sets the rule files, and resets the siblings of an earlier source.
func setRules(c *Config, v []string) error {
	c.Rules, c.RuleOptions.Siblings = v, false
	return nil
}

// settings returns the settings that are not of a door.
func settings() []Setting {
	return slices.Concat(storeSettings(), generalTLS(), []Setting{
		Setting{key: "rules", list: true, path: true, values: "files and folders", set: setRules}.Means("`./rules`, if it is there", "rule files, and folders of `.yaml` and `.yml` files: [rules](rules/rules.md)"),
		List("trusted_proxies", func(c *Config, v []string) (err error) {
			c.TrustedProxies, err = networks(v)
			return err
		}).As("list of networks").Means("none", "networks whose `X-Forwarded-For` and `Forwarded` are [trusted](rules/client-ip.md)").ForRules(),
		Choice("unknown_domain", func(c *Config) *engine.UnknownDomain { return &c.UnknownDomain }, engine.ParseUnknownDomain, "allow", "refuse").Means("`allow`", "what happens to requests in a domain without rules"),
		Choice("headers", func(c *Config) *answer.Dialect { return &c.Headers }, answer.ParseDialect, dialects()...).Means("`default`", "dialect of the [header fields](reference/headers.md)"),
		Flag("decision_time", func(c *Config) *bool { return &c.DecisionTime }).Means("`false`", "add `X-Headgate-Time` (Unix seconds) at the proxy and forward-auth, for [exact replays](try/simulate.md#exact-replays)"),
		Choice("log.level", func(c *Config) *slog.Level { return &c.Log.Level }, parseLevel, "debug", "info", "warn", "error").Means("`info`", "what is logged"),
		Word("log.format", func(c *Config) *Format { return &c.Log.Format }, Auto, TextLines, JSON).Means("`auto`", "form of log lines; `auto`: text on a terminal, else JSON"),
		Duration("shutdown_delay", func(c *Config) *time.Duration { return &c.ShutdownDelay }, 0).Means("`0s`", "how long a process that [stops](run/configuration.md#stop) still serves while `/readyz` fails"),
		Duration("shutdown_timeout", func(c *Config) *time.Duration { return &c.ShutdownTimeout }, 0).Means("`10s`", "how long it then waits for requests in flight"),
	}, regionSettings(), candidateSettings(), reloadSettings(), identitySettings(), sourceSettings(), queueSettings(), inlineSettings(), observeSettings(), earlyWarningSettings(), envoySettings())
}

func dialects() []string {
	var names []string
	for _, d := range answer.Dialects() {
		names = append(names, d.String())
	}
	return names
}

func parseLevel(v string) (level slog.Level, ok bool) {
	return level, slices.Contains([]string{"debug", "info", "warn", "error"}, v) && level.UnmarshalText([]byte(v)) == nil
}

// Metrics configures /metrics.
type Metrics struct {
	MaxRules int64 // rules with their own series; 0 is the default
}

// Overload configures when load is shed.
type Overload struct {
	Memory int64 // memory limit in bytes, as with GOMEMLIMIT; 0 keeps that
}

// leastMemory is the minimum of overload.memory.
const leastMemory = 16 << 20

// maxMetricRules is the maximum of metrics.max_rules: about a million series.
const maxMetricRules = 100_000

// observeSettings returns the settings of metrics and overload.
func observeSettings() []Setting {
	return []Setting{
		One("overload.memory", func(c *Config, v string) (err error) {
			if c.Overload.Memory, err = size(v); err == nil && c.Overload.Memory < leastMemory {
				return fmt.Errorf("%s is below the minimum of 16MiB", v)
			}
			return err
		}).As("size").Means("`GOMEMLIMIT`", "memory limit, at least `16MiB`, near which [load is shed](run/overload.md)"),
		Count("metrics.max_rules", func(c *Config) *int64 { return &c.Metrics.MaxRules }, maxMetricRules).Means("2000", "rules with their own series at [`/metrics`](reference/metrics.md)"),
	}
}

// AdminAddress returns the address of the admin door for clients, from the
// environment, or an empty string.
func AdminAddress() string { return os.Getenv("HEADGATE_ADDRESS") }

// ClientToken returns the token that commands send to a running server, from the
// environment, or an empty string.
func ClientToken() string { return os.Getenv("HEADGATE_TOKEN") }

// SourceDate returns SOURCE_DATE_EPOCH; see reproducible-builds.org.
func SourceDate() string { return os.Getenv("SOURCE_DATE_EPOCH") }

// Envoy has the settings of Envoy's rate limit service.
type Envoy struct {
	// LegacyHeaders adds the header fields of envoyproxy/ratelimit, with these names.
	LegacyHeaders                             bool
	LimitHeader, RemainingHeader, ResetHeader string
	DynamicMetadata                           bool // sends dynamic metadata
	ShadowMode                                bool // allows every request
}

// envoySettings returns the settings of Envoy's rate limit service.
func envoySettings() []Setting {
	return []Setting{
		Flag("envoy.legacy_headers", func(c *Config) *bool { return &c.Envoy.LegacyHeaders }).Means("`false`", "send the header fields of envoyproxy/ratelimit"),
		parsed("envoy.limit_header", func(c *Config) *string { return &c.Envoy.LimitHeader }, HeaderName).Means("`RateLimit-Limit`", "name of the field with the limit"),
		parsed("envoy.remaining_header", func(c *Config) *string { return &c.Envoy.RemainingHeader }, HeaderName).Means("`RateLimit-Remaining`", "name of the field with what is left"),
		parsed("envoy.reset_header", func(c *Config) *string { return &c.Envoy.ResetHeader }, HeaderName).Means("`RateLimit-Reset`", "name of the field with the time to wait"),
		Flag("envoy.dynamic_metadata", func(c *Config) *bool { return &c.Envoy.DynamicMetadata }).Means("`false`", "send dynamic metadata"),
		Flag("envoy.shadow_mode", func(c *Config) *bool { return &c.Envoy.ShadowMode }).Means("`false`", "allow everything; `statuses` still show refusals"),
	}
}
