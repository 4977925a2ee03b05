package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// node is a Headgate that can be killed, stopped, restarted and reloaded, with proxies that
// break its callers' connections.
type node struct {
	name     string
	t        testing.TB
	bin      string
	env      []string
	dir      string
	api      string // where the process listens, for probes
	admin    string // where its metrics are
	snapshot string // empty if there is none

	// wires lead to the doors.
	http, resp, grpc *redistest.Proxy

	// deaths is odd while there is no process.
	deaths atomic.Int64

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	loaded int
}

// ruleFile has every algorithm, two limits at once, reservations and concurrency limits.
const ruleFile = `domain: chaos
limits:
  - {name: token, match: {attributes: {limit: token}}, key: [id], rate: 5/2s, burst: 6}
  - {name: leaky, match: {attributes: {limit: leaky}}, key: [id], rate: 4/1s, burst: 6, algorithm: leaky_bucket, on_store_error: deny}
  - {name: fixed, match: {attributes: {limit: fixed}}, key: [id], rate: 6/2s, algorithm: fixed_window, on_store_error: local}
  - {name: log, match: {attributes: {limit: log}}, key: [id], rate: 6/2s, algorithm: sliding_log}
  - {name: window, match: {attributes: {limit: window}}, key: [id], rate: 6/2s, algorithm: sliding_window}
  - {name: weighted, match: {attributes: {limit: weighted}}, key: [id], rate: 6/2s, algorithm: sliding_buckets, buckets: 10}
  - {name: strict, match: {attributes: {limit: strict}}, key: [id], rate: 6/2s, algorithm: sliding_buckets, buckets: 10, edge: strict, on_store_error: deny}
  - {name: lenient, match: {attributes: {limit: lenient}}, key: [id], rate: 6/2s, algorithm: sliding_buckets, buckets: 10, edge: lenient}
  - {name: pair-token, match: {attributes: {limit: pair}}, key: [id], rate: 3/1s, burst: 5}
  - {name: pair-log, match: {attributes: {limit: pair}}, key: [id], rate: 5/2s, algorithm: sliding_log}
  - {name: reserved, match: {attributes: {limit: reserved}}, key: [id], rate: 8/2s, algorithm: sliding_log}
  - {name: reserved-fixed, match: {attributes: {limit: reserved-fixed}}, key: [id], rate: 8/2s, algorithm: fixed_window}
  - {name: places, match: {attributes: {limit: places}}, key: [id], concurrency: 4, lease: 1500ms}
`

// startNode starts a node with the store of this line of YAML.
func startNode(t *testing.T, bin, name, store string, env ...string) *node {
	t.Helper()
	return startNodeWith(t, bin, name, ruleFile, store, env...)
}

// startNodeWith starts a node with these rules.
func startNodeWith(t *testing.T, bin, name, rules, store string, env ...string) *node {
	t.Helper()
	n := &node{name: name, t: t, bin: bin, env: env, dir: t.TempDir()}
	store = strings.ReplaceAll(store, "DIR", n.dir)
	if strings.Contains(store, "snapshot") {
		n.snapshot = filepath.Join(n.dir, "state")
	}
	n.write("rules.yaml", rules)
	api, resp, grpc := redistest.FreeAddress(t), redistest.FreeAddress(t), redistest.FreeAddress(t)
	n.api, n.admin = api, redistest.FreeAddress(t)
	n.write("headgate.yaml", fmt.Sprintf("rules: [rules.yaml]\nstore: %s\nlisten: {api: %q, resp: %q, grpc: %q, admin: %q}\nlog: {level: warn}\n", store, api, resp, grpc, n.admin))
	n.start()
	n.http, n.resp, n.grpc = redistest.NewProxy(t, api), redistest.NewProxy(t, resp), redistest.NewProxy(t, grpc)
	t.Cleanup(n.kill)
	return n
}

func (n *node) write(name, text string) {
	n.t.Helper()
	file := filepath.Join(n.dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.t.Fatal(err)
	}
}

// start starts the process and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	args := []string{"serve", "--config", filepath.Join(n.dir, "headgate.yaml")}
	if strings.Contains(filepath.Base(n.bin), "stepped") {
		args = args[2:]
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.deaths.Load()%2 == 1 {
		n.deaths.Add(1)
	}
	cmd := exec.Command(n.bin, args...)
	cmd.Dir, cmd.Stderr, cmd.Env = n.dir, log, append(os.Environ(), n.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(exited)
	}()
	n.mu.Lock()
	n.cmd, n.exited = cmd, exited
	n.mu.Unlock()
	n.ready()
}

// ready waits until the node answers.
func (n *node) ready() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case <-n.exited:
			log, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			n.t.Fatalf("%s has ended:\n%s", n.name, log)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.api+"/readyz", nil)
		if err != nil {
			n.t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		wait(10 * time.Millisecond)
	}
	n.t.Fatalf("%s does not answer", n.name)
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(s)
	}
}

// kill ends the process at once. It may be called again.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	<-n.exited
	n.died()
}

// died records that there is no process.
func (n *node) died() {
	if n.deaths.Load()%2 == 0 {
		n.deaths.Add(1)
	}
}

// stop lets it end.
func (n *node) stop() {
	n.signal(syscall.SIGTERM)
	select {
	case <-n.exited:
	case <-time.After(30 * time.Second):
		n.t.Errorf("%s does not stop", n.name)
		n.kill()
	}
	n.died()
}

// reload writes a rule file with one more rule.
func (n *node) reload() {
	n.loaded++
	n.write("rules.yaml", ruleFile+fmt.Sprintf("  - {name: more-%d, match: {attributes: {limit: more}}, key: [id], rate: %d/1s}\n", n.loaded, n.loaded))
	n.signal(syscall.SIGHUP)
}

// wires returns all proxies to its doors.
func (n *node) wires() []*redistest.Proxy { return []*redistest.Proxy{n.http, n.resp, n.grpc} }

// build builds a command of the tree into a folder.
func build(t *testing.T, dir, folder, pkg string) string {
	t.Helper()
	file := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", file, pkg)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return file
}

// wait waits in real time, as processes do.
func wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
