package app_test

import (
	"bytes"
	"context"
	"encoding/json"
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
		if section.Name != app.DoorProxy {
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

func (f *fixture) proxyURL(path string) string { return "http://" + f.Addr(app.DoorProxy) + path }
func (f *fixture) apiURL(path string) string   { return "http://" + f.Addr(app.DoorAPI) + path }

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

// The acceptance trace of the project: five answers of the backend, then a 429 with
// exact headers. It starts 12 s into a one-minute window.
func TestAcceptanceTrace(t *testing.T) {
	f := run(t, loginRules, hello)
	for _, remaining := range []string{"4", "3", "2", "1", "0"} {
		res, body := f.get(t, f.proxyURL("/login"))
		if res.StatusCode != http.StatusOK || body != "hello\n" || res.Header.Get("X-RateLimit-Remaining") != remaining {
			t.Errorf("%d %q with %s left, want the backend's with %s", res.StatusCode, body, res.Header.Get("X-RateLimit-Remaining"), remaining)
		}
		if got := res.Header.Values("X-RateLimit-Limit"); len(got) != 1 || got[0] != "5" {
			t.Errorf("X-RateLimit-Limit %q, want ours in place of the upstream's", got)
		}
	}
	res, body := f.get(t, f.proxyURL("/login"))
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the sixth got %d", res.StatusCode)
	}
	want := map[string]string{
		"Content-Type":            "application/problem+json",
		"Retry-After":             "49", // 48 s to the next window, plus one tick: 5 × less than 1 is 4
		"X-Ratelimit-Retry-After": "49",
		"X-Ratelimit-Limit":       "5",
		"X-Ratelimit-Remaining":   "0",
		"Ratelimit":               `"login";r=0;t=49`,
		"Ratelimit-Policy":        `"login";q=5;w=60`,
		"Cache-Control":           "no-store",
	}
	for name, value := range want {
		if got := res.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	var problem map[string]any
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if problem["type"] != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem["status"] != 429.0 {
		t.Errorf("problem %v", problem)
	}
	f.clock.advance(48*time.Second + 12*time.Second) // more than a fifth into the next window: 5 × 0.8 = 4
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusOK {
		t.Errorf("after Retry-After: %d", res.StatusCode)
	}
}

func TestOtherPathsAreNotLimited(t *testing.T) {
	f := run(t, loginRules, hello)
	for range 10 {
		res, _ := f.get(t, f.proxyURL("/other"))
		if res.StatusCode != http.StatusOK || res.Header.Get("RateLimit") != "" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		if got := res.Header.Get("X-RateLimit-Limit"); got != "999" {
			t.Fatalf("X-RateLimit-Limit %q, want the upstream's where we have no limit", got)
		}
	}
}

// All doors use the same counts.
func TestAPIAndProxyShareTheStore(t *testing.T) {
	f := run(t, loginRules, hello)
	for range 3 {
		f.get(t, f.proxyURL("/login"))
	}
	res, err := f.client.Post(f.apiURL("/v1/check"), "application/json",
		strings.NewReader(`{"domain":"api","attributes":{"path":"/login","client_ip":"127.0.0.1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if body := read(t, res); !strings.Contains(body, `"remaining":1,`) {
		t.Errorf("%s; want 1 remaining", body)
	}
}

func TestRuleChoosesTheRefusal(t *testing.T) {
	f := run(t, `
domain: api
limits:
  - name: closed
    rate: 0/minute
    on_limit: {status: 503, body: "<p>later</p>", content_type: text/html, headers: {X-Reason: closed}}
`, hello)
	res, body := f.get(t, f.proxyURL("/"))
	if res.StatusCode != http.StatusServiceUnavailable || body != "<p>later</p>" || res.Header.Get("Content-Type") != "text/html" || res.Header.Get("X-Reason") != "closed" {
		t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
	}
}

// With many concurrent clients and keys, exactly as many requests as the limits allow
// reach the backend.
func TestConcurrentRequestsPassExactlyToTheLimits(t *testing.T) {
	var mu sync.Mutex
	passed := map[string]int{}
	f := run(t, `
domain: api
limits:
  - {name: per-key, match: {path: /v1/**}, key: ["header:X-Api-Key"], rate: 20/minute}
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/minute, algorithm: sliding_log}
  - {name: all, match: {path: /v1/**}, rate: 110/hour, algorithm: fixed_window}
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		passed[r.URL.Path+r.Header.Get("X-Api-Key")]++
	}), trust("127.0.0.0/8"))
	f.client.Transport = &http.Transport{MaxIdleConnsPerHost: 16}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for i := range 60 {
				f.get(t, f.proxyURL("/v1/x"), "X-Api-Key", string(rune('a'+i%5)))
				f.get(t, f.proxyURL("/login"), "X-Forwarded-For", netip.AddrFrom4([4]byte{198, 51, 100, byte(i % 3)}).String())
			}
		})
	}
	wg.Wait()
	// Five keys with 20 each make 100. The 110 of all are not used up, since requests
	// refused by per-key are not charged to it.
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if got := passed["/v1/x"+key]; got != 20 {
			t.Errorf("key %s: %d passed, want 20", key, got)
		}
	}
	if got := passed["/login"]; got != 15 {
		t.Errorf("logins: %d passed, want 5 for each of 3 clients", got)
	}
	for range 11 {
		f.get(t, f.proxyURL("/v1/x"), "X-Api-Key", "z")
	}
	if got := passed["/v1/xz"]; got != 10 {
		t.Errorf("key z: %d passed, want the 10 that all has left", got)
	}
}
