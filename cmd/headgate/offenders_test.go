package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

const offenderRules = `
domain: api
limits:
  - name: all
    key: ["header:X-User"]
    rate: 10/minute
    on_repeat: {refusals: 100/10m, ban: 1m, mode: enforce}
`

// crowd sends requests of users to two processes.
type crowd struct {
	t      *testing.T
	nodes  [2]*process
	client *http.Client
	// surprise shows one answer to a user that is not 200.
	surprise sync.Once
}

// get makes a request and returns its status, and for how long it is refused.
func (c *crowd) get(ctx context.Context, node int, user string) (status int, retry time.Duration) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.nodes[node].proxy+"/", nil)
	if err != nil {
		c.t.Error(err)
		return 0, 0
	}
	r.Header.Set("X-User", user)
	res, err := c.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			c.t.Error(err)
		}
		return 0, 0
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK && user != "spammer" {
		c.surprise.Do(func() { c.t.Errorf("server %d answered %s with %s: %s", node+1, user, res.Status, text) })
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return res.StatusCode, time.Duration(seconds) * time.Second
}

// bans returns how many keys both processes have banned.
func (c *crowd) bans() (total int) {
	c.t.Helper()
	for _, p := range c.nodes {
		res, err := c.client.Get("http://" + p.admin + "/metrics")
		if err != nil {
			c.t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, `headgate_offenders_banned_total{domain="api",mode="enforce",rule="all"} `); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(value))
				total += n
			}
		}
	}
	return total
}

// spam sends the requests of one user to a process until it is banned there, and returns
// when that was.
func (c *crowd) spam(ctx context.Context, node int, refusals, hundredth *atomic.Int64) time.Time {
	for ctx.Err() == nil {
		status, retry := c.get(ctx, node, "spammer")
		switch {
		case status == http.StatusOK:
		case retry > 10*time.Second: // the limit itself refuses for 6 s at most
			return time.Now()
		case refusals.Add(1) == 100:
			hundredth.Store(time.Now().UnixNano())
		}
	}
	c.t.Error("the spammer was never banned")
	return time.Time{}
}

// One spammer among 10,000 users of two servers on one Redis is banned at both within
// seconds of its hundredth refusal, once, and the others see nothing.
func TestSpammerAmongTenThousandUsers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts servers")
	}
	server := redistest.Standalone(t)
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	c := &crowd{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	defer c.client.CloseIdleConnections()
	for i := range c.nodes {
		p := newProcess(t, backend.URL, offenderRules)
		config := fmt.Sprintf(`rules: [rules.yaml]
listen: {api: "off", grpc: "off", resp: "off", admin: %q}
proxy: {listen: %q, upstream: %q}
store: {redis: {url: "redis://%s", timeout: 2s}}
`, p.admin, p.proxy, backend.URL, server.Addr)
		if err := os.WriteFile(filepath.Join(p.dir, "headgate.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		p.start()
		c.nodes[i] = p
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	const users, workers = 9_999, 8
	var next, refusals, hundredth, disturbed atomic.Int64
	var banned [2]time.Time
	var group sync.WaitGroup
	for i := range c.nodes {
		group.Go(func() { banned[i] = c.spam(ctx, i, &refusals, &hundredth) })
	}
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= users && ctx.Err() == nil; n = next.Add(1) {
				if status, _ := c.get(ctx, int(n%2), fmt.Sprint("user-", n)); status != http.StatusOK {
					disturbed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if n := disturbed.Load(); n > 0 {
		t.Errorf("%d of %d users were refused", n, users)
	}
	for i, at := range banned {
		took := at.Sub(time.Unix(0, hundredth.Load()))
		if took > 20*time.Second {
			t.Errorf("banned at server %d after %s", i+1, took)
		}
		t.Logf("banned at server %d %s after the hundredth refusal", i+1, took.Round(time.Millisecond))
	}
	if n := c.bans(); n != 1 {
		t.Errorf("%d bans, want 1", n)
	}
	t.Logf("%d refusals before the bans", refusals.Load())
}
