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
			text: "store: {redis: {url: 'redis+cluster://a:1,b:2?strict_atomic=true', timeout: 20ms, prefix: p, deny_cache: 0}}",
			kind: config.InRedis,
			redis: with(func(r *config.Redis) {
				r.URL, r.Timeout = "redis+cluster://a:1,b:2?strict_atomic=true", 20*time.Millisecond
				r.KeyPrefix, r.DenyCache = "p", 0
			}),
		},
		{
			text: "store: {redis: {username: u, password_file: " + secret + ", url: 'rediss://h/3', tls_ca: ca.pem}}",
			kind: config.InRedis,
			redis: with(func(r *config.Redis) {
				r.URL, r.Username, r.Password = "rediss://h/3", "u", "from a file"
				r.InFile, r.PasswordFile = "from a file", secret
				r.CA = filepath.Join(dir, "ca.pem")
			}),
		},
		{variable: "redis", kind: config.InRedis, redis: redis},
		{
			text: "store: {redis: {url: 'redis+sentinel://a:1/m', timeout: 20ms}}", variable: "redis://h:1",
			kind:  config.InRedis,
			redis: with(func(r *config.Redis) { r.URL, r.Timeout = "redis://h:1", 20*time.Millisecond }),
		},
		{text: "store: {redis: {url: 'redis://a:1'}}", variable: "memory", kind: config.InMemory, redis: with(func(r *config.Redis) { r.URL = "redis://a:1" })},
		{text: "store: radis", wrong: `:1:8: store: "radis" is not one of memory, redis, did you mean "redis"?`},
		{text: "store: redis://:pass^word@h:1", wrong: ":1:8: store: redis: '^' in the user name or password: write it as %5E"},
		{text: "store: {redis: {url: 'redis://:pass%word@h:1'}}", wrong: ":1:22: store.redis.url: redis: a % in the user name or password that begins no escape: write it as %25"},
		{text: "store: {redis: {timeout: 5}}", wrong: `:1:26: store.redis.timeout: "5" is not a duration`},
		{text: "store: {redis: {timeout: 5us}}", wrong: "too short"},
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
