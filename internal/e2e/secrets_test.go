package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// secrets are all secrets in settings, by purpose, and those that callers may send by
// mistake.
func secrets() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"api", "admin", "resp", "redis", "keys", "jwt", "otlp", "guess"} {
		all[name] = "hush-" + name + "-" + strings.Repeat("0123456789abcdef", 2)
	}
	return all
}

const secretRules = `
domain: api
limits:
  - {name: plain, match: {path: /plain/**}, key: [client_ip], rate: 2/hour}
  - {name: hashed, match: {path: /hashed/**}, key: ["hash:header:X-Api-Key"], rate: 2/hour}
  - {name: claim, match: {path: /claim/**}, key: ["jwt:sub"], rate: 2/hour}
`

// onlyOTel returns the variables of OpenTelemetry.
func onlyOTel(name string) (string, bool) {
	if !strings.HasPrefix(name, "OTEL_") {
		return "", false
	}
	return os.LookupEnv(name)
}

// configWithSecrets writes a configuration with all secrets, and returns it with the
// lines of the private key.
func configWithSecrets(t *testing.T, secret map[string]string, redisAddress, upstream string) (c *config.Config, authority *certtest.Authority) {
	t.Helper()
	folder, authority := t.TempDir(), certtest.New(t)
	cert, key := authority.Issue("server", 2, "localhost")
	for name, text := range secret {
		writeFile(t, filepath.Join(folder, name), text+"\n")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", upstream)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+secret["otlp"])
	writeFile(t, filepath.Join(folder, "rules.yaml"), secretRules)
	file := filepath.Join(folder, "headgate.yaml")
	writeFile(t, file, fmt.Sprintf(`
rules: [rules.yaml]
store: {redis: {url: "redis://:%s@%s", timeout: 2s}}
listen: {api: "127.0.0.1:0", grpc: "127.0.0.1:0", resp: "127.0.0.1:0", admin: "127.0.0.1:0"}
proxy: {listen: "127.0.0.1:0", upstream: %q}
api: {token_file: api}
admin: {token_file: admin, pprof: true}
resp: {password_file: resp}
grpc: {tls: {cert: %q, key: %q}}
keys: {secret_file: keys}
jwt: {secret_file: jwt, algorithms: [HS256]}
log: {level: debug}
`, secret["redis"], redisAddress, upstream, cert, key))
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: file, Environment: onlyOTel})
	if err != nil {
		t.Fatal(err)
	}
	return c, authority
}

