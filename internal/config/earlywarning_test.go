package config_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/observe/webhook"
	"github.com/headgate/headgate/internal/transport/certs"
)

// fullWarnings are the warnings of testdata/full.yaml.
func fullWarnings() config.EarlyWarning {
	secrets, _ := webhook.ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	e := config.EarlyWarning{
		On: true, Settings: warning.Default(), Keys: config.WarnNone, Path: "testdata/state/warnings",
		Dashboard: &url.URL{Scheme: "https", Host: "gate.internal:6070"},
		Webhooks: []config.Webhook{{
			URL:     &url.URL{Scheme: "https", Host: "hooks.example.com", Path: "/headgate", RawQuery: "key=1"},
			Secrets: secrets, On: []warning.Kind{warning.KeyRefused, warning.NewKeys},
			Headers: map[string]config.Secret{"x-team": "gate", "x-token": "abc"},
			TLS:     certs.ClientFiles{CA: "testdata/tls/ca", ServerName: "s"},
		}, {URL: &url.URL{Scheme: "http", Host: "127.0.0.1:9000", Path: "/hook"}}},
	}
	e.KeyRefused.Share, e.KeyRefused.Refusals, e.KeyRefused.For = 60, 30, 10*time.Second
	e.RuleNearLimit = []int64{80, 100}
	e.NewKeys.Factor, e.NewKeys.Least = 3, 50
	e.Again = time.Hour
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
	var hooks []string
	for i := range e.Webhooks {
		hooks = append(hooks, e.Webhooks[i].URL.String())
	}
	return c, fmt.Sprintf("on=%t off=%v levels=%v hooks=%v", e.On, e.Off, e.RuleNearLimit, hooks)
}

