package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rate"
)

func TestInlineLimits(t *testing.T) {
	with := func(change func(*inline.Bounds)) inline.Bounds {
		b := inline.Default()
		change(&b)
		return b
	}
	for _, row := range []struct {
		flags map[string]string
		want  inline.Bounds
		wrong string
	}{
		{want: inline.Default()},
		{flags: map[string]string{"enabled": "true"}, want: with(func(b *inline.Bounds) { b.Enabled = true })},
		{
			flags: map[string]string{
				"enabled": "true", "max_rate": "5/minute", "max_period": "30d", "max_burst": "7", "on_store_error": "local",
			},
			want: inline.Bounds{
				Enabled: true, MaxRate: rate.Rate{N: 5, Period: time.Minute, Unit: headgate.Minute}, MaxPeriod: 30 * 24 * time.Hour,
				MaxBurst: 7, OnStoreError: rules.StoreErrorLocal,
			},
		},
		{flags: map[string]string{"max_rate": "unlimited"}, wrong: "want a rate, such as 1000/second"},
		{flags: map[string]string{"max_rate": "5"}, wrong: `invalid rate "5"`},
		{flags: map[string]string{"max_period": "1 dya"}, wrong: `unknown unit "dya", did you mean "day"?`},
		{flags: map[string]string{"max_burst": "0"}, wrong: "is not a whole number from 1 to"},
		{flags: map[string]string{"on_store_error": "denny"}, wrong: `"denny" is not one of allow, deny, local, did you mean "deny"?`},
	} {
		flags := map[string]string{}
		for key, value := range row.flags {
			flags["inline_limits."+key] = value
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: flags})
		switch {
		case row.wrong != "":
			if err == nil || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%v: %v, want %s", row.flags, err, row.wrong)
			}
		case err != nil:
			t.Errorf("%v: %v", row.flags, err)
		default:
			if diff := cmp.Diff(row.want, c.Inline); diff != "" {
				t.Errorf("%v: %s", row.flags, diff)
			}
		}
	}
	// Bounds without the switch are probably a mistake.
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: map[string]string{"inline_limits.max_burst": "5"}})
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0].Hint != "set inline_limits.enabled: true" {
		t.Errorf("%v, %v", c, err)
	}
}
