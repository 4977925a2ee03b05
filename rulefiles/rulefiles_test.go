package rulefiles_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/described"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// lines receives a logger's output, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// await returns the first line that contains the words.
func (l lines) await(t *testing.T, words string) string {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case line := <-l:
			if strings.Contains(line, words) {
				return line
			}
		case <-late:
			t.Fatalf("nobody logged %q", words)
		}
	}
}

// clock is a manual clock.
type clock struct{ passed atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.passed.Load()))
}

func (c *clock) pass(d time.Duration) { c.passed.Add(int64(d)) }

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "rules.yaml")
	replace(t, file, text)
	return file
}

// replace writes a file atomically.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// open opens rules from text, with a manual clock and a buffered log.
func open(t *testing.T, store store.Store, text string, options ...rulefiles.Option) (r *rulefiles.Rules, c *clock, log lines, file string) {
	t.Helper()
	c, log, file = new(clock), make(lines, 100), write(t, text)
	options = append([]rulefiles.Option{rulefiles.WithClock(c.now), rulefiles.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}, options...)
	r, err := rulefiles.Open(store, []string{file}, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, c, log, file
}

func handler(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// get returns the status, the header without fields about the connection, and the body.
func get(t *testing.T, address string, header ...string) (status int, fields http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	res.Header.Del("Date")
	return res.StatusCode, res.Header, string(text)
}

const shop = `
domain: shop
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 2/minute}
  - {name: daily, match: {path: /login}, key: ["header:X-Api-Key"], rate: 3/day, algorithm: fixed_window}
  - name: custom
    match: {path: /custom}
    rate: 1/minute
    on_limit: {status: 420, headers: {X-Reason: enough}, body: {json: '{"wait":{{.RetryAfter}}}', text: "wait"}}
  - {name: banned, match: {path: /items}, rate: 1/minute, on_limit: {action: shadow_ban, body: "[]", content_type: application/json}}
  - {name: watched, match: {path: /watched}, rate: 1/minute, mode: shadow}
  - {name: jobs, match: {path: /jobs}, rate: 1/minute, on_limit: queue}
`

// Requests get the same status, header fields and body as from the server's proxy.
func TestAnswersAsTheServer(t *testing.T) {
	r, c, log, file := open(t, memory.New(), shop)
	ours := serve(t, r.Middleware(http.HandlerFunc(handler)))

	set, err := rulefile.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(serve(t, http.HandlerFunc(handler)))
	if err != nil {
		t.Fatal(err)
	}
	theirs := serve(t, proxy.New(proxy.Options{
		Asker:    admission.Asker{Engine: engine.New(memory.New(), set), Clients: clients, Clock: c.now, Logger: slog.New(slog.NewTextHandler(log, nil))},
		Upstream: upstream, Domain: func() string { return "shop" }, Transport: http.DefaultTransport,
	}))
	statuses := map[int]int{}
	for i, path := range []string{
		"/", "/login", "/login", "/login", "/login?again", "/custom", "/custom", "/items", "/items", "/watched", "/watched", "/login",
	} {
		for _, accept := range []string{"*/*", "application/json"} {
			status, fields, body := get(t, ours+path, "Accept", accept, "X-Api-Key", "k")
			wantStatus, wantFields, want := get(t, theirs+path, "Accept", accept, "X-Api-Key", "k")
			if status != wantStatus || body != want || !reflect.DeepEqual(fields, wantFields) {
				t.Errorf("request %d, %s:\n%d %v %s\nthe server says\n%d %v %s", i, path, status, fields, body, wantStatus, wantFields, want)
			}
			statuses[status]++
		}
		c.pass(7 * time.Second)
	}
	if statuses[200] == 0 || statuses[429] == 0 || statuses[420] == 0 {
		t.Errorf("some answers were never given: %v", statuses)
	}
}

// A refusal is a 429 with Retry-After, after which requests are allowed again. Requests
// that the server would queue are refused.
func TestRefusal(t *testing.T) {
	r, c, _, _ := open(t, memory.New(), shop)
	address := serve(t, r.Middleware(http.HandlerFunc(handler)))
	for i, want := range []int{200, 200, 429} {
		if status, fields, body := get(t, address+"/login"); status != want || want == 429 && (fields.Get("Retry-After") != "30" || !strings.Contains(body, `"login"`)) {
			t.Errorf("request %d: %d %v %s, want %d", i, status, fields, body, want)
		}
	}
	c.pass(30 * time.Second)
	if status, _, _ := get(t, address+"/login"); status != 200 {
		t.Errorf("when Retry-After is over: %d", status)
	}
	for _, want := range []int{200, 429} {
		if status, _, _ := get(t, address+"/jobs"); status != want {
			t.Errorf("/jobs: %d, want %d", status, want)
		}
	}
}

func limited(n int) string {
	return fmt.Sprintf("domain: d\nlimits:\n  - {name: a, rate: %d/hour}\n", n)
}

// A changed file becomes active and keeps the counts. If a file is broken or missing,
// the old rules stay active and the error is logged.
func TestReload(t *testing.T) {
	r, _, log, file := open(t, memory.New(), limited(2))
	remaining := func() int64 {
		v, err := r.DecideAttributes(t.Context(), nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		return v.Decision.Remaining
	}
	if got := remaining(); got != 1 {
		t.Fatalf("%d left of 2", got)
	}
	replace(t, file, limited(10))
	log.await(t, "rules reloaded")
	if got := remaining(); got != 8 {
		t.Errorf("%d left of 10 after 2", got)
	}
	replace(t, file, "domain: d\nlimits:\n  - {name: a, rate: 1/fortnight}\n")
	if line := log.await(t, "rules not reloaded"); !strings.Contains(line, "rules.yaml:3:") || !strings.Contains(line, "ERROR") {
		t.Errorf("the logger is told %s", line)
	}
	if got := remaining(); got != 7 {
		t.Errorf("%d left with the old rules, want 7", got)
	}
	replace(t, file, "domain: other\nlimits:\n  - {name: a, rate: 1/s}\n")
	log.await(t, `no rules for the domain`)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); err == nil {
		t.Error("rules that have gone are in force")
	}
	if got := remaining(); got != 6 {
		t.Errorf("%d left with the old rules, want 6", got)
	}
	replace(t, file, "domain: d\nlimits: []\n")
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if v, err := r.DecideAttributes(t.Context(), nil, 1); err != nil || v.Decision.Reason != headgate.ReasonNoLimit || !v.Decision.Allowed {
		t.Errorf("without limits: %+v, %v", v, err)
	}
}

func TestOpenFails(t *testing.T) {
	twoDomains := limited(1) + "---\n" + strings.Replace(limited(1), "domain: d", "domain: e", 1)
	for _, row := range []struct {
		store   store.Store
		text    string
		options []rulefiles.Option
		want    string
	}{
		{nil, limited(1), nil, "without a store"},
		{memory.New(), "domain: d\nlimts: []\n", nil, `rules.yaml:2:1: unknown key "limts"`},
		{memory.New(), "", nil, "rules"},
		{memory.New(), twoDomains, nil, `several domains, ["d" "e"]`},
		{memory.New(), limited(1), []rulefiles.Option{rulefiles.WithDomain("e")}, `no rules for the domain "e", only for ["d"]`},
		{memory.New(), limited(1), []rulefiles.Option{rulefiles.WithTrustedProxies(netip.Prefix{})}, "trusted proxies"},
		{memory.New(), limited(1), []rulefiles.Option{rulefiles.WithClock(func() time.Time { return time.Time{} })}, "invalid time"},
		{memory.New(), limited(1), []rulefiles.Option{rulefiles.WithKeySecret("too short")}, "the key secret has 9 bytes, and needs at least 32"},
	} {
		r, err := rulefiles.Open(row.store, []string{write(t, row.text)}, row.options...)
		if err == nil || r != nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %s", err, row.want)
		}
	}
	if r, err := rulefiles.Open(memory.New(), []string{t.TempDir()}); err == nil || r != nil || !strings.Contains(err.Error(), "no rules found") {
		t.Errorf("an empty folder: %v", err)
	}
	r, err := rulefiles.Open(memory.New(), []string{write(t, twoDomains)}, rulefiles.WithDomain("e"))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
}

// Decide and DecideAttributes share counts.
func TestDecide(t *testing.T) {
	store := memory.New()
	r, _, _, file := open(t, store, shop, rulefiles.WithTrustedProxies(netip.MustParsePrefix("192.0.2.0/24")))
	request := httptest.NewRequest(http.MethodGet, "/login", nil) // from 192.0.2.1
	request.Header.Set("X-Forwarded-For", "198.51.100.7")
	if v, err := r.Decide(t.Context(), request); err != nil || !v.Decision.Allowed || v.Rule != "login" || v.Outcome != "allowed" || v.Decision.Remaining != 1 {
		t.Errorf("a request: %+v, %v", v, err)
	}
	same := map[string]string{"path": "/login", "client_ip": "198.51.100.7"}
	if v, err := r.DecideAttributes(t.Context(), same, 0); err != nil || v.Decision.Remaining != 1 {
		t.Errorf("a dry run: %+v, %v", v, err)
	}
	if v, err := r.DecideAttributes(t.Context(), same, 1); err != nil || !v.Decision.Allowed {
		t.Errorf("the second: %+v, %v", v, err)
	}

	// A server with the same rules and store shares them too.
	set, err := rulefile.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	request.RemoteAddr = "198.51.100.7:1"
	other, _, _, _ := open(t, store, shop)
	if v, err := other.Decide(t.Context(), request); err != nil || v.Decision.Allowed || v.Outcome != "refused" || v.Decision.RetryAfter != 30*time.Second {
		t.Errorf("the third, in another process: %+v, %v", v, err)
	}
	if v, err := engine.New(store, set).Decide(t.Context(), engine.Query{Domain: "shop", Part: engine.Part{Request: login(t, "198.51.100.7"), Cost: 1}, At: new(clock).now().UnixMicro()}); err != nil || v.Allowed {
		t.Errorf("the fourth, of a server: %+v, %v", v, err)
	}

	if v, err := r.DecideAttributes(t.Context(), map[string]string{"path": "/free"}, 1); err != nil || !v.Decision.Allowed || v.Rule != "" || v.Decision.Reason != headgate.ReasonNoLimit {
		t.Errorf("without a rule: %+v, %v", v, err)
	}
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprint("a", i)] = ""
	}
	for _, attributes := range []map[string]string{{"headers:x": ""}, {"client_ip": "nobody"}, {"path": "login"}, many} {
		if v, err := r.DecideAttributes(t.Context(), attributes, 1); err == nil || v.Decision.Allowed {
			t.Errorf("%v: %+v, %v", attributes, v, err)
		}
	}
	if v, err := r.DecideAttributes(t.Context(), same, -1); !errors.Is(err, headgate.ErrInvalidCost) || v.Decision.Allowed {
		t.Errorf("a negative cost: %+v, %v", v, err)
	}
}

