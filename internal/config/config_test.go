package config_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/door/grpc"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/inline"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/transport/proxyproto"
)

func apiOf(c *config.Config) *api.Settings     { return config.Own[api.Settings](c) }
func grpcOf(c *config.Config) *grpc.Settings   { return config.Own[grpc.Settings](c) }
func respOf(c *config.Config) *resp.Settings   { return config.Own[resp.Settings](c) }
func adminOf(c *config.Config) *admin.Settings { return config.Own[admin.Settings](c) }
func proxyOf(c *config.Config) *proxy.Settings { return config.Own[proxy.Settings](c) }

// listening returns the addresses of doors by name.
func listening(c *config.Config) map[string]string {
	at := map[string]string{}
	for _, s := range app.Sections() {
		at[s.Name] = c.Door(s.Name).Address
	}
	return at
}

// none is an empty environment.
func none(string) (string, bool) { return "", false }

func environment(list map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := list[name]
		return v, ok
	}
}

func TestFullFile(t *testing.T) {
	got, err := config.Load(config.Sources{Doors: app.Sections(), File: "testdata/full.yaml", Environment: none})
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		File:  "testdata/full.yaml",
		Rules: []string{"testdata/rules", "testdata/more.yaml"},

		RulesFrom:   config.FromFiles,
		RuleOptions: rulefile.Options{Compat: rules.CompatEnvoy, MergeDomains: true, PlainFields: true, ProxyDomain: "api"},
		XDS: config.XDS{
			Address: "gateway:18001", NodeID: "n", TLS: true,
			CA: "testdata/tls/ca", Cert: "testdata/tls/cert", Key: "testdata/tls/key", ServerName: "s",
		},
		Store: config.Store{Kind: config.InMemory, KeyTimes: true, Memory: config.Memory{
			MaxKeys: 1000, MaxBytes: 64 << 20, Snapshot: "testdata/state/counts", SnapshotInterval: 30 * time.Second,
		}, Redis: config.Redis{DenyCache: config.DefaultDenyCache}},
		Envoy: config.Envoy{
			LimitHeader: "RateLimit-Limit", RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset",
		},
		Queue:  config.Queue{Path: "testdata/state/queue", StatusPath: "/later/", Replicas: 1},
		Inline: inline.Default(),
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"),
		},
		ProxyProtocol: config.ProxyProtocol{Doors: []string{"proxy", "grpc"}, Untrusted: proxyproto.Ignore},
		JWT: config.JWT{
			Keys: "https://login.example.com/jwks.json", SecretFile: "testdata/jwt/secret",
			Issuer: "https://login.example.com/", Audience: []string{"api", "web"}, Algorithms: []string{"ES256", "HS256"},
			Header: "X-Token", Cookie: "session", Leeway: time.Minute, Refresh: time.Hour, OnInvalid: config.InvalidRefuse,
		},
		EarlyWarning:  fullWarnings(),
		UnknownDomain: engine.UnknownDomainRefuse, Headers: answer.IETF,
		Log:           config.Log{Level: slog.LevelDebug, Format: config.TextLines},
		ShutdownDelay: 2 * time.Second, ShutdownTimeout: time.Minute, ShutdownIdle: time.Second,
	}
	got.Warnings = nil // they depend on the file modes that git sets
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.IgnoreUnexported(config.Config{})); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]config.Door{
		"api": {Address: "off"}, "grpc": {Address: grpc.DefaultAddress}, "admin": {Address: admin.DefaultAddress}, "shared": {},
		"proxy": {Address: ":8000"},
		"resp": {
			Address: ":6380", HTTP: config.HTTP{MaxConnections: 100},
			TLS: config.TLS{Cert: "testdata/tls/cert", Key: "testdata/tls/key", ClientCA: "testdata/tls/ca", ClientNames: []string{"s"}},
		},
	} {
		if diff := cmp.Diff(want, *got.Door(name), cmpopts.IgnoreUnexported(config.Door{}), cmpopts.IgnoreFields(config.Door{}, "Section")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	own := []any{*apiOf(got), *grpcOf(got), *respOf(got), *adminOf(got), *proxyOf(got)}
	if diff := cmp.Diff([]any{
		api.Settings{},
		grpc.Settings{},
		resp.Settings{Password: "secret", IdleTimeout: time.Minute},
		admin.Settings{Token: "0123456789abcdef", Pprof: true, Keys: admin.AutoKeys},
		proxy.Settings{Domain: "api", Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:9000", Path: "/base"}},
	}, own, cmpopts.IgnoreUnexported(proxy.CORS{})); diff != "" {
		t.Error(diff)
	}
}

// All errors are reported together, each with its position.
func TestWrongFile(t *testing.T) {
	_, err := config.Load(config.Sources{Doors: app.Sections(), File: "testdata/wrong.yaml", Environment: none})
	var problems diagnostic.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("err %v, want diagnostic.Problems", err)
	}
	want, err := os.ReadFile("testdata/wrong.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), problems.Error()); diff != "" {
		t.Error(diff)
	}
}

func load(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	return config.Load(config.Sources{Doors: app.Sections(), File: write(t, text), Environment: none})
}

// write writes a text to a file and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOddFiles(t *testing.T) {
	rows := []struct{ name, text, want string }{
		{"empty", "", ""},
		{"comments", "# nothing\n", ""},
		{"null", "null\n", ""},
		{"empty sections", "store:\nlisten: {}\n", ""},
		{"aliases", "rules: [&a x.yaml, *a]\n", ""},
		{"rules", "domain: api\nlimits: []\n", `:2:1: this is a rule file, not a configuration: "limits" is a key of rule files`},
		{"a list", "- a\n", "the configuration must be a mapping"},
		{"tabs", "listen:\n\tapi: x\n", ":2:1: not valid YAML"},
		{"two documents", "rules: [a]\n---\nrules: [b]\n", "a single YAML document; this is a second one"},
		{"not UTF-8", "rules: [\xff]\n", "not valid UTF-8"},
		{"alias of itself", "store: &a\n  memory: *a\n", `the alias "*a" refers to itself`},
		{"nested too deeply", strings.Repeat("[", 100), "not valid YAML"},
		{"too large", "# " + strings.Repeat("x", 1<<20), "larger than 1 MiB"},
		{"size without sense", "store: {memory: {max_bytes: 9999999999GiB}}\n", "is not a size"},
		{"size without a unit", "store: {memory: {max_bytes: 256}}\n", "256 is below the minimum of 1MiB"},
		{"the least size", "store: {memory: {max_bytes: 1MiB}}\n", ""},
		{"no keys", "store: {memory: {max_keys: 0}}\n", "whole number from 1"},
		{"interval of nothing", "store: {memory: {snapshot_interval: 1ms}}\n", "too short"},
		{"upstream with a password", "proxy: {upstream: \"http://u:p@x\"}\n", "must not have a user, query or fragment"},
		{"upstream without a host", "proxy: {upstream: \"http:///x\"}\n", "has no host"},
		{"upstream with an impossible port", "proxy: {upstream: \"http://h:65536\"}\n", "the port of \"http://h:65536\" is not a number from 1 to 65535"},
		{"zone", "trusted_proxies: [\"fe80::1%eth0\"]\n", "is not a network"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := load(t, row.text)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("err %v, want %q", err, row.want)
			}
		})
	}
}

