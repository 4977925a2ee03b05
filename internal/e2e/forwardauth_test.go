package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// examples is the folder with configurations for users to copy.
const examples = "../../examples/"

// forwardProxy is a real proxy in front of a backend that calls a real Headgate.
type forwardProxy struct {
	*fixture
	address string
	passed  atomic.Int64 // requests that reached the backend
	told    string       // prefix of the fields that show the limits of allowed requests
}

// toldBackend is the prefix of the fields in which the backend repeats what it
// received, for proxies that do not pass it on to clients.
const toldBackend = "Backend-Told-"

// runForwardAuth runs Headgate with the rules of an example, and a backend.
func runForwardAuth(t *testing.T, example string, change ...set) (*forwardProxy, *httptest.Server) {
	t.Helper()
	p := &forwardProxy{}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.passed.Add(1)
		n, err := io.Copy(io.Discard, r.Body)
		for name, values := range r.Header {
			if strings.Contains(name, "Ratelimit") || name == "X-Headgate-Token" {
				w.Header()[toldBackend+name] = values
			}
		}
		_, _ = fmt.Fprintf(w, "%s %s %d %v", r.Method, r.URL.RequestURI(), n, err)
	}))
	t.Cleanup(backend.Close)
	p.fixture = run(t, readFile(t, examples+example+"/rules.yaml"), nil, append(change, func(c *config.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})...)
	return p, backend
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program finds a program, or skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("HEADGATE_REQUIRE_PROXIES") == "1" {
		t.Fatal(err)
	}
	t.Skipf("%v; install it by scripts/ensure.sh %s", err, name)
	return ""
}

// startProxy starts a program with the example's configuration, with the addresses of
// this test. It writes all its files to a folder of the test.
func (p *forwardProxy) startProxy(t *testing.T, backend *httptest.Server, example, file string, edit func(text, folder string) string, path string, args ...string) {
	t.Helper()
	p.address = redistest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(p.address)
	folder := t.TempDir()
	text := strings.NewReplacer(
		"127.0.0.1:8080", p.Addr(doorAPI), "127.0.0.1:8000", p.address, "http://:8000", "http://:"+port, "127.0.0.1:9000", backend.Listener.Addr().String(),
	).Replace(readFile(t, examples+example+"/"+file))
	writeFile(t, filepath.Join(folder, file), edit(text, folder))
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path, args...)
	command.Dir, command.Env = folder, append(os.Environ(), "HOME="+folder, "XDG_CONFIG_HOME="+folder, "XDG_DATA_HOME="+folder)
	var said lockedBuffer
	command.Stdout, command.Stderr = &said, &said
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", path, &said)
		}
	})
	p.await(t, func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", path, &said)
		default:
		}
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// clientAt returns a client with a separate address.
func clientAt(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// ask sends a request through the proxy, with lines such as "X-A: b".
func (p *forwardProxy) ask(t *testing.T, c *http.Client, method, uri, body string, lines ...string) (reply, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+uri, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, res)
	return reply{res.StatusCode, res.Header}, text
}