// broken is a store that cannot answer.
type broken struct{ store.Store }

func (broken) Do(_ context.Context, b *store.Batch) {
	b.Each(func([]store.Op, []store.Decision, store.Mode) error {
		return headgate.ErrUnavailable
	})
}

// If the store fails, on_store_error decides, the caller gets the error, and the
// middleware logs it once a minute.
func TestStoreFails(t *testing.T) {
	const text = `
domain: d
limits:
  - {name: open, match: {path: /open}, rate: 1/hour, on_store_error: allow}
  - {name: closed, match: {path: /closed}, rate: 1/hour, on_store_error: deny}
  - {name: here, match: {path: /here}, rate: 1/hour, on_store_error: local}
`
	r, c, log, _ := open(t, broken{memory.New()}, text, rulefiles.WithFallback(memory.New()))
	address := serve(t, r.Middleware(http.HandlerFunc(handler)))
	for _, row := range []struct {
		path string
		want int
	}{{"/open", 200}, {"/open", 200}, {"/closed", 503}, {"/here", 200}, {"/here", 429}} {
		if status, _, _ := get(t, address+row.path); status != row.want {
			t.Errorf("%s: %d, want %d", row.path, status, row.want)
		}
	}
	log.await(t, "level=WARN")
	if len(log) > 0 {
		t.Errorf("and %s", <-log)
	}
	c.pass(time.Minute)
	get(t, address+"/open")
	log.await(t, "level=WARN")
	v, err := r.DecideAttributes(t.Context(), map[string]string{"path": "/open"}, 1)
	if !errors.Is(err, headgate.ErrUnavailable) || !v.Decision.Allowed || v.Decision.Reason != headgate.ReasonFailOpen {
		t.Errorf("%+v, %v", v, err)
	}
}

