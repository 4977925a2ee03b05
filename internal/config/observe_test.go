package config_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
)

// What operators see: the number of rules with series, and the keys of callers.
func TestObserving(t *testing.T) {
	for _, tt := range []struct {
		text, variable string
		rules          int64
		keys           admin.Keys
		wrong          string
	}{
		{text: ""},
		{text: "metrics: {max_rules: 10_000}", rules: 10_000},
		{text: "metrics: {max_rules: 1}\nadmin: {keys: hashed}", rules: 1, keys: admin.HashedKeys},
		{text: "admin: {keys: plain}", keys: admin.PlainKeys},
		{text: "admin: {keys: auto}"},
		{text: "admin: {keys: plain}", variable: "hashed", keys: admin.HashedKeys},
		{text: "metrics: {max_rules: 0}", wrong: `:1:22: metrics.max_rules: "0" is not a whole number from 1 to 100000`},
		{text: "metrics: {max_rules: 100001}", wrong: "is not a whole number from 1 to 100000"},
		{text: "metrics: {max_rules: many}", wrong: "is not a whole number"},
		{text: "metrics: {max_rule: 5}", wrong: `:1:11: unknown key "max_rule" in metrics, did you mean "max_rules"?`},
		{text: "admin: {keys: hashd}", wrong: `:1:15: admin.keys: "hashd" is not one of auto, plain, hashed, did you mean "hashed"?`},
		{text: "admin: {key: plain}", wrong: `unknown key "key" in admin, did you mean "keys"?`},
		{variable: "shown", wrong: `HEADGATE_ADMIN_KEYS: "shown" is not one of auto, plain, hashed`},
	} {
		c, err := config.Load(config.Sources{
			Doors: app.Sections(), File: write(t, tt.text), Environment: environment(map[string]string{"HEADGATE_ADMIN_KEYS": tt.variable}),
		})
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: error %v, want one with %s", tt.text, err, tt.wrong)
			}
			continue
		}
		if err != nil || c.Metrics.MaxRules != tt.rules || adminOf(c).Keys != cmp.Or(tt.keys, admin.AutoKeys) {
			t.Errorf("%s: %+v, want %d and %s", tt.text, err, tt.rules, tt.keys)
		}
	}
}
