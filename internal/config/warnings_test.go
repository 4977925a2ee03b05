package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// Settings that work, but probably not as intended, cause warnings.
func TestWarnings(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
		return path
	}
	open := file("open", strings.Repeat("0123456789abcdef", 2), 0o644)
	closed := file("closed", strings.Repeat("0123456789abcdef", 2), 0o600)
	for _, row := range []struct {
		environ []string
		text    string
		mode    os.FileMode
		want    []string
	}{
		{nil, "admin: {token_file: closed}\n", 0o644, nil},
		{nil, "admin: {token_file: open}\n", 0o600, []string{"admin.token_file: every user on this machine can read the secret in " + open}},
		{nil, "admin: {token_file: " + closed + "}\n", 0o666, []string{filepath.Join(folder, "headgate.yaml") + ": every user on this machine can write the configuration"}},
		{nil, "keys: {secret_file: open}\n", 0o600, []string{"keys.secret_file: every user on this machine can read the secret in " + open}},
		{nil, "jwt: {secret_file: open, algorithms: [HS256]}\n", 0o600, []string{"jwt.secret_file: every user on this machine can read the secret in " + open}},
		{nil, "jwt: {secret_file: closed, algorithms: [HS256]}\nkeys: {secret_file: closed}\n", 0o600, nil},
		{nil, "proxy: {upstream: \"http://127.0.0.1:9\", adaptive: {min: 3}}\n", 0o600, []string{"proxy.adaptive: it is off without a mode"}},
		{nil, "proxy: {listen: \"127.0.0.1:1\"}\n", 0o600, []string{"proxy: the proxy does not start without proxy.upstream"}},
		{nil, "proxy: {listen: \"127.0.0.1:1\", upstream: \"http://127.0.0.1:2\"}\n", 0o600, nil},
		{nil, "proxy: {listen: off}\n", 0o600, nil},
		{nil, "trusted_proxies: ['::/0']\n", 0o600, []string{"trusted_proxies: ::/0 trusts every client to name any address as its own"}},
		{nil, "trusted_proxies: [10.0.0.0/8, 0.0.0.0/0]\n", 0o600, []string{"trusted_proxies: 0.0.0.0/0 trusts every client to name any address as its own"}},
		{
			[]string{"HEADGATE_LISTEN_APII=x", "HEADGATE_LISTEN_API=127.0.0.1:1", "HEADGATE_WHATEVER=1", "PATH=/bin", "HEADGATE_ADDRESS=x", "HEADGATE_REQUIRE_REDIS=1", "HEADGATE_SNAPSHOT=x", "HEADGATE_LISTEN_PROXY=x", "HEADGATE_UPSTREAM=http://127.0.0.1:9"},
			"", 0o600,
			[]string{
				"HEADGATE_LISTEN_APII: unknown variable is ignored, did you mean HEADGATE_LISTEN_API?",
				"HEADGATE_WHATEVER: unknown variable is ignored",
				"HEADGATE_SNAPSHOT: unknown variable is ignored, did you mean HEADGATE_STORE_MEMORY_SNAPSHOT?",
				"HEADGATE_LISTEN_PROXY: unknown variable is ignored, did you mean HEADGATE_PROXY_LISTEN?",
				"HEADGATE_UPSTREAM: unknown variable is ignored, did you mean HEADGATE_PROXY_UPSTREAM?",
			},
		},
	} {
		c, err := config.Load(config.Sources{
			Doors: app.Sections(), File: file("headgate.yaml", row.text, row.mode), Environment: none, Environ: func() []string { return row.environ },
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range c.Warnings {
			got = append(got, w.Source+": "+w.Message)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%q %v:\n%q, want\n%q", row.text, row.environ, got, row.want)
		}
	}
}

// A variable of a setting that has ended is refused as its key in a file is: it may have
// said where counts are, or that a password is encrypted on its way there. An empty one is
// not set.
func TestEndedVariables(t *testing.T) {
	for pair, want := range map[string]string{
		"HEADGATE_STORE_REDIS_TLS=true":                     "HEADGATE_STORE_REDIS_TLS: this is not a setting any more; write rediss:// in store.redis.url (docs/run/redis.md)",
		"HEADGATE_STORE_REDIS_ADDRESSES=127.0.0.1:6379":     "HEADGATE_STORE_REDIS_ADDRESSES: this is not a setting any more; write them in store.redis.url: redis://host:6379, redis+sentinel://a,b/primary or redis+cluster://a,b (docs/run/redis.md)",
		"HEADGATE_API_TLS_MIN_VERSION=1.3":                  "HEADGATE_API_TLS_MIN_VERSION: this is not a setting any more; set tls.min_version, which is for all doors",
		"HEADGATE_TELEMETRY_OTLP_ENDPOINT=http://127.0.0.1": "HEADGATE_TELEMETRY_OTLP_ENDPOINT: this is not a setting any more; set the variable OTEL_EXPORTER_OTLP_ENDPOINT (docs/watch/tracing.md)",
		"HEADGATE_STORE_REDIS_MODE=":                        "",
	} {
		_, err := config.Load(config.Sources{
			Doors: app.Sections(), Environment: none, Environ: func() []string { return []string{pair} },
		})
		got := ""
		if source, ok := errors.AsType[*config.SourceError](err); ok {
			got = source.Error() + "; " + source.Hint
		}
		if got != want || (err == nil) != (want == "") {
			t.Errorf("%s:\n%q, want\n%q (%v)", pair, got, want, err)
		}
	}
}
