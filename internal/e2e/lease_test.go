package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// exportRules allow two concurrent exports.
const exportRules = `domain: api
limits:
  - {name: exports, match: {path: /exports/**}, concurrency: 2, lease: 2s}
  - {name: tokens, match: {path: /llm}, key: "header:X-Api-Key", rate: 1000/day, algorithm: fixed_window}
`

const (
	holderEnv  = "HEADGATE_TEST_LEASE_HOLDER" // the Redis for the leases
	anExport   = `{"domain":"api","attributes":{"path":"/exports/a"}}`
	aLanguage  = `{"domain":"api","attributes":{"path":"/llm","header:X-Api-Key":"k"},"cost":400}`
	holderSays = "holding"
)

func onRedis(address string) set {
	return func(c *config.Config) {
		c.Store.Kind = config.InRedis
		c.Store.Redis = config.Redis{URL: config.Secret("redis://" + address), DenyCache: config.DefaultDenyCache, Timeout: patient}
	}
}

// ask posts a body to the API and returns the answer.
func (f *fixture) ask(t *testing.T, path, body string) (status int, out map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.apiURL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(read(t, res)), &out); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, out
}

// TestLeaseHolder is the process that TestKilledHolder kills, with two requests in its
// proxy that never end.
func TestLeaseHolder(t *testing.T) {
	address := os.Getenv(holderEnv)
	if address == "" {
		t.Skip("it is another test's process")
	}
	arrived, forever := make(chan bool), make(chan struct{})
	f := run(t, exportRules, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-forever
	}), onRedis(address))
	for range 2 {
		go func() { _, _ = f.get(t, f.proxyURL("/exports/a")) }()
		<-arrived
	}
	fmt.Println(holderSays)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent ends
	os.Exit(1)
}

// TestKilledHolder: kill -9 of a process that holds all slots leaks none of them. They
// are free when the leases end, and not before.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	f := run(t, exportRules, nil, onRedis(server.Addr))
	f.journal.await(t, "store connected")
	holder := exec.Command(os.Args[0], "-test.run=^TestLeaseHolder$") //nolint:noctx // ends with its standard input
	holder.Env = append(os.Environ(), holderEnv+"="+server.Addr)
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Wait() }()
	defer func() { _ = holder.Process.Kill() }()
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			t.Fatal("the holder ended by itself")
		}
		if lines.Text() == holderSays {
			break
		}
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	status, refused := f.ask(t, "/v1/check", anExport)
	bound, _ := refused["retry_after_ms"].(float64)
	if status != http.StatusTooManyRequests || bound <= 0 || bound > 2000 {
		t.Fatalf("just after the holder was killed: %d %v", status, refused)
	}
	f.await(t, func() bool { status, _ := f.ask(t, "/v1/check", anExport); return status == http.StatusOK })
	if after := time.Since(killed); after < time.Duration(bound-50)*time.Millisecond {
		t.Errorf("a place was free %s after the kill; its lease had %vms left", after, bound)
	}
}

// TestTokensOfTwoProcesses: a process releases and commits what another one issued.
func TestTokensOfTwoProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	nodes := [2]*fixture{run(t, exportRules, nil, onRedis(server.Addr)), run(t, exportRules, nil, onRedis(server.Addr))}
	for _, f := range nodes {
		f.journal.await(t, "store connected")
	}
	_, taken := nodes[0].ask(t, "/v1/check", anExport)
	lease := fmt.Sprintf(`{"lease":%q}`, taken["lease"])
	for i, want := range []bool{true, false} {
		if _, out := nodes[1].ask(t, "/v1/release", lease); out["released"] != want {
			t.Errorf("release %d: %v", i, out)
		}
	}
	_, reserved := nodes[0].ask(t, "/v1/reserve", aLanguage)
	commit := fmt.Sprintf(`{"reservation":%q,"cost":150}`, reserved["reservation"])
	var mu sync.Mutex
	done := 0
	var wg sync.WaitGroup
	for i := range 16 { // a client that retries at both
		wg.Go(func() {
			if _, out := nodes[i%2].ask(t, "/v1/commit", commit); out["committed"] == true {
				mu.Lock()
				defer mu.Unlock()
				done++
			}
		})
	}
	wg.Wait()
	_, peek := nodes[1].ask(t, "/v1/check", strings.Replace(aLanguage, `"cost":400`, `"cost":1,"peek":true`, 1))
	if done != 1 || peek["remaining"] != 850.0 {
		t.Errorf("%d of 16 commits were done, %v left of 1000; want 1 and 850", done, peek["remaining"])
	}
}

// TestBodiesOfTokens: errors in a body are reported, and affect no other request.
func TestBodiesOfTokens(t *testing.T) {
	f := run(t, exportRules, nil)
	for _, c := range []struct{ path, body, detail string }{
		{"/v1/release", `{}`, `"lease" is missing`},
		{"/v1/release", `{"lease":"AAAA"}`, "is unknown: it was not issued"},
		{"/v1/release", `{"lease":1}`, "must be a string"},
		{"/v1/release", `{"lease":"a","lease":"b"}`, "duplicate field"},
		{"/v1/renew", `{"reservation":"a"}`, "unknown field"},
		{"/v1/commit", `{"reservation":"a"}`, `"cost" is missing`},
		{"/v1/commit", `{"reservation":"a","cost":-1}`, "must not be negative"},
		{"/v1/cancel", `{"reservation":"a","cost":1}`, "unknown field"},
		{"/v1/reserve", `{"domain":"api","ttl_ms":0}`, `"ttl_ms" must be from 1`},
		{"/v1/reserve", `{"domain":"api","ttl_ms":86400001}`, `"ttl_ms" must be from 1`},
		{"/v1/reserve", `{"domain":"api","peek":true}`, `"peek" does not apply`},
		{"/v1/reserve", `{}`, `"domain" is missing`},
	} {
		status, out := f.ask(t, c.path, c.body)
		if detail, _ := out["detail"].(string); status != http.StatusBadRequest || !strings.Contains(detail, c.detail) {
			t.Errorf("%s %s: %d %v, want %q", c.path, c.body, status, out, c.detail)
		}
	}
}
