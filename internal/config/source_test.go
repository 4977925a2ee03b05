package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

func TestSettingsThatExcludeEachOther(t *testing.T) {
	rows := []struct {
		name  string
		flags map[string]string
		want  string // part of the error
	}{
		{"files and xds", map[string]string{"rules_from": "xds", "rules": "a.yaml"}, `"rules" lists files too`},
		{"xds alone", map[string]string{"rules_from": "xds"}, ""},
		{"neither", map[string]string{"rules_from": "xdz"}, `did you mean "xds"?`},
		{"no host", map[string]string{"xds.address": ":18000"}, "not an address to connect to"},
		{"no port", map[string]string{"xds.address": "gateway"}, "not an address to connect to"},
		{"admin for all", map[string]string{"listen.admin": ":6070"}, "there is no token"},
		{"admin for some", map[string]string{"listen.admin": "10.0.0.1:6070"}, "there is no token"},
		{"admin by name", map[string]string{"listen.admin": "example.com:6070"}, "there is no token"},
		{"admin with a token", map[string]string{"listen.admin": ":6070", "admin.token": "0123456789abcdef"}, ""},
		{"admin off", map[string]string{"listen.admin": "off"}, ""},
		{"admin on IPv6", map[string]string{"listen.admin": "[::1]:6070"}, ""},
		{"admin on localhost", map[string]string{"listen.admin": "localhost:6070"}, ""},
		{"guessable token", map[string]string{"admin.token": "hunter2"}, "shorter than 16"},
		{"half true", map[string]string{"admin.pprof": "maybe"}, "neither true nor false"},
	}
	for _, row := range rows {
		_, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: row.flags})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the token is in the message: %v", row.name, err)
		}
	}
}

// The default folder of rules has no effect with xDS.
func TestXDSTakesNoNoticeOfTheDefaultFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir(config.DefaultRules, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(map[string]string{
		"HEADGATE_RULES_FROM": "xds", "HEADGATE_XDS_ADDRESS": "gateway:18001",
	})})
	if err != nil || c.RulesFrom != config.FromXDS || len(c.Rules) != 0 || c.XDS.Address != "gateway:18001" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestXDSOfEnvoy(t *testing.T) {
	c, err := config.Load(manifest(
		"CONFIG_TYPE", "GRPC_XDS_SOTW", "RUNTIME_ROOT", "/data", "CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001", "CONFIG_GRPC_XDS_SERVER_USE_TLS", "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt", "CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-gateway",
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s",
	))
	if err != nil {
		t.Fatal(err)
	}
	want := config.XDS{
		Address: "envoy-gateway:18001", NodeID: "envoy-ratelimit", TLS: true,
		CA: "/certs/ca.crt", Cert: "/certs/tls.crt", Key: "/certs/tls.key", ServerName: "envoy-gateway",
	}
	if c.XDS != want || c.RulesFrom != config.FromXDS {
		t.Errorf("from %s: %+v, want %+v", c.RulesFrom, c.XDS, want)
	}
	if _, err := config.Load(manifest("CONFIG_TYPE", "HTTP")); err == nil || !strings.Contains(err.Error(), "CONFIG_TYPE") {
		t.Errorf("HTTP: %v", err)
	}
}

func TestSecretsDoNotShowThemselves(t *testing.T) {
	const secret = "correct-horse-battery"
	c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: environment(map[string]string{"HEADGATE_ADMIN_TOKEN": secret})})
	if err != nil || string(adminOf(c).Token) != secret {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "token", adminOf(c).Token)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "token", adminOf(c).Token)
	text, err := json.Marshal(adminOf(c))
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{log.String(), string(text), fmt.Sprintf("%v %+v %#v %s %q", *adminOf(c), *adminOf(c), *adminOf(c), adminOf(c).Token, adminOf(c).Token)} {
		if strings.Contains(shown, secret) {
			t.Errorf("the secret is in %s", shown)
		}
	}
}

// The message about a wrong line does not repeat a secret; the excerpt is shown
// elsewhere.
func TestSecretInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte("admin: {token: hunter2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), ":1:16: admin.token") {
		t.Errorf("%v", err)
	}
}

// Invalid YAML gets a hint on what to do.
func TestSyntaxHints(t *testing.T) {
	for text, want := range map[string]string{
		"listen:\n\tapi: 127.0.0.1:1\n":               "2:1: not valid YAML: found character that cannot start any token; indent with spaces, not tabs",
		"listen:\n  api: 127.0.0.1:1\n\t grpc: off\n": "indent with spaces, not tabs",
		"headers: none\nshutdown_timeout:5s\n":        "write key: value, with a space after the colon",
		"shutdown_timeout: 5\n":                       "write a number with a unit, such as 30s or 5m",
	} {
		name := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Sources{Doors: app.Sections(), File: name, Environment: none}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// check --config finds what serve would refuse.
func TestRulesOfAFileWhoseDoorsContradictThemselves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte("rules: [rules.yaml]\nproxy: {upstream: 'http://127.0.0.1:9', adaptive: {mode: on, min: 30, max: 5}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadOffline(config.Sources{File: file, Doors: app.Sections(), Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NamedRules(); err == nil || !strings.Contains(err.Error(), "min (30) is above max (5)") {
		t.Errorf("%v", err)
	}
}
