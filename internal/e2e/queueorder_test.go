package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// fleet is some servers that share the queues of a Redis, shops that send numbered orders
// to them one after the other, and the upstream, which notes what arrives.
type fleet struct {
	*testing.T
	redis *redistest.Server
	up    *httptest.Server
	stop  chan struct{} // closed when the shops have sent enough
	shops sync.WaitGroup

	mu        sync.Mutex
	nodes     []*fixture
	confirmed map[string]int // 1 if confirmed and not arrived, 0 if both, -1 if not answered yet
	codes     map[int]int
	arrived   map[string][]int // by shop, each order once
}

const fleetRules = `
domain: api
limits:
  - name: orders
    match: {path: /orders}
    key: ["header:X-Shop"]
    rate: 25/second
    burst: 5
    on_store_error: deny
    on_limit: {action: queue, ttl: 1h, retries: 200, backoff: 20ms..100ms}
`

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{
		T: t, redis: redistest.Standalone(t), stop: make(chan struct{}),
		confirmed: map[string]int{}, codes: map[int]int{}, arrived: map[string][]int{},
	}
	f.up = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n, _ := strconv.Atoi(r.Header.Get("X-Order"))
		f.note(r.Header.Get("X-Shop"), n)
	}))
	t.Cleanup(f.up.Close)
	return f
}

// note counts an order that arrives.
func (f *fleet) note(shop string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.arrived[shop], n) {
		return // sent again, as its answer was lost
	}
	f.arrived[shop] = append(f.arrived[shop], n)
	f.confirmed[fmt.Sprint(shop, " ", n)]--
}

// unknown is in confirmed of an order for which it does not matter whether it arrives.
const unknown = 1 << 20

// start adds a server, on the real clock like Redis.
func (f *fleet) start() {
	f.Helper()
	node := newFixture(f.T, fleetRules, nil, onRedis(f.redis.Addr), func(c *config.Config) {
		c.Store.Redis.Timeout = 0 // the default, less than the stall
		c.ShutdownIdle = 20 * time.Millisecond
		proxyOf(c).Upstream = parseURL(f.T, f.up.URL)
	})
	var err error
	node.App, err = app.New(app.Options{Config: node.config, Logger: node.journal.logger(), Clock: time.Now, PollInterval: time.Hour, Settle: 20 * time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	node.start(f.T)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, node)
}

// roll stops the oldest server, as SIGTERM does, while the others serve.
func (f *fleet) roll() {
	f.Helper()
	f.mu.Lock()
	oldest := f.nodes[0]
	f.nodes = f.nodes[1:]
	f.mu.Unlock()
	if err := oldest.Stop(context.Background()); err != nil {
		f.Error(err)
	}
}

// open lets a shop send orders, each once the last has been answered.
func (f *fleet) open(shop string) {
	f.shops.Go(func() {
		client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
		defer client.CloseIdleConnections()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-f.stop:
				return
			case <-tick.C:
			}
			f.mu.Lock()
			url := f.nodes[n%len(f.nodes)].proxyURL("/orders")
			f.mu.Unlock()
			f.order(client, url, shop, n)
		}
	})
}

// order sends one order. What is not confirmed may arrive at any time, or never.
func (f *fleet) order(client *http.Client, url, shop string, n int) {
	r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		f.Error(err)
		return
	}
	r.Header.Set("X-Shop", shop)
	r.Header.Set("X-Order", strconv.Itoa(n))
	code := 0
	if res, err := client.Do(r); err == nil {
		code = res.StatusCode
		_ = res.Body.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.codes[code]++
	if key := fmt.Sprint(shop, " ", n); code == http.StatusOK || code == http.StatusAccepted {
		f.confirmed[key]++
	} else {
		f.confirmed[key] = unknown
	}
}

// check waits until all confirmed orders have arrived, and requires that none of them came
// after a later one of its shop.
func (f *fleet) check() {
	f.Helper()
	missing := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, times := range f.confirmed {
			if times == 1 {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(40 * time.Second); missing() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.Errorf("%d confirmed orders have not arrived", missing())
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	total, overtaken := 0, 0
	for shop, numbers := range f.arrived {
		latest := 0
		for _, n := range numbers {
			if total++; n < latest && f.confirmed[fmt.Sprint(shop, " ", n)] == 0 {
				overtaken++
			}
			latest = max(latest, n)
		}
	}
	if f.Logf("%d arrived, answers %v", total, f.codes); overtaken > 0 {
		f.Errorf("%d of %d orders were overtaken", overtaken, total)
	}
	if f.codes[http.StatusOK] == 0 || f.codes[http.StatusAccepted] == 0 {
		f.Errorf("answers %v: not some at once and some later", f.codes)
	}
}

// No confirmed request is overtaken by a later one of its key: not while Redis stalls, not
// at a server that has just started, and not while servers are replaced one by one.
func TestNobodyOvertakesInAFleet(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	f := newFleet(t)
	f.start()
	f.start()
	for shop := range 4 {
		f.open(strconv.Itoa(shop))
	}
	time.Sleep(400 * time.Millisecond)
	f.start() // and serves at once
	time.Sleep(300 * time.Millisecond)
	for range 2 {
		f.redis.Pause()
		time.Sleep(300 * time.Millisecond)
		f.redis.Resume()
		time.Sleep(300 * time.Millisecond)
	}
	for range 3 {
		f.roll()
		f.start()
	}
	close(f.stop)
	f.shops.Wait()
	f.check()
}
