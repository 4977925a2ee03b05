package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// truthRules have a rule for each outcome of a request.
const truthRules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 12/hour}
  - {name: per-key, match: {path: /v1/**}, key: ["header:X-Api-Key"], rate: 20/hour, algorithm: sliding_window}
  - {name: thumbnails, match: {path: /thumbnails/**}, key: [client_ip], rate: 1/minute, burst: 6, algorithm: leaky_bucket}
  - {name: trap, match: {path: /trap}, key: [client_ip], rate: 3/hour, on_limit: {action: shadow_ban, body: "nothing here"}}
  - {name: trial, match: {path: /search}, key: [client_ip], rate: 9/hour, mode: shadow}
`

const truthMesh = `domain: mesh
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 15}
`

// told is the content of one response, as its caller understood it.
type told struct {
	door, domain, rule, key, outcome string
	near                             bool
}

// tally has the counts of the callers.
type tally struct {
	mu       sync.Mutex
	sent     uint64
	requests map[string]uint64 // by "door outcome"
	totals   map[string]uint64 // by outcome
	rules    map[string]map[string]uint64
	keys     map[string]map[string]map[string]int64 // by ranking, rule and key
}

func newTally() *tally {
	return &tally{
		requests: map[string]uint64{}, totals: map[string]uint64{}, rules: map[string]map[string]uint64{},
		keys: map[string]map[string]map[string]int64{"refused": {}, "active": {}},
	}
}

func (c *tally) add(a *told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	c.requests[a.door+" "+a.outcome]++
	c.totals[a.outcome]++
	rule := a.domain + " " + a.rule
	if c.rules[rule] == nil {
		c.rules[rule] = map[string]uint64{}
	}
	c.rules[rule][a.outcome]++
	if a.near {
		c.rules[rule]["near"]++
	}
	for _, by := range []string{"refused", "active"} {
		if by == "refused" && (a.outcome == "allowed" || a.outcome == "delayed") {
			continue
		}
		if c.keys[by][rule] == nil {
			c.keys[by][rule] = map[string]int64{}
		}
		c.keys[by][rule][a.key]++
	}
}

// call is one request to send.
type call struct{ door, rule, path, key string }

// truthCalls returns all calls of the load, in random order.
func truthCalls() []call {
	var list []call
	add := func(n, keys int, rule, path string, doors ...string) {
		for i := range n {
			key := "198.51.100." + strconv.Itoa(i*i%keys)
			if rule == "per-key" || rule == "user" {
				key = "customer-" + strconv.Itoa(i*i%keys)
			}
			list = append(list, call{doors[i%len(doors)], rule, path, key})
		}
	}
	add(140, 9, "login", "/login", "proxy", "api", "resp")
	add(160, 11, "per-key", "/v1/items", "api", "proxy", "resp")
	add(50, 5, "thumbnails", "/thumbnails/cat", "api", "resp")
	add(40, 7, "trap", "/trap", "proxy", "api", "resp")
	add(60, 5, "trial", "/search", "api")
	add(60, 5, "user", "", "grpc")
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// truth is a running process and its clients.
type truth struct {
	*process
	api, resp, mesh string
	client          *http.Client
	envoy           envoy.RateLimitServiceClient
}

func newTruth(t *testing.T) *truth {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "backend") }))
	t.Cleanup(backend.Close)
	f := &truth{process: newProcess(t, backend.URL, truthRules), api: redistest.FreeAddress(t), resp: redistest.FreeAddress(t), mesh: redistest.FreeAddress(t)}
	config := fmt.Sprintf("rules: [rules.yaml, mesh.yaml]\nlisten: {api: %q, grpc: %q, resp: %q, admin: %q}\n"+
		"proxy: {listen: %q, domain: api, upstream: %q}\ntrusted_proxies: [127.0.0.0/8]\n", f.api, f.mesh, f.resp, f.admin, f.proxy, backend.URL)
	for name, text := range map[string]string{"headgate.yaml": config, "mesh.yaml": truthMesh} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.client = &http.Client{Timeout: time.Minute}
	t.Cleanup(f.client.CloseIdleConnections)
	f.start()
	f.eventually("the admin door", func() bool { return f.get("/readyz", nil) == nil || f.get("/metrics", nil) == nil })
	conn, err := grpc.NewClient(f.mesh, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f.envoy = envoy.NewRateLimitServiceClient(conn)
	return f
}

// eventually polls until a condition holds.
func (f *truth) eventually(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(f.log.Name())
			f.t.Fatalf("waiting for %s\n%s", what, log)
		}
		time.Sleep(20 * time.Millisecond) // other processes have no channel to wait for
	}
}

// get calls the admin door.
func (f *truth) get(path string, into any) error {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.admin+path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := f.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(text)
	default:
		err = json.Unmarshal(text, into)
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// send makes a call and returns its outcome.
func (f *truth) send(c *call, resp *respConn) (a told, err error) {
	a = told{door: c.door, domain: "api", rule: c.rule, key: c.key}
	switch c.door {
	case "api":
		err = f.sendAPI(c, &a)
	case "proxy":
		err = f.sendProxy(c, &a)
	case "resp":
		err = resp.send(c, &a)
	case "grpc":
		err = f.sendEnvoy(c, &a)
	}
	return a, err
}

// isNear reports what metrics call near: allowed with a fifth remaining, or less.
func isNear(outcome string, remaining, limit int64) bool {
	return (outcome == "allowed" || outcome == "delayed") && remaining*5 <= limit
}

// outcomeOf names the outcome of a response.
func outcomeOf(allowed bool, action string, shadowed int) string {
	switch {
	case action == "delay":
		return "delayed"
	case action == "shadow_ban":
		return "shadow_banned"
	case !allowed:
		return "refused"
	case shadowed > 0:
		return "shadow_refused"
	}
	return "allowed"
}

func (c *call) attributes() map[string]string {
	if c.rule == "per-key" {
		return map[string]string{"path": c.path, "header:X-Api-Key": c.key}
	}
	return map[string]string{"path": c.path, "client_ip": c.key}
}

func (f *truth) sendAPI(c *call, a *told) error {
	body, err := json.Marshal(map[string]any{"domain": "api", "attributes": c.attributes()})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://"+f.api+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := f.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var said struct {
		Allowed          bool
		Action           string
		Limit, Remaining int64
		Shadow           []string
	}
	if err = json.NewDecoder(res.Body).Decode(&said); err != nil {
		return err
	}
	a.outcome = outcomeOf(said.Allowed, said.Action, len(said.Shadow))
	a.near = said.Limit > 0 && isNear(a.outcome, said.Remaining, said.Limit)
	return nil
}

func (f *truth) sendProxy(c *call, a *told) error {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.proxy+c.path, http.NoBody)
	if err != nil {
		return err
	}
	if c.rule == "per-key" {
		r.Header.Set("X-Api-Key", c.key)
	} else {
		r.Header.Set("X-Forwarded-For", c.key)
	}
	res, err := f.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
		a.outcome = "refused"
	case string(text) == "nothing here":
		a.outcome = "shadow_banned"
	case string(text) == "backend":
		a.outcome = "allowed"
	default:
		return fmt.Errorf("the proxy answers %s: %s", res.Status, text)
	}
	if c.rule == "trap" { // does not show its limit
		return nil
	}
	limit, err := strconv.ParseInt(res.Header.Get("X-RateLimit-Limit"), 10, 64)
	if err != nil {
		return err
	}
	remaining, err := strconv.ParseInt(res.Header.Get("X-RateLimit-Remaining"), 10, 64)
	a.near = isNear(a.outcome, remaining, limit)
	return err
}

func (f *truth) sendEnvoy(c *call, a *told) error {
	a.domain = "mesh"
	r, err := f.envoy.ShouldRateLimit(f.t.Context(), &envoy.RateLimitRequest{Domain: "mesh", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: c.key}},
	}}}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	a.outcome = outcomeOf(r.GetOverallCode() == envoy.RateLimitResponse_OK, "", 0)
	a.near = isNear(a.outcome, int64(r.GetStatuses()[0].GetLimitRemaining()), 15)
	return nil
}

// respConn is a connection of the Redis protocol.
type respConn struct {
	net.Conn
	in *bufio.Reader
}

func (f *truth) dialRESP() (*respConn, error) {
	conn, err := (&net.Dialer{}).DialContext(f.t.Context(), "tcp", f.resp)
	if err != nil {
		return nil, err
	}
	return &respConn{conn, bufio.NewReader(conn)}, nil
}

// send sends HG.CHECK, whose reply is an array of numbers and texts.
func (r *respConn) send(c *call, a *told) error {
	words := []string{"HG.CHECK", "api"}
	for name, value := range c.attributes() {
		words = append(words, name, value)
	}
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(r, command); err != nil {
		return err
	}
	var answer []string
	for n := 1; len(answer) < n; {
		line, err := r.in.ReadString('\n')
		if err != nil {
			return err
		}
		switch line = strings.TrimSpace(line); line[0] {
		case '*':
			n, err = strconv.Atoi(line[1:])
		case ':':
			answer = append(answer, line[1:])
		case '$':
			line, err = r.in.ReadString('\n')
			answer = append(answer, strings.TrimSpace(line))
		default:
			err = fmt.Errorf("HG.CHECK answers %s", line)
		}
		if err != nil {
			return err
		}
	}
	if len(answer) < 9 {
		return fmt.Errorf("HG.CHECK answers %q", answer)
	}
	limit, _ := strconv.ParseInt(answer[2], 10, 64)
	remaining, _ := strconv.ParseInt(answer[3], 10, 64)
	a.outcome = outcomeOf(answer[0] == "1", answer[8], 0)
	a.near = isNear(a.outcome, remaining, limit)
	return nil
}

// load sends everything concurrently, and returns the counts.
func (f *truth) load(calls []call) *tally {
	f.t.Helper()
	c, next := newTally(), atomic.Int64{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			resp, err := f.dialRESP()
			if err != nil {
				f.t.Error(err)
				return
			}
			defer func() { _ = resp.Close() }()
			for i := next.Add(1) - 1; i < int64(len(calls)); i = next.Add(1) - 1 {
				a, err := f.send(&calls[i], resp)
				if err != nil {
					f.t.Errorf("%+v: %v", calls[i], err)
					return
				}
				c.add(&a)
			}
		})
	}
	wg.Wait()
	// The trap and the trial do not show what remains. Each key over its limit was
	// allowed once with 0 of 3 remaining, and twice with 1 or 0 of 9.
	for rule, times := range map[string]int{"api trap": 1, "api trial": 2} {
		if n := times * len(c.keys["refused"][rule]); n > 0 {
			c.rules[rule]["near"] = uint64(n)
		}
	}
	return c
}