// limits sends requests that all proxies must treat alike.
func (p *forwardProxy) limits(t *testing.T) {
	t.Helper()
	ann, ben := clientAt(t, "127.0.0.2"), clientAt(t, "127.0.0.3")
	for i := range 5 {
		// Headers that a client forges do not change its identity.
		forged := "10.0.0." + strconv.Itoa(i)
		res, body := p.ask(t, ann, "POST", "/login?a=1&i="+strconv.Itoa(i), "name=ann",
			"X-Forwarded-For: "+forged, "Forwarded: for="+forged, "X-Real-Ip: "+forged, "X-Forwarded-Uri: /free", "X-Forwarded-Method: GET",
			"X-RateLimit-Remaining: 999", "RateLimit: forged",
			// As sent by a page of another origin, which concerns only the page and the
			// backend.
			"Origin: http://other.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "POST /login?a=1&i=") {
			t.Fatalf("login %d: %v %v", i, res.StatusCode, body)
		}
		told(t, res, map[string]string{p.told + "X-RateLimit-Limit": "5", p.told + "X-RateLimit-Remaining": strconv.Itoa(4 - i)})
	}
	for _, uri := range []string{"/login", "//login", "/%6cogin?x=y", "/./login/", "/x/../login"} {
		res, body := p.ask(t, ann, "POST", uri, "name=ann", "X-Forwarded-For: 10.9.9.9", "X-Forwarded-Uri: /free", "X-Forwarded-Method: GET")
		if res.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "quota-exceeded") {
			t.Errorf("%v: %v %v", uri, res.StatusCode, body)
		}
		told(t, res, map[string]string{
			"Retry-After": "60", "X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60",
			"RateLimit-Policy": `"login";q=5;w=60, "per-client";q=50;w=1`, "Content-Type": "application/problem+json",
		})
	}
	if res, _ := p.ask(t, ann, "POST", "/login", "", "X-Original-URI: /free", "X-Original-Method: GET", "X-Original-URL: http://a/free"); res.StatusCode < 400 {
		t.Errorf("forged: %v", res.StatusCode)
	}
	if n := p.passed.Load(); n != 5 {
		t.Errorf("the backend has seen %d requests, want 5", n)
	}
	large := strings.Repeat("x", 300_000)
	for _, row := range []struct {
		client    *http.Client
		method    string
		uri, body string
		want      string
	}{
		{ann, "GET", "/login", "", "GET /login 0 <nil>"},
		{ann, "GET", "/x?cost=0&deny=403&domain=none", "", "GET /x?cost=0&deny=403&domain=none 0 <nil>"},
		{ann, "PUT", "/upload", large, "PUT /upload 300000 <nil>"},
		{ben, "POST", "/login", "name=ben", "POST /login 8 <nil>"},
		{ben, "HEAD", "/", "", ""},
	} {
		if res, body := p.ask(t, row.client, row.method, row.uri, row.body); res.StatusCode != http.StatusOK || body != row.want {
			t.Errorf("%v %v: %v %v", row.method, row.uri, res.StatusCode, body)
		}
	}
	p.clock.advance(time.Minute)
	if res, _ := p.ask(t, ann, "POST", "/login", "name=ann"); res.StatusCode != http.StatusOK {
		t.Errorf("after Retry-After: %v", res.StatusCode)
	}
	if log := p.journal.text.String(); strings.Contains(log, "level=WARN") && !strings.Contains(log, "X-Original-Uri") {
		t.Errorf("log: %s", log)
	}
}

func told(t *testing.T, res reply, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := res.Header.Values(name); len(got) != 1 || got[0] != value {
			t.Errorf("%d: %v %q, want %q", res.StatusCode, name, got, value)
		}
	}
}

func TestForwardAuthOfCaddy(t *testing.T) {
	p, backend := runForwardAuth(t, "caddy-forward-auth")
	p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string { return text },
		program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	p.limits(t)

	// Whatever host the client asks: Caddy answers hosts that no site has with an empty 200.
	for _, host := range []string{"localhost", "shop.example"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address+"/hosts", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := clientAt(t, "127.0.0.3").Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("X-Ratelimit-Limit"); got != "50" {
			t.Errorf("host %s: %d with the limit %q, want 50", host, res.StatusCode, got)
		}
	}
}

// Where no limit applies, no header shows one: Caddy 2.6 copies the placeholders of
// missing fields.
func TestForwardAuthOfCaddyWithoutALimit(t *testing.T) {
	t.Parallel()
	p, backend := runForwardAuth(t, "caddy-forward-auth", func(c *config.Config) {
		writeFile(t, c.Rules[0], "domain: site\nlimits: [{name: login, match: {path: /login}, rate: 5/minute}]\n")
	})
	p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string { return text },
		program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	c := clientAt(t, "127.0.0.2")
	for path, want := range map[string]int{"/login": 10, "/other": 0} {
		told := 0
		res, _ := p.ask(t, c, "GET", path, "")
		for name, values := range res.Header {
			if strings.Contains(name, "Ratelimit") {
				told++
			}
			if strings.Contains(values[0], "{") {
				t.Errorf("%s: %s: %s", path, name, values[0])
			}
		}
		if res.StatusCode != http.StatusOK || told != want {
			t.Errorf("%s: %d, %d fields, want %d: %v", path, res.StatusCode, told, want, res.Header)
		}
	}
}

