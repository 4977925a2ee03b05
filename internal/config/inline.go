package config

import (
	"errors"
	"reflect"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/store"
)

// inlineSettings returns the settings of limits that callers of the API send.
func inlineSettings() []Setting {
	const at = "inline_limits."
	return []Setting{
		Flag(at+"enabled", func(c *Config) *bool { return &c.Inline.Enabled }).Means("`false`", "allow [limits in requests](rules/inline-limits.md) of the API over HTTP and gRPC"),
		parsed(at+"max_rate", func(c *Config) *rate.Rate { return &c.Inline.MaxRate }, func(v string) (rate.Rate, error) {
			r, err := rate.Parse(v)
			if err == nil && (r.Unlimited || r.N == 0) {
				err = errors.New("want a rate, such as 1000/second")
			}
			return r, err
		}).As("rate").Means("`1000/second`", "highest rate, on average over the period"),
		parsed(at+"max_period", func(c *Config) *time.Duration { return &c.Inline.MaxPeriod }, func(v string) (time.Duration, error) {
			d, _, err := rate.ParsePeriod(v)
			return d, err
		}).As("period").Means("`1d`", "longest period; the longer it is, the longer a key is kept"),
		Count(at+"max_burst", func(c *Config) *int64 { return &c.Inline.MaxBurst }, store.MaxLimit).Means("`10000`", "most that may pass at once; for a `sliding_log` at most 1000"),
		Choice(at+"on_store_error", func(c *Config) *rules.StoreError { return &c.Inline.OnStoreError }, parseStoreError,
			rules.StoreErrorAllow.String(), rules.StoreErrorDeny.String(), rules.StoreErrorLocal.String()).Means("`allow`", "what happens if the store cannot answer, [as for rules](rules/rules.md#when-the-store-cannot-answer)"),
	}
}

func parseStoreError(v string) (rules.StoreError, bool) {
	for e := range rules.StoreErrorLocal + 1 {
		if e.String() == v {
			return e, true
		}
	}
	return 0, false
}

// warnOfInline warns about bounds of limits in requests, while these are off.
func (c *Config) warnOfInline() {
	if !c.Inline.Enabled && !reflect.DeepEqual(c.Inline, inline.Default()) {
		c.warn("inline_limits", "it has no effect: limits in requests are off", "set inline_limits.enabled: true")
	}
}
