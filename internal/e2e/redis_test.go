package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// sharedRules have a rule for each algorithm and each policy, with separate paths.
const sharedRules = `domain: api
limits:
  - {name: token_bucket, match: {path: /token_bucket}, key: [client_ip], rate: 100/day, on_store_error: deny}
  - {name: leaky_bucket, match: {path: /leaky_bucket}, key: [client_ip], rate: 100/day, algorithm: leaky_bucket}
  - {name: fixed_window, match: {path: /fixed_window}, key: [client_ip], rate: 100/day, algorithm: fixed_window}
  - {name: sliding_log, match: {path: /sliding_log}, key: [client_ip], rate: 100/day, algorithm: sliding_log}
  - {name: sliding_window, match: {path: /sliding_window}, key: [client_ip], rate: 100/day, algorithm: sliding_window}
  - {name: sliding_buckets, match: {path: /sliding_buckets}, key: [client_ip], rate: 100/day, algorithm: sliding_buckets, on_store_error: {policy: local, share: 0.5}}
`

// hammer sends n requests to each App from each of 8 clients and returns how many were
// allowed.
func hammer(t *testing.T, apps []*fixture, path string, n int) (allowed int64) {
	t.Helper()
	var wg sync.WaitGroup
	var count atomic.Int64
	body := fmt.Sprintf(`{"domain":"api","attributes":{"path":%q,"client_ip":"198.51.100.7"}}`, path)
	for _, f := range apps {
		for range 8 {
			wg.Go(func() {
				for range n {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.apiURL("/v1/check"), strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					res, err := f.client.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					if read(t, res); res.StatusCode == http.StatusOK {
						count.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	return count.Load()
}

// Two processes on one Redis allow exactly the limit under every algorithm. Without
// Redis, each rule's policy decides; when it is back, so are the counts.
func TestTwoProcessesOneCount(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	shared := func(c *config.Config) {
		c.Store.Kind = config.InRedis
		c.Store.Redis = config.Redis{
			URL: config.Secret("redis://" + server.Addr), Timeout: 2 * time.Second,
			// Refusals are no longer cached when the server is stopped.
			DenyCache: config.DefaultDenyCache, DenyMaxAge: time.Millisecond,
		}
	}
	apps := []*fixture{run(t, sharedRules, nil, shared), run(t, sharedRules, nil, shared)}
	apps[0].journal.await(t, "store connected")
	for _, path := range []string{"/token_bucket", "/leaky_bucket", "/fixed_window", "/sliding_log", "/sliding_window", "/sliding_buckets"} {
		if got := hammer(t, apps, path, 20); got != 100 {
			t.Errorf("%s: %d of 320 allowed, want 100", path, got)
		}
	}

	server.Kill()
	for path, want := range map[string]int64{"/token_bucket": 0, "/fixed_window": 320, "/sliding_buckets": 100} {
		if got := hammer(t, apps, path, 20); got != want {
			t.Errorf("%s without a store: %d of 320 allowed, want %d", path, got, want)
		}
	}
	apps[0].await(t, func() bool { // failures open the circuit after a while without a success
		hammer(t, apps[:1], "/token_bucket", 1)
		return strings.Contains(apps[0].journal.text.String(), "the store does not answer")
	})
	if res, body := apps[0].get(t, apps[0].apiURL("/readyz?verbose")); res.StatusCode != http.StatusOK || !strings.Contains(body, "store unavailable") {
		t.Errorf("/readyz without a store: %d %s", res.StatusCode, body)
	}

	server.Restart()
	for _, f := range apps {
		for deadline := time.Now().Add(20 * time.Second); ; {
			if _, body := f.get(t, f.apiURL("/readyz?verbose")); strings.Contains(body, `"store":"ok"`) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("never recovered; the log:\n%s", f.journal.text)
			}
		}
	}
	if got := hammer(t, apps, "/token_bucket", 20); got != 100 {
		t.Errorf("after the outage: %d of 320 allowed, want 100", got)
	}
}

// A process starts without Redis if it is unreachable, but not if it refuses access.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	t.Run("absent", func(t *testing.T) {
		f := run(t, sharedRules, nil, func(c *config.Config) {
			c.Store.Kind, c.Store.Redis = config.InRedis, config.Redis{URL: "redis://127.0.0.1:1"}
		})
		f.journal.await(t, "the store does not answer yet")
		if got := hammer(t, []*fixture{f}, "/fixed_window", 1); got != 8 {
			t.Errorf("%d of 8 allowed, want all: the rule says allow", got)
		}
	})
	t.Run("too old", func(t *testing.T) {
		server := redistest.Standalone(t)
		old := config.Redis{URL: config.Secret("redis://" + redistest.Posing(t, server, "6.0.1")), Timeout: 2 * time.Second}
		set := func(c *config.Config) { c.Store.Kind, c.Store.Redis = config.InRedis, old }
		err := newFixture(t, sharedRules, nil, set).Start(t.Context())
		if source, ok := errors.AsType[*config.SourceError](err); !ok || source.Source != "store.redis.url" || !strings.Contains(source.Message, "headgate needs Redis 6.2 or later") {
			t.Errorf("Start = %v", err)
		}
		server.Kill() // it starts later
		f := run(t, sharedRules, nil, set)
		f.journal.await(t, "the store does not answer yet")
		server.Restart()
		f.await(t, func() bool {
			hammer(t, []*fixture{f}, "/fixed_window", 1) // until the circuit closes
			return strings.Contains(f.journal.text.String(), "the store's version is too old")
		})
	})
	t.Run("wrong password", func(t *testing.T) {
		server := redistest.Standalone(t, "--requirepass", "right")
		f := newFixture(t, sharedRules, nil, func(c *config.Config) {
			c.Store.Kind, c.Store.Redis = config.InRedis, config.Redis{URL: config.Secret("redis://:wrong@" + server.Addr)}
		})
		err := f.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "store.redis") || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("Start = %v, want an error about store.redis without the password", err)
		}
		if f.Addr(doorAPI) != "" && err == nil {
			t.Error("the door is open")
		}
	})
}