func TestEarlyWarning(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ text, variable, want string }{
		{"", "", "on=false off=[false false false] levels=[75 90 100] hooks=[]"},
		{"warnings: on", "", "on=true off=[false false false] levels=[75 90 100] hooks=[]"},
		{"warnings: {keys: clear}", "", "on=true off=[false false false] levels=[75 90 100] hooks=[]"},
		{"warnings: {keys: clear}", "WARNINGS=off", "on=false off=[false false false] levels=[75 90 100] hooks=[]"},
		{"warnings: {key_refused: off, rule_near_limit: off, new_keys: on}", "", "on=true off=[true true false] levels=[75 90 100] hooks=[]"},
		{"", "WARNINGS_WEBHOOKS=http://a/1,https://b/2", "on=true off=[false false false] levels=[75 90 100] hooks=[http://a/1 https://b/2]"},
		{"warnings: {webhooks: [{url: http://a/}]}", "WARNINGS_WEBHOOKS=http://b/", "on=true off=[false false false] levels=[75 90 100] hooks=[http://b/]"},
		{"warnings: {webhooks: http://a/}", "", "on=true off=[false false false] levels=[75 90 100] hooks=[http://a/]"},

		{"warnings: maybe", "", `1:11: warnings: "maybe" is neither on nor off`},
		{"warnings: {webhook: [http://a]}", "", `1:12: unknown key "webhook" in warnings, did you mean "webhooks"?`},
		{"warnings: {webhooks: [{ulr: http://a}]}", "", `1:24: unknown key "ulr" in warnings.webhooks, did you mean "url"?`},
		{"warnings: {webhooks: [ftp://a]}", "", `1:23: warnings.webhooks.url: the URL does not start with http:// or https://; write https://hooks.example.com/headgate`},
		{"warnings: {webhooks: [http://u:p@a/]}", "", `1:23: warnings.webhooks.url: the URL must not contain a user or password; send them in a header`},
		{"warnings: {webhooks: [{on: [new_keys]}]}", "", `1:22: warnings.webhooks: webhook 1 has no url`},
		{"warnings: {webhooks: [{url: http://a, on: [new_key]}]}", "", `1:43: warnings.webhooks.on: "new_key" is not one of key_refused, rule_near_limit, new_keys, did you mean "new_keys"?`},
		{"warnings: {webhooks: [{url: http://a, secret: hush}]}", "", `1:47: warnings.webhooks.secret: secret 1 is 4 bytes long, want 24 to 64`},
		{"warnings: {webhooks: [{url: http://a, secret_file: none}]}", "", `…no such file`},
		{"warnings: {webhooks: [{url: http://a, tls: {ca: x}}]}", "", `1:22: warnings.webhooks: a: the URL starts with http://, so nothing would be encrypted`},
		{"warnings: {webhooks: [{url: https://a, tls: {cert: x}}]}", "", `1:22: warnings.webhooks: a: cert and key must be set together`},
		{"warnings: {webhooks: ['http://a b/']}", "", `1:23: warnings.webhooks.url: the URL is not valid; write https://hooks.example.com/headgate`},
		{"warnings: {webhooks: ['http://a:65536/']}", "", `1:23: warnings.webhooks.url: the URL's port must be 1 to 65535, not 65536; write https://hooks.example.com/headgate`},
		{"warnings: {webhooks: [{url: http://a, secret: abcdefghijklmnopqrstuvwx, secret_file: " + secretFile + "}]}", "", `…the webhook has a secret already`},
		{"warnings: {webhooks: [{url: http://a, headers: {X-Token: a, x-token: b}}]}", "", `1:48: warnings.webhooks.headers: duplicate "x-token": the case of a header's name does not count`},
		{"warnings: {webhooks: [{url: http://a, headers: {Host: b}}]}", "", `1:48: warnings.webhooks.headers: "host" cannot be set: every message has its own`},
		{"warnings: {webhooks: [{url: http://a, headers: {Webhook-Signature: b}}]}", "", `1:48: warnings.webhooks.headers: "webhook-signature" cannot be set: every message has its own`},
		{"warnings: {again: 9774h}", "", `1:19: warnings.again: 9774h is too long: the maximum is 9773h`},
		{"warnings: {dashboard: 'https://a/?x'}", "", `1:23: warnings.dashboard: the URL must not have a query; write the address of the dashboard, such as https://gate.internal:6070`},
		{"warnings: {webhooks: [null]}", "", `1:23: "url" has no value`},
		{"warnings: {webhooks: [" + strings.Repeat("http://a, ", 17) + "]}", "", `1:183: warnings.webhooks: more than 16 webhooks`},
		{"warnings: {rule_near_limit: [75]}", "", `1:29: warnings.rule_near_limit: "75" is not a percentage from 1% to 100%`},
		{"warnings: {rule_near_limit: [1%, 2%, 3%, 4%, 5%]}", "", `1:29: warnings.rule_near_limit: 5 levels, want 1 to 4; write [75%, 90%, 100%], or "off"`},
		{"warnings: {key_refused: {share: half}}", "", `1:33: warnings.key_refused.share: "half" is not a percentage from 1% to 100%`},
		{"warnings: {key_refused: {for: 1s}}", "", `1:31: warnings.key_refused.for: 1s is too short: the minimum is 5s`},
		{"warnings: {key_refused: {for: 2h}}", "", `1:31: warnings.key_refused.for: 2h is too long: the maximum is 1h`},
		{"{queue: {path: a}, warnings: {path: a}}", "", `1:37: warnings.path: the file is used for something else`},
		{"warnings: {keys: plain}", "", `1:18: warnings.keys: "plain" is not one of hashed, clear, none`},
		{"", "WARNINGS_WEBHOOKS=example.com", `HEADGATE_WARNINGS_WEBHOOKS: the URL does not start with http:// or https://`},
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

func TestUnsignedWebhooksAreWarnedOf(t *testing.T) {
	c, _ := warnings(t, "warnings: {webhooks: [https://hooks.example.com/T0/secret]}", nil)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Error(), "hooks.example.com: messages are not signed") || strings.Contains(c.Warnings[0].Error(), "T0") {
		t.Errorf("%v", c.Warnings)
	}
}
