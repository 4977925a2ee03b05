package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
)

// setRules sets which files are rules. Siblings are those of the rules before.
func setRules(c *Config, v []string) error {
	c.Rules, c.RuleOptions.Siblings = v, false
	return nil
}

// settings are those of the process, in the order of the documentation.
func settings() []Setting {
	return slices.Concat(storeSettings(), []Setting{
		{key: "rules", list: true, path: true, set: setRules},
		List("trusted_proxies", func(c *Config, v []string) (err error) {
			c.TrustedProxies, err = networks(v)
			return err
		}).ForRules(),
		Choice("unknown_domain", func(c *Config) *engine.UnknownDomain { return &c.UnknownDomain }, engine.ParseUnknownDomain, "allow", "refuse"),
		Choice("headers", func(c *Config) *answer.Dialect { return &c.Headers }, answer.ParseDialect, dialects()...),
		Flag("decision_time", func(c *Config) *bool { return &c.DecisionTime }),
		Choice("log.level", func(c *Config) *slog.Level { return &c.Log.Level }, parseLevel, "debug", "info", "warn", "error"),
		Word("log.format", func(c *Config) *Format { return &c.Log.Format }, Auto, TextLines, JSON),
		Duration("shutdown_delay", func(c *Config) *time.Duration { return &c.ShutdownDelay }, 0),
		Duration("shutdown_timeout", func(c *Config) *time.Duration { return &c.ShutdownTimeout }, 0),
		Duration("shutdown_idle", func(c *Config) *time.Duration { return &c.ShutdownIdle }, 0),
	}, candidateSettings(), reloadSettings(), identitySettings(), sourceSettings(), queueSettings(), observeSettings(), telemetrySettings(), envoySettings())
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

// Metrics is what the process tells about itself.
type Metrics struct {
	MaxRules int64 // how many rules have series of their own at /metrics; 0 leaves the default
}

// Overload is when the process has too much to do.
type Overload struct {
	Memory int64 // the soft limit of the runtime in bytes, as GOMEMLIMIT sets it; 0 leaves it alone
}

// leastMemory is the smallest overload.memory: with less the process cannot run.
const leastMemory = 16 << 20

// maxMetricRules is the largest metrics.max_rules: a million series or so.
const maxMetricRules = 100_000

// observeSettings are the keys of what operators see.
func observeSettings() []Setting {
	return []Setting{
		One("overload.memory", func(c *Config, v string) (err error) {
			if c.Overload.Memory, err = size(v); err == nil && c.Overload.Memory < leastMemory {
				return fmt.Errorf("%s is below the minimum of 16MiB", v)
			}
			return err
		}),
		Count("metrics.max_rules", func(c *Config) *int64 { return &c.Metrics.MaxRules }, maxMetricRules),
	}
}

// APIToken returns a token of the HTTP API, for those who ask it: the first if
// there are several.
func APIToken() string {
	first, _, _ := strings.Cut(os.Getenv("HEADGATE_API_TOKEN"), ",")
	return strings.TrimSpace(first)
}

// AdminAddress returns where an admin door is, for those who ask one, if the
// environment says so.
func AdminAddress() string { return os.Getenv("HEADGATE_ADDRESS") }

// AdminToken returns the token of an admin door, for those who ask one.
func AdminToken() string { return os.Getenv("HEADGATE_ADMIN_TOKEN") }

// SourceDate returns SOURCE_DATE_EPOCH; see reproducible-builds.org.
func SourceDate() string { return os.Getenv("SOURCE_DATE_EPOCH") }

// Envoy is what only Envoy's rate limit service has.
type Envoy struct {
	// LegacyHeaders sends the header fields of envoyproxy/ratelimit too, by
	// these names.
	LegacyHeaders                             bool
	LimitHeader, RemainingHeader, ResetHeader string
	DynamicMetadata                           bool // sends dynamic metadata
	ShadowMode                                bool // lets every request pass
}

// envoySettings are the keys of Envoy's service.
func envoySettings() []Setting {
	return []Setting{
		Flag("envoy.legacy_headers", func(c *Config) *bool { return &c.Envoy.LegacyHeaders }),
		parsed("envoy.limit_header", func(c *Config) *string { return &c.Envoy.LimitHeader }, HeaderName),
		parsed("envoy.remaining_header", func(c *Config) *string { return &c.Envoy.RemainingHeader }, HeaderName),
		parsed("envoy.reset_header", func(c *Config) *string { return &c.Envoy.ResetHeader }, HeaderName),
		Flag("envoy.dynamic_metadata", func(c *Config) *bool { return &c.Envoy.DynamicMetadata }),
		Flag("envoy.shadow_mode", func(c *Config) *bool { return &c.Envoy.ShadowMode }),
	}
}