// TestNoSecretIsTold: no answer of the admin door and no line of the log at level debug
// contains a secret: not in normal operation, not when callers send wrong ones, and not
// while the store is down.
func TestNoSecretIsTold(t *testing.T) {
	secret := secrets()
	server := redistest.Standalone(t)
	server.Do("CONFIG", "SET", "requirepass", secret["redis"])
	f := newFixture(t, secretRules, hello)
	c, authority := configWithSecrets(t, secret, server.Addr, proxyOf(f.config).Upstream.String())
	f.config = c
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	logger := slog.New(tee{slog.NewTextHandler(f.journal.text, &slog.HandlerOptions{Level: level}), f.journal.messages})
	var err error
	f.App, err = app.New(app.Options{Config: c, Logger: logger, LogLevel: level, Clock: f.clock.Now, PollInterval: time.Hour, Settle: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	f.journal.await(t, "store connected")
	var told strings.Builder
	f.sayAll(t, secret, authority, &told)
	f.askAll(t, secret["admin"], &told)
	server.Kill()
	f.sayAll(t, secret, authority, &told)
	f.await(t, func() bool { return strings.Contains(f.journal.text.String(), "store unavailable") })
	f.askAll(t, secret["admin"], &told)
	if err := f.Stop(context.Background()); err != nil {
		t.Log(err)
	}
	told.WriteString(f.journal.text.String())
	for line := range strings.SplitSeq(readFile(t, authority.Path("server.key")), "\n") {
		if len(line) > 20 && !strings.HasPrefix(line, "-----") {
			secret["TLS key: "+line] = line
		}
	}
	for name, text := range secret {
		if at := strings.Index(told.String(), text); at >= 0 {
			t.Errorf("%s is told: …%s…", name, told.String()[max(0, at-300):at])
		}
	}
	if !strings.Contains(told.String(), "level=DEBUG") || !strings.Contains(told.String(), "headgate_auth_failures_total") {
		t.Error("not called, or not logged")
	}
}

// sayAll sends requests to every door, with the right secrets and wrong ones.
func (f *fixture) sayAll(t *testing.T, secret map[string]string, authority *certtest.Authority, told *strings.Builder) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "ann", "exp": f.clock.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(secret["jwt"]))
	if err != nil {
		t.Fatal(err)
	}
	secret["client's token"], secret["client's key"] = token, "hush-key-of-a-client"
	for range 4 {
		f.get(t, f.proxyURL("/claim/a"), "Authorization", "Bearer "+token)
		f.get(t, f.proxyURL("/claim/a"), "Authorization", "Bearer "+secret["guess"])
		f.get(t, f.proxyURL("/hashed/a"), "X-Api-Key", secret["client's key"])
		for _, word := range []string{secret["api"], secret["guess"], secret["admin"]} {
			for _, path := range []string{"/v1/auth", "/v1/check", "/readyz?verbose", "/v1/explain"} {
				_, body := f.get(t, f.apiURL(path), "Authorization", "Bearer "+word, "X-Headgate-Token", word, "X-Original-URI", "/plain/a")
				told.WriteString(body)
			}
			_, body := f.get(t, f.adminURL("/v1/status"), "Authorization", "Bearer "+strings.Replace(word, "admin", "guess", 1))
			told.WriteString(body)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "AUTH %s\r\nAUTH default %s\r\nNOSUCH\r\nHG.CHECK api 1 path /plain/b\r\nQUIT\r\n", secret["guess"], secret["resp"])
	answers, _ := io.ReadAll(conn) // only searched for secrets
	told.Write(answers)
	mesh, err := grpc.NewClient("dns:///"+f.Addr(doorGRPC), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: authority.Client("").RootCAs, ServerName: "localhost", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mesh.Close() }()
	for _, word := range []string{secret["api"], secret["guess"]} {
		_, err := headgatev1.NewLimiterClient(mesh).Check(
			metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+word), &headgatev1.CheckRequest{Domain: "api"})
		fmt.Fprintln(told, err)
	}
}

// askAll sends all possible requests to the admin door, valid and invalid. Streams are
// read for a while.
func (f *fixture) askAll(t *testing.T, token string, told *strings.Builder) {
	t.Helper()
	patterns, err := admin.Routes(&admin.Options{Extra: func(h http.Handler) http.Handler { return h }})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range regexp.MustCompile(`"((?:GET|POST) /[^"]*)": `).FindAllStringSubmatch(readFile(t, "../app/doors.go"), -1) {
		patterns[other[1]] = nil // what the process adds
	}
	routes := append(
		slices.Sorted(maps.Keys(patterns)), "GET /healthz", "GET /readyz?verbose", "GET /nowhere", "GET /v1/top?by=refused", "GET /v1/log-level", "GET /debug/pprof/",
		"GET /debug/pprof/cmdline", "GET /debug/pprof/goroutine?debug=2", "GET /debug/pprof/heap?debug=1",
	)
	if len(routes) < 40 {
		t.Errorf("only %d routes: %q", len(routes), routes)
	}
	wildcard := regexp.MustCompile(`\{\$?[a-z.]*\}`)
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		for _, action := range []string{"peek", "ban", "reset"} {
			for _, body := range []string{"", "{}", `{"domain":"api","rule":"hashed","key":["x"],"for":"1h","reason":"r"}`, `{"domain":"api","attributes":{"path":"/plain/a"}}`} {
				f.askOne(t, method, wildcard.ReplaceAllString(path, action), token, body, told)
				if method == http.MethodGet {
					break
				}
			}
			if !strings.Contains(path, "{") {
				break
			}
		}
	}
}

func (f *fixture) askOne(t *testing.T, method, path, token, body string, told *strings.Builder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, f.adminURL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	res, err := f.client.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if path == "/v1/live" || path == "/v1/events" {
		time.AfterFunc(300*time.Millisecond, cancel) // from its beginning, however late that is
	}
	if res.StatusCode == http.StatusUnauthorized {
		t.Errorf("%s %s: %s", method, path, res.Status)
	}
	fmt.Fprintln(told, res.Header)
	if _, err := io.Copy(told, res.Body); err != nil && ctx.Err() == nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
}
