package config_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/request/reading"
)

// loadFlags loads settings from flags.
func loadFlags(flags map[string]string) (*config.Config, error) {
	return config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: flags})
}

func TestDoors(t *testing.T) {
	for _, row := range []struct {
		flags map[string]string
		says  string // the error; empty if there is none
	}{
		{map[string]string{"api.tls.cert": "c"}, "api.tls.key: no key is set"},
		{map[string]string{"admin.tls.key": "k"}, "admin.tls.cert: no certificate is set"},
		{map[string]string{"tls.cert": "c"}, "tls.key: no key is set"},
		{map[string]string{"tls.key": "k"}, "tls.cert: no certificate is set"},
		{map[string]string{"tls.min_version": "1.3"}, ""},
		{map[string]string{"tls.cert": "c", "tls.key": "k", "grpc.tls.client_ca": "a"}, ""},
		{map[string]string{"tls.cert": "c", "tls.key": "k", "grpc.tls.cert": "d"}, "grpc.tls.key: no key is set"},
		{map[string]string{"grpc.tls.cert": "c", "grpc.tls.key": "k", "grpc.tls.client_names": "a"}, "grpc.tls.client_names: names cannot"},
		{map[string]string{"tls.min_version": "1.1"}, `"1.1" is not one of 1.2, 1.3`},
		{map[string]string{"api.token": "short"}, "shorter than 16"},
		{map[string]string{"api.explain": "of"}, "neither on nor off"},
		{map[string]string{"proxy.header_timeout": "1ms"}, "too short"},
		{map[string]string{"proxy.body_timeout": "1ms"}, "too short"},
		{map[string]string{"proxy.abandoned.timeout": "1ms"}, "too short"},
		{map[string]string{"proxy.body_timeout": "never"}, "not a duration"},
		{map[string]string{"proxy.paths": "refused"}, `is not one of forward, clean, refuse, did you mean "refuse"?`},
		{map[string]string{"listen.shared": ":1", "resp.password": "x"}, ""},
		{map[string]string{"listen.shared": ":1"}, "listen.shared: :1 is reachable from other machines"},
		{map[string]string{"listen.shared": ":1", "listen.resp": "off"}, ""},
		{map[string]string{"listen.shared": "127.0.0.1:1", "api.tls.cert": "c", "api.tls.key": "k"}, "api.tls: this door is on the shared port"},
		{map[string]string{"listen.shared": "127.0.0.1:1", "listen.api": "127.0.0.1:2", "api.tls.cert": "c", "api.tls.key": "k"}, ""},
		{map[string]string{"listen.shared": "127.0.0.1:1", "proxy_protocol": "api", "trusted_proxies": "10.0.0.0/8"}, "proxy_protocol: the door api is on the shared port"},
		{map[string]string{"proxy.upstream": "http://x", "proxy.upstream_tls.ca": "ca"}, "upstream_tls is set"},
		{map[string]string{"proxy.upstream": "https://x", "proxy.upstream_tls.cert": "c"}, "must be set together"},
	} {
		_, err := loadFlags(row.flags)
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v: %v, want %q", row.flags, err, row.says)
		}
	}
}

// One certificate is for all doors that have none of their own; client certificates are
// asked for where a door says so, and nowhere else.
func TestDoorsInheritTheCertificate(t *testing.T) {
	c, err := loadFlags(map[string]string{
		"tls.cert": "c", "tls.key": "k", "tls.min_version": "1.3", "admin.tls.cert": "d", "admin.tls.key": "e",
		"resp.tls.client_ca": "ca", "listen.grpc": "unix:/run/headgate.sock", "proxy.upstream": "http://x",
	})
	if err != nil {
		t.Fatal(err)
	}
	for door, want := range map[string]string{"api": "c k ", "proxy": "c k ", "admin": "d e ", "resp": "c k ca", "grpc": "  "} {
		d := c.Door(door).TLS
		if got := d.Cert + " " + d.Key + " " + d.ClientCA; got != want || d.Enabled() != (d.MinVersion == tls.VersionTLS13) {
			t.Errorf("%s: %q from version %x, want %q", door, got, d.MinVersion, want)
		}
	}
	c, err = loadFlags(map[string]string{"listen.shared": "127.0.0.1:1", "tls.cert": "c", "tls.key": "k"})
	if err != nil || c.Door("shared").TLS.Cert != "c" || c.Door("api").TLS.Enabled() {
		t.Errorf("on one port: %v, %+v", err, c.Door("shared").TLS)
	}
}