func TestFlagsBeforeEnvironmentBeforeFileBeforeDefaults(t *testing.T) {
	variables := map[string]string{}
	flags := map[string]string{}
	steps := []struct {
		change func()
		file   string
		want   string
	}{
		{func() {}, "", "127.0.0.1:8080"},
		{func() {}, "testdata/one.yaml", ":1"},
		{func() { variables["HEADGATE_LISTEN_API"] = ":2" }, "testdata/one.yaml", ":2"},
		{func() { flags["listen.api"] = ":3" }, "testdata/one.yaml", ":3"},
		{func() { delete(flags, "listen.api"); variables["HEADGATE_LISTEN_API"] = "" }, "testdata/one.yaml", ":1"},
		{func() { variables["HEADGATE_CONFIG"] = "testdata/one.yaml" }, "", ":1"},
	}
	for i, step := range steps {
		step.change()
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: step.file, Flags: flags, Environment: environment(variables)})
		if err != nil {
			t.Fatal(err)
		}
		if c.Door("api").Address != step.want {
			t.Errorf("step %d: %s, want %s", i, c.Door("api").Address, step.want)
		}
	}
}

func TestWrongFlagsAndVariables(t *testing.T) {
	_, err := config.Load(config.Sources{
		Doors: app.Sections(), NoFile: true,
		Flags:       map[string]string{"log.level": "loud"},
		Environment: environment(map[string]string{"HEADGATE_TRUSTED_PROXIES": "10.0.0.0/8, here"}),
	})
	want := "HEADGATE_TRUSTED_PROXIES: \"here\" is not a network\n--log-level: \"loud\" is not one of debug, info, warn, error"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := config.Load(config.Sources{Doors: app.Sections(), File: "nowhere.yaml", Environment: none}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err %v", err)
	}
}

// Without any settings: the memory store, and the rules in ./rules, if any.
func TestNothingAtAll(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := config.Load(config.Sources{Environment: none})
	if err != nil || len(c.Rules) != 0 || c.Door("proxy").Open() {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.Mkdir("rules", 0o700); err != nil {
		t.Fatal(err)
	}
	c, err = config.Load(config.Sources{Environment: none})
	if err != nil || len(c.Rules) != 1 || c.Rules[0] != "rules" {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, name := range []string{"testdata/full.yaml", "testdata/wrong.yaml", "testdata/one.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &a [*a]\n")
	f.Add("<<: {rules: x}\n")
	file := filepath.Join(f.TempDir(), "headgate.yaml") // a folder for each would take longer than the rest
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: none})
		if (c == nil) != (err != nil) {
			t.Errorf("config %v and err %v", c, err)
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error without words")
		}
	})
}
