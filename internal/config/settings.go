package config

import (
	"log/slog"
	"slices"
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
	known := slices.Contains([]string{"debug", "info", "warn", "error"}, v)
	return level, known && level.UnmarshalText([]byte(v)) == nil
}
