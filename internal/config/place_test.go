package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// An error about a setting in the file has its position, even if it is found after the
// file was read. An error about a setting from elsewhere has none.
func TestPlaces(t *testing.T) {
	for _, row := range []struct{ text, variable, source, want string }{
		{"log: {level: info}\nproxy: {domain: apii}\n", "", "proxy.domain", "headgate.yaml:2:17: proxy.domain: wrong"},
		{"proxy: {domain: apii}\n", "HEADGATE_PROXY_DOMAIN", "proxy.domain", "proxy.domain: wrong"},
		{"store: redis://x\n", "", "store.redis", "headgate.yaml:1:8: store: wrong"},
		{"store: redis\n", "", "store.redis.url", "headgate.yaml:1:8: store: wrong"},
		{"store:\n  redis: {url: redis://x}\n", "", "store.redis.url", "headgate.yaml:2:16: store.redis.url: wrong"},
		{"store:\n  redis: {url: redis://x}\n", "", "store.redis", "headgate.yaml:2:3: store.redis: wrong"},
		{"store:\n  redis: {url: redis://x}\n", "HEADGATE_STORE", "store.redis", "store.redis: wrong"},
		{"log: {level: info}\n", "", "store.redis", "store.redis: wrong"},
	} {
		file := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: environment(map[string]string{row.variable: "memory"})})
		if err != nil {
			t.Fatal(err)
		}
		got := c.Locate(&config.SourceError{Source: row.source, Message: "wrong"}).Error()
		if _, after, ok := strings.Cut(got, filepath.Dir(file)+"/"); ok {
			got = after
		}
		if got != row.want {
			t.Errorf("%q: %q, want %q", row.text, got, row.want)
		}
	}
	var none error
	if c := new(config.Config); c.Locate(none) != nil {
		t.Error("no error is one")
	}
}

// The upstream must not be the proxy itself; the error has the position of the address.
func TestUpstreamThatIsTheProxy(t *testing.T) {
	for _, row := range []struct {
		upstream, listen string
		wrong            bool
	}{
		{"http://127.0.0.1:8000", "127.0.0.1:8000", true},
		{"h2c://localhost:8000", "127.0.0.1:8000", true},
		{"http://127.0.0.1:8000", ":8000", true},
		{"http://[::1]:8000", ":8000", true},
		{"http://[::1]:8000", "[::]:8000", true},
		{"http://127.0.0.1:8000", "0.0.0.0:8000", true},
		{"http://example.org", "example.org:80", true},
		{"https://127.0.0.1", "127.0.0.1:443", true},
		{"http://[::1]:8000", "0.0.0.0:8000", false},
		{"http://127.0.0.1:8001", "127.0.0.1:8000", false},
		{"http://127.0.0.2:8000", "127.0.0.1:8000", false},
		{"http://10.0.0.7:8000", ":8000", false},
		{"http://app:8000", ":8000", false},
		{"http://127.0.0.1:8000", "off", false},
		{"unix:/run/app.sock", "127.0.0.1:8000", false},
	} {
		file := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(file, []byte("proxy: {listen: '"+row.listen+"', upstream: '"+row.upstream+"'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none})
		if (err != nil) != row.wrong || err != nil && !strings.Contains(err.Error(), "headgate.yaml:1:") || err != nil && !strings.Contains(err.Error(), "is the address of the proxy itself") {
			t.Errorf("%+v: %v", row, err)
		}
	}
}

// Words that other programs use get a suggestion.
func TestWordsOfOthers(t *testing.T) {
	for text, want := range map[string]string{
		"log: {level: warning}": `did you mean "warn"?`,
		"log: {level: verbose}": `did you mean "debug"?`,
		"log: {level: fatal}":   `did you mean "error"?`,
		"log: {format: logfmt}": `did you mean "text"?`,
		"compat: envoyproxy":    `did you mean "envoy"?`,
	} {
		file := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// check --config reports the warnings of serve.
func TestWarningsForCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte("proxy: {listen: ':1'}\ntrusted_proxies: [0.0.0.0/0]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadOffline(config.Sources{Doors: app.Sections(), File: file, Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings; len(w) != 2 || w[0].Line != 1 || w[1].Line != 2 || w[1].Column != 18 {
		t.Error(w)
	}
	if c, err = config.LoadOffline(config.Sources{Environment: none}); err != nil || len(c.Warnings) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// It knows what serve refuses, which an environment may mend: a secret, or a store.
func TestConflictsForCheck(t *testing.T) {
	for text, want := range map[string]string{
		"proxy_protocol: [api]":                            "no peer is trusted",
		"listen: {admin: 0.0.0.0:8081}":                    "there is no token",
		"listen: {resp: 0.0.0.0:6380}":                     "there is no password",
		"api: {tls: {client_ca: x}}":                       "no certificate is set",
		"regions: {name: eu, peers: {us: 'redis://eu:1'}}": "counts in memory",
		"jwt: {issuer: me}":                                "no keys to verify",
	} {
		errs := conflicts(t, text, none)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "headgate.yaml:1:") || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v, want %q", text, errs, want)
		}
	}
	given := environment(map[string]string{"HEADGATE_ADMIN_TOKEN": strings.Repeat("secret", 6), "HEADGATE_SHUTDOWN_TIMEOUT": "wrong"})
	if errs := conflicts(t, "listen: {admin: 0.0.0.0:8081}", given); len(errs) != 0 {
		t.Errorf("with a token in the environment: %v", errs)
	}
}

// conflicts returns the conflicts in a configuration file with an environment.
func conflicts(t *testing.T, text string, environment func(string) (string, bool)) config.Errors {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadOffline(config.Sources{Doors: app.Sections(), File: file, Environment: environment})
	if err != nil || len(c.Warnings) != 0 {
		t.Fatalf("%s: %v", text, err)
	}
	return c.Conflicts()
}