// Without a query in Caddy's uri, clients control the query of our request: that must
// not help them.
func TestForwardAuthOfCaddyWithoutAQuery(t *testing.T) {
	t.Parallel()
	p, backend := runForwardAuth(t, "caddy-forward-auth")
	p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string { return strings.Replace(text, "?domain=site", "", 1) },
		program(t, "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	c := clientAt(t, "127.0.0.2")
	for _, query := range []string{"cost=0", "domain=none", "a=b", "cost=0;x", "&cost=0&", "%63ost=0"} {
		if res, body := p.ask(t, c, "POST", "/login?"+query, ""); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %v %v", query, res.StatusCode, body)
		}
	}
	if res, _ := p.ask(t, c, "POST", "/login", ""); res.StatusCode != http.StatusOK || p.passed.Load() != 1 {
		t.Errorf("%v, %d passed", res.StatusCode, p.passed.Load())
	}
	_ = p.Stop(t.Context())
	if res, _ := p.ask(t, c, "POST", "/login", ""); res.StatusCode != http.StatusBadGateway || p.passed.Load() != 1 {
		t.Errorf("without Headgate: %v, %d passed", res.StatusCode, p.passed.Load())
	}
}

// traefikAsks is what Traefik v3.6.12 sent with the example's configuration for a POST
// /login?a=1 from 127.0.0.2 that had its own X-Forwarded-* and Forwarded.
const traefikAsks = `GET /v1/auth?domain=site HTTP/1.1
Host: 127.0.0.1:8080
User-Agent: curl/7.88.1
Accept: */*
Content-Type: application/x-www-form-urlencoded
Cookie: session=s1
Forwarded: for=6.6.6.6
X-Forwarded-For: 127.0.0.2
X-Forwarded-Host: shop.example:8443
X-Forwarded-Method: POST
X-Forwarded-Port: 8443
X-Forwarded-Proto: http
X-Forwarded-Server: traefik
X-Forwarded-Uri: /login?a=1
X-Real-Ip: 127.0.0.2
Accept-Encoding: gzip

`

func TestForwardAuthOfTraefik(t *testing.T) {
	target, _, _ := strings.Cut(strings.TrimPrefix(traefikAsks, "GET "), " ")
	if text := readFile(t, examples+"traefik-forward-auth/dynamic.yml"); !strings.Contains(text, "http://127.0.0.1:8080"+target+"\n") {
		t.Errorf("the example asks another address than %s", target)
	}
	p, _ := runForwardAuth(t, "traefik-forward-auth")
	c, err := net.Dial("tcp", p.Addr(doorAPI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	ask := func(text string) reply {
		t.Helper()
		if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = read(t, res)
		return reply{res.StatusCode, res.Header}
	}
	for i := range 6 {
		// By now only Forwarded still comes from the client.
		res := ask(strings.Replace(traefikAsks, "for=6.6.6.6", "for=6.6.6."+strconv.Itoa(i), 1))
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 5]; res.StatusCode != want {
			t.Errorf("request %d: %v, want %d", i, res.StatusCode, want)
		}
		if i == 5 && (res.Header.Get("Retry-After") != "60" || res.Header.Get("Content-Type") != "application/problem+json") {
			t.Errorf("refusal: %v", res.Header)
		}
	}
	if res := ask(strings.Replace(traefikAsks, "127.0.0.2", "127.0.0.3", 1)); res.StatusCode != http.StatusOK {
		t.Errorf("another client: %v", res.StatusCode)
	}
	if res := ask(strings.Replace(traefikAsks, "X-Real-Ip", "X-Original-Uri: /free\nX-Real-Ip", 1)); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a field that only nginx should send: %v", res.StatusCode)
	}
}

// The page shows the files in examples/.
func TestForwardAuthPageShowsTheExamples(t *testing.T) {
	page := readFile(t, "../../docs/connect/forward-auth.md")
	for _, file := range []string{
		"nginx-forward-auth/nginx.conf", "caddy-forward-auth/Caddyfile", "traefik-forward-auth/traefik.yml",
		"traefik-forward-auth/dynamic.yml", "nginx-forward-auth/headgate.yaml", "nginx-forward-auth/rules.yaml",
	} {
		if text := readFile(t, examples+file); !strings.Contains(page, "\n"+text+"```\n") {
			t.Errorf("%s is not in the page as it is", file)
		}
	}
	for _, file := range []string{"headgate.yaml", "rules.yaml"} {
		want := []byte(readFile(t, examples+"nginx-forward-auth/"+file))
		for _, other := range []string{"caddy", "traefik"} {
			if !bytes.Equal(want, []byte(readFile(t, examples+other+"-forward-auth/"+file))) {
				t.Errorf("%s of %s differs", file, other)
			}
		}
	}
}