// A slot is held until the handler returns. Only Middleware applies concurrency.
func TestConcurrency(t *testing.T) {
	r, _, _, _ := open(t, memory.New(), "domain: d\nlimits:\n  - {name: one, concurrency: 1}\n")
	entered, leave := make(chan struct{}), make(chan struct{})
	address := serve(t, r.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})))
	first := make(chan int)
	go func() {
		status, _, _ := get(t, address)
		first <- status
	}()
	<-entered
	if status, _, _ := get(t, address); status != http.StatusTooManyRequests {
		t.Errorf("the second at the same time: %d", status)
	}
	if v, err := r.DecideAttributes(t.Context(), nil, 1); err != nil || !v.Decision.Allowed {
		t.Errorf("who does not tell when it has ended: %+v, %v", v, err)
	}
	leave <- struct{}{}
	if status := <-first; status != 200 {
		t.Errorf("the first: %d", status)
	}
	go func() { <-entered; leave <- struct{}{} }()
	if status, _, _ := get(t, address); status != 200 {
		t.Errorf("after it: %d", status)
	}
}

// Waiting for a turn uses the clock. A request that is canceled frees its place in the
// queue.
func TestTurns(t *testing.T) {
	r, c, _, _ := open(t, memory.New(), "domain: d\nlimits:\n  - {name: turns, rate: 1/hour, algorithm: leaky_bucket, burst: 2}\n")
	h := r.Middleware(http.HandlerFunc(handler))
	ask := func(ctx context.Context) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return rec.Code
	}
	if code := ask(t.Context()); code != 200 {
		t.Fatalf("the first: %d", code)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 3 { // each gets the place that the one before freed
		if code := ask(gone); code != http.StatusServiceUnavailable {
			t.Errorf("who has gone: %d", code)
		}
	}
	second := make(chan int)
	go func() { second <- ask(t.Context()) }()
	for {
		c.pass(time.Minute)
		select {
		case code := <-second:
			if code != 200 {
				t.Errorf("the second, in its turn: %d", code)
			}
			return
		default:
		}
	}
}

// login returns a request to /login, as a door of the server describes it.
func login(t *testing.T, from string) *described.Request {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var r described.Request
	r.Add(rules.Attribute{Kind: rules.Path}, "/login", clients)
	r.Add(rules.Attribute{Kind: rules.ClientIP}, from, clients)
	return &r
}
