package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/api"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/door/resp"
)

// The names of the doors.
const (
	doorAPI    = "api"
	doorGRPC   = "grpc"
	doorRESP   = "resp"
	doorAdmin  = "admin"
	doorProxy  = "proxy"
	doorShared = "shared"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that only moves when told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 21, 11, 0, 12, 0, time.UTC)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// journal is a log whose messages a test can wait for.
type journal struct {
	messages chan string
	text     *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newJournal() *journal {
	return &journal{messages: make(chan string, 1000), text: &lockedBuffer{}}
}

func (j *journal) logger() *slog.Logger {
	return slog.New(tee{slog.NewTextHandler(j.text, nil), j.messages})
}

type tee struct {
	slog.Handler
	messages chan<- string
}

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	err := t.Handler.Handle(ctx, r) // first, so that a waiting test can read the text
	select {
	case t.messages <- r.Message:
	default:
	}
	return err
}

// await waits for a message.
func (j *journal) await(t *testing.T, message string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case got := <-j.messages:
			if strings.HasPrefix(got, message) {
				return
			}
		case <-timeout:
			t.Fatalf("never logged %q; the log:\n%s", message, j.text)
		}
	}
}

// await waits until a condition holds.
func (f *fixture) await(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("it never became true; the log:\n%s", f.journal.text)
		}
	}
}

// fixture is an App under test.
type fixture struct {
	*app.App
	clock   *clock
	journal *journal
	config  *config.Config
	client  *http.Client
}

// set changes the configuration of a fixture before it starts.
type set func(*config.Config)

// addresses are the addresses that doors listen on, by name.
type addresses map[string]string

// listenAt opens these doors and the proxy, and closes all others.
func listenAt(c *config.Config, open addresses) {
	for _, section := range app.Sections() {
		if section.Name != doorProxy {
			c.Door(section.Name).Address = open[section.Name]
		}
	}
}

func apiOf(c *config.Config) *api.Settings     { return config.Own[api.Settings](c) }
func respOf(c *config.Config) *resp.Settings   { return config.Own[resp.Settings](c) }
func adminOf(c *config.Config) *admin.Settings { return config.Own[admin.Settings](c) }
func proxyOf(c *config.Config) *proxy.Settings { return config.Own[proxy.Settings](c) }

// newFixture returns an App that is not started.
func newFixture(t *testing.T, rulesText string, upstream http.Handler, change ...set) *fixture {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, rulesText)
	f := &fixture{clock: newClock(), journal: newJournal(), client: &http.Client{Transport: &http.Transport{}}}
	f.config = config.Closed(app.Sections())
	f.config.Rules = []string{file}
	f.config.Door("api").Address, f.config.Door("proxy").Address = "127.0.0.1:0", "127.0.0.1:0"
	f.config.ShutdownTimeout, f.config.Store.Memory.SnapshotInterval = 10*time.Second, time.Hour
	if upstream != nil {
		server := httptest.NewServer(upstream)
		t.Cleanup(server.Close)
		proxyOf(f.config).Upstream = parseURL(t, server.URL)
	}
	for _, c := range change {
		c(f.config)
	}
	t.Cleanup(f.client.CloseIdleConnections)
	f.renew(t)
	return f
}

// renew makes a new App with the same configuration, like a restart.
func (f *fixture) renew(t *testing.T) {
	t.Helper()
	var err error
	f.App, err = app.New(app.Options{Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollInterval: time.Hour, Settle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) start(t *testing.T) {
	t.Helper()
	if err := f.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Stop(context.Background()) })
}

// run returns a started App.
func run(t *testing.T, rulesText string, upstream http.Handler, change ...set) *fixture {
	t.Helper()
	f := newFixture(t, rulesText, upstream, change...)
	f.start(t)
	return f
}

func (f *fixture) proxyURL(path string) string { return "http://" + f.Addr(doorProxy) + path }
func (f *fixture) apiURL(path string) string   { return "http://" + f.Addr(doorAPI) + path }

// reply is an answer with its body already read.
type reply struct {
	StatusCode int
	Header     http.Header
}

// get sends a GET request and returns the answer and its body.
func (f *fixture) get(t *testing.T, url string, header ...string) (reply, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body := read(t, res)
	return reply{res.StatusCode, res.Header}, body
}

// read returns the body of res.
func read(t *testing.T, res *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func trust(networks ...string) set {
	return func(c *config.Config) {
		for _, n := range networks {
			c.TrustedProxies = append(c.TrustedProxies, netip.MustParsePrefix(n))
		}
	}
}

const loginRules = `
domain: api
limits:
  - name: login
    match: {path: /login}
    key: [client_ip]
    rate: 5/minute
    algorithm: sliding_window
`

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Ratelimit-Limit", "999") // an upstream with its own limits
	_, _ = io.WriteString(w, "hello\n")
})
