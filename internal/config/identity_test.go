package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

func TestWrongIdentity(t *testing.T) {
	t.Parallel()
	const trusted = "trusted_proxies: [10.0.0.0/8]\n"
	rows := []struct{ file, want string }{
		{trusted + "proxy_protocol: [proxy, apis]\n", `headgate.yaml:2:17: proxy_protocol: "apis" is not one of api, grpc, resp, admin, proxy, shared, did you mean "api"?`},
		{trusted + "proxy_protocol: [api, api]\n", `headgate.yaml:2:17: proxy_protocol: duplicate "api"`},
		{trusted + "proxy_protocol_untrusted: ignor\n", `headgate.yaml:2:27: proxy_protocol_untrusted: "ignor" is not one of refuse, ignore, did you mean "ignore"?`},
		{"proxy_protocol: [api]\n", "proxy_protocol: no peer is trusted"},
		{trusted + "proxy_protocol: [proxy, admin]\n", "proxy_protocol: it lets other machines use the admin door, but there is no token"},
		{trusted + "listen: {resp: 127.0.0.1:6380}\nproxy_protocol: [resp]\n", "proxy_protocol: it lets other machines use the Redis protocol, but there is no password"},
		{trusted + "listen: {shared: 127.0.0.1:8000}\nproxy_protocol: [shared]\n", "proxy_protocol: it lets other machines use the Redis protocol, but there is no password"},
		{"jwt: {key: k.pem}\n", `headgate.yaml:1:7: unknown key "key" in jwt, did you mean "keys"?`},
		{"jwt: {keys: http://login.example.com/k}\n", "headgate.yaml:1:13: jwt.keys: keys fetched over plain http can be forged"},
		{"jwt: {keys: ftp://login.example.com/k}\n", "headgate.yaml:1:13: jwt.keys: keys cannot be fetched over ftp"},
		{"jwt: {keys: https://user@login.example.com/k}\n", "headgate.yaml:1:13: jwt.keys: "},
		{"jwt: {keys: k.pem, algorithms: [RS265]}\n", `headgate.yaml:1:32: jwt.algorithms: "RS265" is not one of RS256, `},
		{"jwt: {keys: k.pem, algorithms: [none]}\n", `headgate.yaml:1:32: jwt.algorithms: "none" is not one of RS256, `},
		{"jwt: {keys: k.pem, algorithms: [HS256]}\n", "jwt.algorithms: the HS algorithms need a secret"},
		{"jwt: {secret_file: s, algorithms: [RS256]}\n", "jwt.secret_file: none of jwt.algorithms uses a secret"},
		{"jwt: {keys: k.pem, secret_file: s, algorithms: [HS256]}\n", "jwt.keys: none of jwt.algorithms uses public keys"},
		{"jwt: {keys: k.pem, on_invalid: reject}\n", `headgate.yaml:1:32: jwt.on_invalid: "reject" is not one of anonymous, refuse`},
		{"jwt: {keys: k.pem, leeway: -1s}\n", "headgate.yaml:1:28: jwt.leeway: -1s is too short"},
		{"jwt: {keys: k.pem, refresh: 1ms}\n", "headgate.yaml:1:29: jwt.refresh: 1ms is too short"},
		{"jwt: {keys: k.pem, header: \"X Token\"}\n", `headgate.yaml:1:28: jwt.header: "X Token" is not a valid name`},
		{"jwt: {issuer: me}\n", "jwt: there are no keys"},
		{"keys: {secret: x}\n", `headgate.yaml:1:8: unknown key "secret" in keys; use secret_file`},
		{"key: {secret_file: x}\n", `headgate.yaml:1:1: unknown key "key"`},
		{"keys: {secret_file: nowhere}\n", "headgate.yaml:1:21: keys.secret_file: "},
	}
	for _, row := range rows {
		name := filepath.Join(t.TempDir(), "headgate.yaml")
		if err := os.WriteFile(name, []byte(row.file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.Sources{Doors: app.Sections(), File: name, Environment: none})
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), filepath.Dir(name)+string(filepath.Separator), ""), row.want) {
			t.Errorf("%q: %v, want %q", row.file, err, row.want)
		}
	}
}

func TestIdentityThatIsRight(t *testing.T) {
	t.Parallel()
	for _, set := range []map[string]string{
		{"jwt.keys": "http://127.0.0.1:9/jwks.json"},
		{"jwt.keys": "http://localhost/jwks.json"},
		{"jwt.keys": "https://login.example.com/jwks.json?v=1"},
		{"jwt.secret_file": "s", "jwt.algorithms": "HS256,HS512"},
		{"jwt.secret_file": "s", "jwt.keys": "k.pem"},
		{"proxy_protocol": "grpc", "listen.grpc": "unix:/run/headgate.sock"},
		{"proxy_protocol": "grpc, proxy", "trusted_proxies": "10.0.0.1"},
		{"proxy_protocol": "admin", "trusted_proxies": "10.0.0.1", "listen.admin": "off"},
	} {
		if _, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: set}); err != nil {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// The secret is read unchanged, except for newlines at its end, and is not shown.
func TestKeySecret(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Repeat("s", 32) + "\r\n":   "",
		strings.Repeat("s", 31) + "\n\n\n": "the secret is shorter than 32 characters",
		"\n":                               "the file is empty",
		strings.Repeat("s", 65<<10):        "larger than 64 KiB",
	} {
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: map[string]string{"keys.secret_file": name}})
		switch {
		case want == "" && (err != nil || string(c.RuleOptions.KeySecret) != strings.Repeat("s", 32)):
			t.Errorf("%q: %v", text, err)
		case want == "" && strings.Contains(fmt.Sprintf("%v %+v %#v", c, *c, c.RuleOptions), "sss"):
			t.Error("the secret is shown")
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
