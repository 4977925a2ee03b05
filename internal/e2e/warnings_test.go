package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// TestExampleWarnings: the receiver of the example takes what the server of the
// example sends, and shows what its README says.
func TestExampleWarnings(t *testing.T) {
	t.Parallel()
	receiver := filepath.Join(t.TempDir(), "receiver")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", receiver, examples+"warnings/receiver").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address := startBackend(t, receiver)
	none := func(string) (string, bool) { return "", false }
	c, err := config.Load(config.Sources{Doors: app.Sections(), File: examples + "warnings/headgate.yaml", Environment: none, Flags: map[string]string{
		"listen.api": "127.0.0.1:0", "listen.admin": "127.0.0.1:0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.EarlyWarning.Webhook.Host = address
	f := newFixture(t, "domain: api\nlimits: []\n", nil)
	f.config = c
	f.renew(t)
	f.start(t)
	var seen string
	f.await(t, func() bool {
		for range 25 {
			f.post(t, "/v1/check", `{"domain":"api","attributes":{"user":"mallory"}}`)
		}
		f.clock.advance(time.Second)
		_, seen = f.get(t, "http://"+address)
		return strings.Contains(seen, "key_refused")
	})
	page := readFile(t, examples+"warnings/README.md")
	shown := regexp.MustCompile("(?s)\\$ curl -s http://127.0.0.1:9900/\n(.*?)\\$ ").FindStringSubmatch(page)
	if shown == nil || !shows(shown[1], seen, false) {
		t.Errorf("got\n%s\nthe page shows %q", seen, shown)
	}
	if _, text := f.get(t, f.adminURL("/v1/warnings")); !strings.Contains(text, `"kind":"key_refused"`) || !strings.Contains(text, `"key":["mallory"]`) {
		t.Error(text)
	}
	if n := f.metric(t, `headgate_warnings_active{domain="api",kind="key_refused",rule="login"}`); n != "1" {
		t.Errorf("%s active", n)
	}
}

// TestTwoServersWarnOnce: of two servers that share Redis, one sends the warning.
func TestTwoServersWarnOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	var mu sync.Mutex
	var bodies []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
	}))
	t.Cleanup(hook.Close)
	to, err := url.Parse(hook.URL)
	if err != nil {
		t.Fatal(err)
	}
	shared := func(c *config.Config) {
		c.Store.Kind, c.Store.Redis = config.InRedis, config.Redis{URL: config.Secret("redis://" + server.Addr)}
		c.EarlyWarning = config.EarlyWarning{On: true, Policy: warning.Policy{Settings: warning.Default(), Webhook: to}}
	}
	var both []*fixture
	for range 2 {
		both = append(both, run(t, "domain: api\nlimits: [{name: login, key: [user], rate: 5/minute}]\n", nil, withAdmin, shared))
	}
	const active = `headgate_warnings_active{domain="api",kind="key_refused",rule="login"}`
	both[0].await(t, func() bool {
		warned := 0
		for _, f := range both {
			for range 10 {
				f.post(t, "/v1/check", `{"domain":"api","attributes":{"user":"mallory"}}`)
			}
			f.clock.advance(time.Second)
			if _, text := f.get(t, f.adminURL("/metrics")); strings.Contains(text, active+" 1") {
				warned++
			}
		}
		return warned == len(both)
	})
	both[0].await(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(bodies) > 0
	})
	for _, f := range both {
		if err := f.Stop(t.Context()); err != nil { // what is being sent arrives
			t.Error(err)
		}
	}
	if len(bodies) != 1 || !strings.Contains(bodies[0], `"type":"key_refused.started"`) {
		t.Errorf("%d messages: %s", len(bodies), bodies)
	}
}
