package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The store can be a word, a URL or a mapping, in the file and elsewhere.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := config.Redis{DenyCache: config.DefaultDenyCache}
	with := func(change func(*config.Redis)) config.Redis {
		r := redis
		change(&r)
		return r
	}
	for _, tt := range []struct {
		text, variable string
		kind           config.Kind
		redis          config.Redis
		wrong          string
	}{
		{text: "store:", kind: config.InMemory, redis: redis},
		{text: "store: memory", kind: config.InMemory, redis: redis},
		{text: "store: redis", kind: config.InRedis, redis: redis},
		{
			text: "store: rediss://h:1/2", kind: config.InRedis,
			redis: with(func(r *config.Redis) { r.URL = "rediss://h:1/2" }),
		},
		{
			text: "store: {redis: {addresses: [a:1, b:2], mode: cluster, timeout: 20ms, probe_after: 30ms, probe_every: 2s, prefix: p, strict_atomic: true, deny_cache: 0}}",
			kind: config.InRedis,
			redis: with(func(r *config.Redis) {
				r.Addresses, r.Mode, r.Timeout = []string{"a:1", "b:2"}, "cluster", 20*time.Millisecond
				r.ProbeAfter, r.ProbeEvery = 30*time.Millisecond, 2*time.Second
				r.KeyPrefix, r.StrictAtomic, r.DenyCache = "p", true, 0
			}),
		},
		{
			text: "store: {redis: {username: u, password_file: " + secret + ", db: 3, tls: true, tls_ca: ca.pem, master_name: m}}",
			kind: config.InRedis,
			redis: with(func(r *config.Redis) {
				r.Username, r.Password, r.DB = "u", "from a file", 3
				r.InFile, r.PasswordFile = "from a file", secret
				r.TLS, r.CA, r.MasterName = true, filepath.Join(dir, "ca.pem"), "m"
			}),
		},
		{variable: "redis", kind: config.InRedis, redis: redis},
		{
			text: "store: {redis: {addresses: [a:1], mode: sentinel, master_name: m, timeout: 20ms}}", variable: "redis://h:1",
			kind:  config.InRedis,
			redis: with(func(r *config.Redis) { r.URL, r.Timeout = "redis://h:1", 20*time.Millisecond }),
		},
		{text: "store: {redis: {addresses: [a:1]}}", variable: "memory", kind: config.InMemory, redis: with(func(r *config.Redis) { r.Addresses = []string{"a:1"} })},
		{text: "store: radis", wrong: `:1:8: store: "radis" is not one of memory, redis, did you mean "redis"?`},
		{text: "store: redis://:pass^word@h:1", wrong: ":1:8: store: redis: '^' in the user name or password: write it as %5E"},
		{text: "store: {redis: {url: 'redis://:pass%word@h:1'}}", wrong: ":1:22: store.redis.url: redis: a % in the user name or password that begins no escape: write it as %25"},
		{text: "store: {redis: {timeout: 5}}", wrong: `:1:26: store.redis.timeout: "5" is not a duration`},
		{text: "store: {redis: {timeout: 5us}}", wrong: "too short"},
		{text: "store: {redis: {tls: maybe}}", wrong: "is neither true nor false"},
		{text: "store: {redis: {db: -1}}", wrong: "is not a whole number from 0"},
		{text: "store: {redis: {password_file: nowhere}}", wrong: "no such file"},
		{text: "store: {radis: {}}", wrong: `unknown key "radis" in store, did you mean "redis"?`},
	} {
		file := filepath.Join(dir, "headgate.yaml")
		if err := os.WriteFile(file, []byte(tt.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: environment(map[string]string{"HEADGATE_STORE": tt.variable})})
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: error %v, want one with %q", tt.text, err, tt.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if diff := cmp.Diff(tt.redis, got.Store.Redis); diff != "" || got.Store.Kind != tt.kind {
			t.Errorf("%s: kind %s, want %s\n%s", tt.text, got.Store.Kind, tt.kind, diff)
		}
	}
}
