package config

// Envoy is what only Envoy's rate limit service has.
type Envoy struct {
	// LegacyHeaders sends the header fields of envoyproxy/ratelimit too, by
	// these names.
	LegacyHeaders                             bool
	LimitHeader, RemainingHeader, ResetHeader string
	// DynamicMetadata sends dynamic metadata.
	DynamicMetadata bool
	// ShadowMode lets every request pass.
	ShadowMode bool
}

func defaultEnvoy() Envoy {
	return Envoy{LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset"}
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