// A setting that has ended is refused with what to use instead.
func TestEndedSettings(t *testing.T) {
	for text, want := range map[string]string{
		"grpc:\n  tls: {cert: c, key: k, client_ca: a, client_name: b}\n": ":2:40: grpc.tls.client_name is not a setting any more; set client_names, which takes a single name too",
		"api: {header_timeout: 5s}\n":                                     ":1:7: api.header_timeout is not a setting any more; leave it out: the door has limits that suit its callers (docs/run/tls.md)",
		"store:\n  redis: {addresses: [a:1]}\n":                           ":2:11: store.redis.addresses is not a setting any more; write them in store.redis.url: redis://host:6379, redis+sentinel://a,b/primary or redis+cluster://a,b (docs/run/redis.md)",
		"api:\n  tls: {min_version: \"1.3\"}\n":                           ":2:9: api.tls.min_version is not a setting any more; set tls.min_version, which is for all doors",
	} {
		if _, err := load(t, text); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A door has settings, but not the one that it needs.
func TestSettingsOfAClosedDoor(t *testing.T) {
	for text, want := range map[string]string{
		"proxy: {adaptive: {mode: on}}\n":                                      ":1:1: proxy: the proxy does not start without proxy.upstream",
		"proxy: {adaptive: {mode: on}, upstream: \"http://127.0.0.1:9000\"}\n": "",
		"proxy: {adaptive: {mode: on}, listen: off}\n":                         "",
	} {
		c, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		told := ""
		for _, w := range c.Warnings {
			told += w.Error()
		}
		if told != want && (want == "" || !strings.HasSuffix(told, want)) {
			t.Errorf("%q: %q, want %q", text, told, want)
		}
	}
	const want = `:1:10: unknown key "proxy" in listen; use one of api, grpc, resp, shared, admin, or proxy.listen`
	if _, err := load(t, "listen: {proxy: \"127.0.0.1:1\"}\n"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestExplains(t *testing.T) {
	const open, here = "0.0.0.0:8080", "127.0.0.1:8080"
	for _, row := range []struct {
		flags map[string]string
		want  bool
	}{
		{nil, true},
		{map[string]string{"listen.api": here}, true},
		{map[string]string{"listen.api": here, "api.explain": "off"}, false},
		{map[string]string{"listen.api": open}, false},
		{map[string]string{"listen.api": open, "api.explain": "auto"}, false},
		{map[string]string{"listen.api": open, "api.explain": "on"}, true},
		{map[string]string{"listen.api": open, "api.token": "0123456789abcdef"}, true},
		{map[string]string{"listen.api": open, "api.token": "0123456789abcdef", "api.explain": "off"}, false},
		{map[string]string{"listen.api": open, "api.tls.cert": "c", "api.tls.key": "k"}, false},
		{map[string]string{"listen.api": open, "api.tls.cert": "c", "api.tls.key": "k", "api.tls.client_ca": "a"}, true},
		{map[string]string{"listen.shared": open, "listen.resp": "off"}, false},
		{map[string]string{"listen.shared": open, "listen.resp": "off", "api.token": "0123456789abcdef"}, true},
	} {
		if c, err := loadFlags(row.flags); err != nil || api.Explains(c) != row.want {
			t.Errorf("%v: %v, want %t", row.flags, err, row.want)
		}
	}
}

func TestBodyTimeout(t *testing.T) {
	for given, want := range map[string]time.Duration{"": 0, "90s": 90 * time.Second, "off": -1} {
		flags := map[string]string{}
		if given != "" {
			flags["proxy.body_timeout"] = given
		}
		if c, err := loadFlags(flags); err != nil || proxyOf(c).BodyTimeout != want {
			t.Errorf("%q: %v, %v, want %s", given, c, err, want)
		}
	}
}

func TestMaxConnectionsPerClient(t *testing.T) {
	for given, want := range map[string]int64{"": 0, "7": 7, "off": -1} {
		for door, of := range map[string]func(*config.Config) int64{
			"api":    func(c *config.Config) int64 { return c.Door("api").HTTP.MaxPerClient },
			"proxy":  func(c *config.Config) int64 { return c.Door("proxy").HTTP.MaxPerClient },
			"shared": func(c *config.Config) int64 { return c.Door("shared").HTTP.MaxPerClient },
		} {
			flags := map[string]string{}
			if given != "" {
				flags[door+".max_connections_per_client"] = given
			}
			if c, err := loadFlags(flags); err != nil || of(c) != want {
				t.Errorf("%s, %q: %v, want %d", door, given, err, want)
			}
		}
	}
	if _, err := loadFlags(map[string]string{"api.max_connections_per_client": "0"}); err == nil {
		t.Error("0 is taken")
	}
}

func TestPaths(t *testing.T) {
	for given, want := range map[string]reading.Policy{"": reading.Forward, "forward": reading.Forward, "clean": reading.CleanUp, "refuse": reading.Refuse} {
		flags := map[string]string{}
		if given != "" {
			flags["proxy.paths"] = given
		}
		if c, err := loadFlags(flags); err != nil || proxyOf(c).Paths != want {
			t.Errorf("%q: %v, %v, want %s", given, c, err, want)
		}
	}
}

func TestSharedPortTakesWhatHasNoAddress(t *testing.T) {
	c, err := loadFlags(map[string]string{"listen.shared": "127.0.0.1:1", "listen.grpc": "127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	if !c.OnShared("api") || c.OnShared("grpc") || !c.OnShared("resp") || c.OnShared("admin") || c.OnShared("proxy") {
		t.Errorf("%+v", listening(c))
	}
	if c, err = loadFlags(nil); err != nil || c.Door("api").Address != api.DefaultAddress || c.OnShared("api") {
		t.Errorf("without it: %+v, %v", c, err)
	}
}

// TLS settings in a file have the same form for all doors.
func TestTLSOfAFile(t *testing.T) {
	folder := t.TempDir()
	var text strings.Builder
	for _, door := range []string{"api", "grpc", "resp", "proxy", "admin"} {
		fmt.Fprintf(&text, "%s: {tls: {cert: c.pem, key: k.pem, client_ca: /ca.pem, client_names: [a, b]}}\n", door)
	}
	text.WriteString("tls: {min_version: \"1.3\"}\n")
	file := filepath.Join(folder, "headgate.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range []config.TLS{c.Door("api").TLS, c.Door("grpc").TLS, c.Door("resp").TLS, c.Door("proxy").TLS, c.Door("admin").TLS} {
		want := config.TLS{
			Cert: filepath.Join(folder, "c.pem"), Key: filepath.Join(folder, "k.pem"), ClientCA: "/ca.pem",
			ClientNames: []string{"a", "b"}, MinVersion: tls.VersionTLS13,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("door %d: %+v", i, got)
		}
	}
}

// Secrets can also come from files, and are never shown.
func TestSecretsOfFiles(t *testing.T) {
	file := func(text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	c, err := loadFlags(map[string]string{
		"api.token_file": file("first-topsecret-12\n\nsecond-topsecret-1\n"), "admin.token_file": file("admin-topsecret-12\n"),
		"resp.password_file": file("topsecret\r\n"), "store.redis.url": "redis://ann:topsecret@localhost", "store.redis.password": "topsecret",
		"store.redis.sentinel_password": "topsecret",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Tokens) != 2 || c.Tokens[1] != "second-topsecret-1" || adminOf(c).Token != "admin-topsecret-12" || respOf(c).Password != "topsecret" || c.Store.Redis.Password != "topsecret" {
		t.Error("not what the files say")
	}
	asJSON, err := json.Marshal([]any{c.Tokens, adminOf(c), respOf(c), c.Store})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c) + string(asJSON); strings.Contains(text, "topsecret") {
		t.Error("a secret is shown")
	}
	for text, says := range map[string]string{"": "is empty", "short": "shorter than 16", strings.Repeat("x", 65<<10): "larger than 64 KiB"} {
		name := file(text)
		if _, err := loadFlags(map[string]string{"api.token_file": name}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.10q: %v, want %s", text, err, says)
		}
	}
}

func TestExposed(t *testing.T) {
	for _, row := range []struct {
		flags map[string]string
		want  int
	}{
		{nil, 0},
		{map[string]string{"listen.api": ":1"}, 2},
		{map[string]string{"listen.api": ":1", "api.token": "0123456789abcdef"}, 1},
		{map[string]string{"listen.api": ":1", "api.tls.cert": "c", "api.tls.key": "k"}, 1},
		{map[string]string{"listen.api": ":1", "api.tls.cert": "c", "api.tls.key": "k", "api.tls.client_ca": "ca"}, 0},
		{map[string]string{"listen.resp": ":1", "resp.password": "x"}, 1},
		{map[string]string{"listen.shared": ":1", "resp.password": "x"}, 5},
		{map[string]string{"listen.grpc": ":1"}, 2},
		{map[string]string{"listen.grpc": "unix:/run/headgate.sock"}, 0},
	} {
		c, err := loadFlags(row.flags)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Exposed(); len(got) != row.want {
			t.Errorf("%v: %+v, want %d warnings", row.flags, got, row.want)
		}
	}
}

// An address has a host that can exist: an IP address or a name.
func TestHostsOfAddresses(t *testing.T) {
	for host, want := range map[string]bool{
		"": true, "127.0.0.1": true, "[::1]": true, "[fe80::1%eth0]": true, "localhost": true, "my_service": true, "a-1.example.com.": true, "10.in-addr.example": true,
		"*": false, "256.1.1.1": false, "127.1": false, "1": false, "a b": false, "a/b": false, "[::g]": false,
	} {
		for _, key := range []string{"listen.api", "listen.grpc", "proxy.listen", "xds.address"} {
			if key == "xds.address" && host == "" {
				continue // a server to connect to has a host
			}
			_, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: map[string]string{key: host + ":8085"}})
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "neither an IP address nor the name of a host") {
				t.Errorf("%s %q: %v", key, host, err)
			}
		}
	}
}
