package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

// TestOnlyTheProxy: if all requests come through the proxy, rules may only use
// attributes of HTTP, for serve and check alike.
func TestOnlyTheProxy(t *testing.T) {
	const proxy = "proxy: {upstream: http://127.0.0.1:9000}\n"
	for _, row := range []struct {
		text, variable, value string
		want                  bool
	}{
		{proxy + "listen: {api: off, grpc: off, resp: off}\n", "", "", true},
		{proxy + "listen: {api: off, grpc: off, resp: off}\n", "HEADGATE_LISTEN_API", "127.0.0.1:8080", false},
		{proxy + "listen: {api: off, grpc: off, resp: off}\n", "HEADGATE_PROXY_LISTEN", "off", false},
		{proxy + "listen: {grpc: off, resp: off}\n", "", "", false},
		{proxy + "listen: {grpc: off, resp: off}\n", "HEADGATE_LISTEN_API", "off", true},
		{proxy + "listen: {api: off, resp: off}\n", "", "", false},
		{proxy + "listen: {api: off, grpc: off}\n", "", "", false},
		{proxy + "listen: {api: off, grpc: off, resp: off, shared: 127.0.0.1:6000}\n", "", "", false},
		{"listen: {api: off, grpc: off, resp: off}\n", "", "", false},
	} {
		served, checked := ruleOptions(t, row.text, row.variable, row.value)
		if served.OnlyHTTP != row.want || checked.OnlyHTTP != row.want {
			t.Errorf("%+v: served %t, checked %t", row, served.OnlyHTTP, checked.OnlyHTTP)
		}
	}
}

// ruleOptions returns how serve and check read rules, with a file and an environment
// variable.
func ruleOptions(t *testing.T, text, variable, value string) (served, checked rulefile.Options) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	from := config.Sources{Doors: app.Sections(), File: file, Environment: func(name string) (string, bool) {
		if name != variable {
			return "", false
		}
		return value, true
	}}
	c, err := config.Load(from)
	if err != nil {
		t.Fatal(text, err)
	}
	offline, err := config.LoadOffline(from)
	if err != nil {
		t.Fatal(text, err)
	}
	return c.RuleOptions, offline.RuleOptions
}

// TestFieldsThatTheProxyKeepsOut: the proxy drops fields with underscores unless it is
// set to allow them, for serve and check alike.
func TestFieldsThatTheProxyKeepsOut(t *testing.T) {
	const proxy = "proxy: {upstream: http://127.0.0.1:9000}\n"
	for _, row := range []struct {
		text, variable, value string
		want                  bool
	}{
		{proxy, "", "", true},
		{proxy, "HEADGATE_PROXY_UNDERSCORES", "refuse", true},
		{proxy, "HEADGATE_PROXY_UNDERSCORES", "allow", false},
		{"log: {level: info}\n", "", "", false},
	} {
		served, checked := ruleOptions(t, row.text, row.variable, row.value)
		if served.PlainFields != row.want || checked.PlainFields != row.want {
			t.Errorf("%+v: served %t, checked %t", row, served.PlainFields, checked.PlainFields)
		}
	}
}

// TestTokensThatNothingVerifies: HTTP requests only have claims if there are keys, for
// serve and check alike.
func TestTokensThatNothingVerifies(t *testing.T) {
	const proxy = "proxy: {upstream: http://127.0.0.1:9000}\n"
	for _, row := range []struct {
		text, variable, value string
		want                  bool
	}{
		{proxy, "", "", true},
		{proxy + "listen: {api: off, grpc: off, resp: off}\n", "", "", true},
		{proxy, "HEADGATE_JWT_KEYS", "https://login.example.com/keys.json", false},
		{proxy + "jwt: {secret_file: secret}\n", "", "", false},
		{proxy, "HEADGATE_PROXY_LISTEN", "off", false},
		{"log: {level: info}\n", "", "", false}, // callers may send claims
		{"trusted_proxies: [10.0.0.0/8]\n", "", "", true},
		{"log: {level: info}\n", "HEADGATE_TRUSTED_PROXIES", "10.0.0.0/8", true},
		{"trusted_proxies: [10.0.0.0/8]\njwt: {secret_file: secret}\n", "", "", false},
	} {
		served, checked := ruleOptions(t, row.text, row.variable, row.value)
		if served.NoTokens != row.want || checked.NoTokens != row.want {
			t.Errorf("%+v: served %t, checked %t", row, served.NoTokens, checked.NoTokens)
		}
	}
}
