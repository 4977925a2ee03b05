package config_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/warning"
)

// fullWarnings are the warnings of testdata/full.yaml.
func fullWarnings() config.EarlyWarning {
	e := config.EarlyWarning{On: true, Policy: warning.Policy{
		Settings: warning.Default(), Keys: warning.KeysNone,
		Webhook: &url.URL{Scheme: "https", Host: "hooks.example.com", Path: "/headgate", RawQuery: "key=1"},
	}}
	e.RuleNearLimit = []int64{80, 100}
	return e
}

// warnings reads a configuration and returns what it says of warnings, or the first error
// without its file.
func warnings(t *testing.T, text string, variables map[string]string) (*config.Config, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: environment(variables)})
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, strings.TrimPrefix(first, file+":")
	}
	e := &c.EarlyWarning
	return c, fmt.Sprintf("on=%t off=%v levels=%v hook=%v", e.On, e.Off, e.RuleNearLimit, e.Webhook)
}

func TestEarlyWarning(t *testing.T) {
	for _, row := range []struct{ text, variable, want string }{
		{"", "", "on=false off=[false false false] levels=[75 90 100] hook=<nil>"},
		{"warnings: on", "", "on=true off=[false false false] levels=[75 90 100] hook=<nil>"},
		{"warnings: {keys: clear}", "", "on=true off=[false false false] levels=[75 90 100] hook=<nil>"},
		{"warnings: {keys: clear}", "WARNINGS=off", "on=false off=[false false false] levels=[75 90 100] hook=<nil>"},
		{"warnings: {key_refused: off, rule_near_limit: off, new_keys: on}", "", "on=true off=[true true false] levels=[75 90 100] hook=<nil>"},
		{"", "WARNINGS_WEBHOOK=https://b/2", "on=true off=[false false false] levels=[75 90 100] hook=https://b/2"},
		{"warnings: {webhook: http://a/}", "WARNINGS_WEBHOOK=http://b/", "on=true off=[false false false] levels=[75 90 100] hook=http://b/"},
		{"warnings: {webhook: http://a/}", "", "on=true off=[false false false] levels=[75 90 100] hook=http://a/"},

		{"warnings: maybe", "", `1:11: warnings: "maybe" is neither on nor off`},
		{"warnings: {webhok: http://a}", "", `1:12: unknown key "webhok" in warnings, did you mean "webhook"?`},
		{"warnings: {webhook: [http://a]}", "", `1:21: warnings.webhook must be a single value`},
		{"warnings: {webhook: ftp://a}", "", `1:21: warnings.webhook: the URL does not start with http:// or https://; write https://hooks.example.com/headgate`},
		{"warnings: {webhook: 'http://u:p@a/'}", "", `1:21: warnings.webhook: the URL must not contain a user or password; a secret of the receiver belongs in the path or the query`},
		{"warnings: {webhook: 'http://a b/'}", "", `1:21: warnings.webhook: the URL is not valid; write https://hooks.example.com/headgate`},
		{"warnings: {webhook: 'http://a:65536/'}", "", `1:21: warnings.webhook: the URL's port must be 1 to 65535, not 65536; write https://hooks.example.com/headgate`},
		{"warnings: {webhook: null}", "", `1:12: "webhook" has no value`},
		{"warnings: {webhooks: [{url: http://a, secret: hush}]}", "", `1:12: warnings.webhooks is not a setting any more; name one receiver, as warnings.webhook: https://hooks.example.com/headgate; Alertmanager tells others (docs/watch/warnings.md)`},
		{"warnings: {path: a}", "", `1:12: warnings.path is not a setting any more; leave it out: messages are in memory; Alertmanager keeps what must not be lost (docs/watch/warnings.md)`},
		{"warnings: {dashboard: 'https://a/'}", "", `1:12: warnings.dashboard is not a setting any more; leave it out: a message names the domain and the rule`},
		{"warnings: {again: 1h}", "", `1:12: warnings.again is not a setting any more; leave it out: the thresholds are fixed; write others as alerts on /metrics (docs/watch/warnings.md)`},
		{"warnings: {rule_near_limit: [75]}", "", `1:29: warnings.rule_near_limit: "75" is not a percentage from 1% to 100%`},
		{"warnings: {rule_near_limit: [1%, 2%, 3%, 4%, 5%]}", "", `1:29: warnings.rule_near_limit: 5 levels, want 1 to 4; write [75%, 90%, 100%], or "off"`},
		{"warnings: {key_refused: {share: 60%}}", "", `1:26: warnings.key_refused.share is not a setting any more; leave it out: the thresholds are fixed; write others as alerts on /metrics (docs/watch/warnings.md)`},
		{"warnings: {keys: plain}", "", `1:18: warnings.keys: "plain" is not one of hashed, clear, none`},
		{"", "WARNINGS_WEBHOOK=example.com", `HEADGATE_WARNINGS_WEBHOOK: the URL does not start with http:// or https://`},
	} {
		variables := map[string]string{}
		if name, value, ok := strings.Cut(row.variable, "="); ok {
			variables["HEADGATE_"+name] = value
		}
		part, isPart := strings.CutPrefix(row.want, "…")
		if _, got := warnings(t, row.text, variables); got != row.want && (!isPart || !strings.Contains(got, part)) {
			t.Errorf("%s %s\n%s\nwant\n%s", row.text, row.variable, got, row.want)
		}
	}
}
