package e2e

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/certtest"
)

const adminToken, apiToken, redisPassword = "admin-0123456789", "api-0123456789ab", "resp-0123456789a"

// documented loads the first configuration below a heading of a page, in a folder with the
// certificates and secrets it names.
func documented(t *testing.T, page, heading string) (*config.Config, *certtest.Authority) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut("\n"+string(text), "\n"+heading)
	_, yaml, found := strings.Cut(section, "```yaml\n")
	if yaml, _, _ = strings.Cut(yaml, "```"); !found {
		t.Fatal("no configuration")
	}
	folder, a := t.TempDir(), certtest.New(t)
	a.Issue("server", 2, "server.internal")
	a.Issue("envoy", 3, "envoy.internal")
	files := map[string]string{
		"headgate.yaml": yaml, "rules/api.yaml": envoyRules,
		"secrets/api": "another-012345678\n" + apiToken + "\n", "secrets/admin": adminToken + "\n", "secrets/resp": redisPassword + "\n",
	}
	for _, name := range []string{"ca.pem", "server.pem", "server.key", "envoy.pem", "envoy.key"} {
		files["certs/"+name] = readFile(t, a.Path(name))
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, name), text)
	}
	c, err := config.Load(config.Sources{
		Doors: app.Sections(), File: filepath.Join(folder, "headgate.yaml"), Environment: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

// use runs an App with a documented configuration, on free ports.
func use(documented *config.Config) set {
	return func(c *config.Config) {
		store, upstream := c.Store, proxyOf(c).Upstream
		*c = *documented
		c.Store = store
		for _, section := range app.Sections() {
			if d := c.Door(section.Name); d.Address != "" {
				d.Address = "127.0.0.1:0"
			}
		}
		proxyOf(c).Upstream = upstream
	}
}

// The configuration of docs/run/tls.md works as the page says.
func TestTLSAsDocumented(t *testing.T) {
	t.Parallel()
	c, a := documented(t, "run/tls.md", "# TLS")
	upstream := httptest.NewUnstartedServer(hello)
	upstream.TLS = a.Client("server")
	upstream.TLS.ClientCAs, upstream.TLS.ClientAuth = upstream.TLS.RootCAs, tls.RequireAndVerifyClientCert
	upstream.StartTLS()
	defer upstream.Close()
	f := run(t, envoyRules, nil, use(c), func(c *config.Config) { proxyOf(c).Upstream = parseURL(t, upstream.URL) })
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: a.Client(""), ForceAttemptHTTP2: true}}
	defer web.CloseIdleConnections()
	for _, row := range []struct {
		door, path, token string
		want              int
	}{
		{doorAPI, "/v1/auth", "", 403},
		{doorAPI, "/json", "", 401},
		{doorAPI, "/json", apiToken, 400},
		{doorAPI, "/json", "another-012345678", 400},
		{doorAPI, "/v1/explain", apiToken, 404},
		{doorAPI, "/healthz", "", 200},
		{doorAdmin, "/v1/status", apiToken, 401},
		{doorAdmin, "/v1/status", adminToken, 200},
		{doorProxy, "/", "", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.Addr(row.door)+row.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if row.token != "" {
			r.Header.Set("Authorization", "Bearer "+row.token)
		}
		res, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = read(t, res); res.StatusCode != row.want || res.ProtoMajor != 2 {
			t.Errorf("%s%s: %s %s, want %d", row.door, row.path, res.Proto, res.Status, row.want)
		}
	}
	if err := honest(doorGRPC, f.Addr(doorGRPC), a.Client("envoy")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "server"} {
		if _, err := asks(f, doorGRPC, a.Client(name)); err == nil {
			t.Errorf("gRPC lets the certificate %q in", name)
		}
	}
	got, err := converse(f.Addr(doorRESP), a.Client(""), "PING\r\nAUTH "+redisPassword+"\r\nPING\r\nQUIT\r\n")
	if err != nil || got != "-NOAUTH Authentication required.\r\n+OK\r\n+PONG\r\n+OK\r\n" {
		t.Errorf("Redis protocol: %q, %v", got, err)
	}
	for _, secret := range []string{apiToken, adminToken, redisPassword} {
		if strings.Contains(f.journal.text.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
	if err := f.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// The configuration for one port on docs/run/configuration.md serves all three on one port.
func TestSinglePortAsDocumented(t *testing.T) {
	c, a := documented(t, "run/configuration.md", "## One port")
	f := run(t, envoyRules, nil, use(c))
	address := f.Addr(doorShared)
	for _, door := range []string{doorAPI, doorGRPC} {
		if f.Addr(door) != address {
			t.Errorf("%s is at %s", door, f.Addr(door))
		}
		if err := honest(door, address, a.Client("")); err != nil {
			t.Errorf("%s: %v", door, err)
		}
	}
	got, err := converse(address, a.Client(""), "AUTH "+redisPassword+"\r\nPING\r\nQUIT\r\n")
	if err != nil || got != "+OK\r\n+PONG\r\n+OK\r\n" {
		t.Errorf("Redis protocol: %q, %v", got, err)
	}
}
