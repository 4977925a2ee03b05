package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// process is a separate headgate that can be killed.
type process struct {
	t     *testing.T
	dir   string
	proxy string // its address
	admin string
	cmd   *exec.Cmd
	log   *os.File
}

// The binary under test is this one: testscript.Main runs main when called by the
// name of a command.
func newProcess(t *testing.T, upstream, rules string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(p.dir, "headgate")); err != nil {
		t.Skip(err)
	}
	p.proxy, p.admin = redistest.FreeAddress(t), redistest.FreeAddress(t)
	config := fmt.Sprintf(`rules: [rules.yaml]
listen: {api: "off", grpc: "off", resp: "off", admin: %q}
proxy: {listen: %q, upstream: %q}
queue: {path: queue}
`, p.admin, p.proxy, upstream)
	for name, text := range map[string]string{"headgate.yaml": config, "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p.log, err = os.Create(filepath.Join(p.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		_ = p.log.Close()
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(filepath.Join(p.dir, "headgate"), "serve")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.proxy)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(p.log.Name())
			p.t.Fatalf("it does not answer: %v\n%s", err, text)
		}
		time.Sleep(10 * time.Millisecond) // other processes have no channel to wait for
	}
}

// kill is kill -9.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// arrival is a request that reached the backend.
type arrival struct {
	tenant string
	number int
	at     time.Time
}

// tenants is a backend that records requests.
type tenants struct {
	mu      sync.Mutex
	all     []arrival
	seen    map[string]int
	changed chan struct{}
}

func (b *tenants) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	text, err := io.ReadAll(r.Body)
	if err != nil { // killed while sending: nothing arrived
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	tenant, number, _ := strings.Cut(string(text), "/")
	n, _ := strconv.Atoi(number)
	b.mu.Lock()
	b.all = append(b.all, arrival{tenant, n, at})
	b.seen[string(text)]++
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusCreated)
}

const (
	killTenants = 40
	killRate    = 60 // a second, of each
)

// killInTheMiddle kills (-9) a headgate that queues each requests of each tenant, twice:
// while they come in and while they go out. Every accepted one arrives, no other does, each
// tenant's in order, and never more than the limit allows.
func killInTheMiddle(t *testing.T, each int) {
	t.Helper()
	t.Parallel()
	backend := &tenants{seen: map[string]int{}, changed: make(chan struct{}, 1)}
	server := httptest.NewServer(backend)
	defer server.Close()
	p := newProcess(t, server.URL, fmt.Sprintf(`domain: api
limits:
  - name: orders
    key: ["header:X-Tenant"]
    rate: %d/second
    burst: 1
    on_limit: {action: queue, max_entries: 100000, backoff: 10ms..100ms, retries: 1000}
`, killRate))
	p.start()
	var mu sync.Mutex
	known := map[string]bool{} // true: accepted; false: unknown
	refused := map[string]int{}
	restarted := make(chan struct{})
	killed := make(chan struct{})
	progress := make(chan struct{}, killTenants*each)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: killTenants}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for tenant := range killTenants {
		wg.Go(func() {
			for n := 1; n <= each; n++ {
				body := fmt.Sprintf("%d/%d", tenant, n)
				status := post(t, client, p.proxy, strconv.Itoa(tenant), body)
				mu.Lock()
				switch status {
				case http.StatusAccepted, http.StatusCreated:
					known[body] = true
				case 0:
					known[body] = false
				default:
					refused[body] = status
				}
				mu.Unlock()
				progress <- struct{}{}
				if status == 0 {
					<-killed
					<-restarted
				}
			}
		})
	}
	for range killTenants * each / 2 {
		<-progress
	}
	p.kill()
	close(killed)
	p.start()
	close(restarted)
	wg.Wait()
	p.kill() // and while they go out
	p.start()
	accepted := 0
	for _, yes := range known {
		if yes {
			accepted++
		}
	}
	backend.await(t, known)
	backend.check(t, known, refused)
	var list struct {
		Queues []struct{ Depth, Dead int64 }
	}
	read(t, "http://"+p.admin+"/v1/queue", &list)
	if len(list.Queues) == 1 && list.Queues[0].Dead != 0 {
		t.Errorf("%+v", list)
	}
	t.Logf("%d accepted, %d unknown, %d refused; %d arrived, %d of them again", accepted, len(known)-accepted, len(refused),
		len(backend.all), len(backend.all)-len(backend.seen))
}

// post sends one request and returns the status, 0 if there was no answer.
func post(t *testing.T, client *http.Client, address, tenant, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+address+"/orders", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.GetBody = nil // otherwise the client retries
	r.Header.Set("X-Tenant", tenant)
	res, err := client.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

func read(t *testing.T, url string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// await waits until all accepted requests have arrived.
func (b *tenants) await(t *testing.T, known map[string]bool) {
	t.Helper()
	timeout := time.After(90 * time.Second)
	for {
		missing := 0
		b.mu.Lock()
		for body, accepted := range known {
			if accepted && b.seen[body] == 0 {
				missing++
			}
		}
		b.mu.Unlock()
		if missing == 0 {
			return
		}
		select {
		case <-b.changed:
			time.Sleep(20 * time.Millisecond) // looking up 10,000 each time would keep the backend busy
		case <-timeout:
			t.Fatalf("%d accepted requests have not arrived", missing)
		}
	}
}

func (b *tenants) check(t *testing.T, known map[string]bool, refused map[string]int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for body, status := range refused {
		t.Errorf("%s was answered %d, and arrived %d times", body, status, b.seen[body])
	}
	last, times := map[string]int{}, map[string][]time.Time{}
	first := map[string]bool{}
	for _, a := range b.all {
		body := fmt.Sprintf("%s/%d", a.tenant, a.number)
		if _, sent := known[body]; !sent {
			t.Errorf("%q was never sent", body)
		}
		times[a.tenant] = append(times[a.tenant], a.at)
		if first[body] {
			continue
		}
		first[body] = true
		// A request without an answer may have been forwarded directly, and still be on
		// its way to the backend on a connection whose other end was killed.
		if !known[body] {
			continue
		}
		if a.number < last[a.tenant] {
			t.Errorf("tenant %s: %d came after %d", a.tenant, a.number, last[a.tenant])
		}
		last[a.tenant] = a.number
	}
	if again := len(b.all) - len(b.seen); again > 2*killTenants {
		t.Errorf("%d requests arrived again, more than were in flight", again)
	}
	// Each tenant's requests are sent one at a time, so all but the first in any window
	// took from the limit within it. Each start begins with a full bucket of one.
	for tenant, at := range times {
		slices.SortFunc(at, time.Time.Compare)
		for i, j := 0, 0; j < len(at); j++ {
			for at[j].Sub(at[i]) > time.Second {
				i++
			}
			if n := j - i + 1; n > killRate+1+1+2 {
				t.Fatalf("tenant %s: %d requests in a second, of %d", tenant, n, killRate)
			}
		}
	}
}
