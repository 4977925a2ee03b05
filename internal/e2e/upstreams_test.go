package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

var spellings = flag.Int("spellings", 300, "how many spellings of paths, and of values, each server gets")

// Protected paths are refused in every spelling. In the second set, each path is
// allowed once.
const (
	protected = `
domain: site
limits:
  - {name: login, match: {path: /login/**}, rate: 0/s}
  - {name: v1, match: {path: [/v1/**, "!/v1/health"]}, rate: 0/s}
`
	eachOnce = `
domain: site
limits:
  - {name: each, key: path, rate: 1/day}
`
)

// Real servers get many spellings of paths, directly and behind Headgate. No spelling
// that reaches a protected handler does so behind Headgate, and a handler that may be
// reached once is reached once.
func TestNoSpellingSlipsPastTheProxy(t *testing.T) {
	for name, start := range upstreams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := start(t)
			to := func(c *config.Config) { proxyOf(c).Upstream = &url.URL{Scheme: "http", Host: upstream} }
			strict, once := run(t, protected, nil, to), run(t, eachOnce, nil, to)
			comparison{
				bare:   &rawClient{address: upstream},
				strict: &rawClient{address: strict.Addr(doorProxy)}, once: &rawClient{address: once.Addr(doorProxy)},
			}.run(t)
		})
	}
}

// The same with forward-auth, with proxies configured as on the page.
func TestNoSpellingSlipsPastForwardAuthOfNginx(t *testing.T) {
	t.Parallel()
	noSpellingSlipsPast(t, func(t *testing.T, p *forwardProxy, backend *httptest.Server, upstream string) {
		p.startNginx(t, backend, func(text, folder string) string {
			return nginxHome(replaced(t, text, backend.Listener.Addr().String(), upstream), folder)
		})
	})
}

func TestNoSpellingSlipsPastForwardAuthOfCaddy(t *testing.T) {
	t.Parallel()
	caddy := program(t, "caddy")
	noSpellingSlipsPast(t, func(t *testing.T, p *forwardProxy, backend *httptest.Server, upstream string) {
		p.startProxy(t, backend, "caddy-forward-auth", "Caddyfile", func(text, _ string) string {
			return replaced(t, text, backend.Listener.Addr().String(), upstream)
		}, caddy, "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	})
}

func TestNoSpellingSlipsPastForwardAuthOfTraefik(t *testing.T) {
	traefik(t)
	noSpellingSlipsPast(t, func(t *testing.T, p *forwardProxy, backend *httptest.Server, upstream string) {
		p.startTraefik(t, backend, func(text, _ string) string {
			return replaced(t, text, backend.Listener.Addr().String(), upstream)
		})
	})
}

// noSpellingSlipsPast starts a proxy with forward-auth in front of upstreams.
func noSpellingSlipsPast(t *testing.T, start func(t *testing.T, p *forwardProxy, backend *httptest.Server, upstream string)) {
	t.Helper()
	for _, name := range []string{"express", "url"} {
		t.Run(name, func(t *testing.T) {
			upstream := upstreams()[name](t)
			front := func(rules string) *rawClient {
				p := &forwardProxy{fixture: run(t, rules, nil, func(c *config.Config) {
					c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
				})}
				nobody := httptest.NewUnstartedServer(nil)
				defer nobody.Close()
				start(t, p, nobody, upstream)
				return &rawClient{address: p.address}
			}
			comparison{bare: &rawClient{address: upstream}, strict: front(protected), once: front(eachOnce)}.run(t)
		})
	}
}

// comparison is one server, direct and behind rules.
type comparison struct{ bare, strict, once *rawClient }

func (c comparison) run(t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(*spellings), 15))
	reached, odd, exact := map[string]int{}, 0, 0
	for range *spellings {
		path := spelling(r)
		handler := c.bare.get(t, path)
		reached[handler]++
		guarded := handler == "login" || handler == "v1"
		if guarded && !strings.HasPrefix(path, "/login") && !strings.HasPrefix(path, "/v1/") {
			odd++
		}
		behind := c.strict.get(t, path)
		// These are escaped on the way, and may then be another path for the server.
		escaped := strings.ContainsAny(path, `#\`)
		if behind == "login" || behind == "v1" || guarded && !escaped && behind != "" {
			t.Errorf("%s reaches %q, and behind the rules %q", path, handler, behind)
		}
		if c.once.get(t, path) == "exact" {
			if exact++; exact > 1 {
				t.Errorf("%s is admitted to what was admitted before", path)
			}
		}
	}
	t.Logf("%d spellings reached %v, %d of them protected handlers by odd beginnings", *spellings, reached, odd)
	if reached["login"]*100 < *spellings || reached["v1"]*100 < *spellings || c.strict.get(t, "/v1/health") != "health" {
		t.Errorf("the test tests nothing: %v", reached)
	}
}

// spelling returns one of many spellings of a path, or something like it.
func spelling(r *rand.Rand) string {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	before := []string{
		"", "", "", "", "", "", "", "", "/", "//host", "/.", "/x/..", "/x/%2e%2e", "/x%2f..", "/x%5c..", "/;a", "/x/..;", "/%2e", "/..", `/x\..`, "/%252e", "/x%252f..",
		"/x/y/../..", "/v1/health/..", "/login/..", "/x//..", "//x/..", "/x;a/..;b", "/./.", `\`, "/%2f", "/%5c",
	}
	after := []string{
		"", "", "", "", "", "", "", "", "/", "//", "/.", "/..", "/../x", "%2f", "%2fx", "%2f..%2fx", "%2f..%2f..%2fx", "/%2e%2e/x", ";x", ";x/../y", "%3bx", "%3fx", "%23x", "#x",
		"%00", "/..;/x", "%5c", `\x`, "%5c..%5cx", "/..%2fhealth", "%2f..%2fhealth", "/..%2f..%2fv1%2fhealth", "?x=/x", "%20", ".", "%2e", "/x/../..", "%252f", "/;", "/*",
	}
	targets := []string{"/login", "/login/x", "/exact", "/exact", "/v1/x", "/v1/otp/1", "/v1/health"}
	path := pick(before) + respelled(r, pick(targets)) + pick(after)
	for r.IntN(3) == 0 {
		path += pick(after)
	}
	if path[0] != '/' {
		path = "/" + path
	}
	return path
}

// respelled writes the characters of a path in another way.
func respelled(r *rand.Rand, path string) string {
	at := 1 + r.IntN(len(path)-1)
	escape := fmt.Sprintf("%%%02x", path[at])
	switch r.IntN(8) {
	case 0:
		return strings.ToUpper(path)
	case 1:
		return path[:at] + strings.ToUpper(path[at:at+1]) + path[at+1:]
	case 2:
		return path[:at] + escape + path[at+1:]
	case 3:
		return path[:at] + "%25" + escape[1:] + path[at+1:]
	case 4:
		return "/" + strings.ReplaceAll(path[1:], "/", []string{"%2f", "%2F", "%5c", "//", "/./", `\`}[r.IntN(6)])
	}
	return path
}

// rawClient sends request lines unchanged, one after another.
type rawClient struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

// get returns the name of the handler that was reached, or "".
func (c *rawClient) get(t *testing.T, path string) string {
	t.Helper()
	res, _ := c.ask(t, "GET "+path+" HTTP/1.1\r\nHost: site.example\r\n\r\n")
	return res.Header.Get("X-Handler")
}

// ask sends a request unchanged. The reply is empty if the server just closes.
func (c *rawClient) ask(t *testing.T, request string) (reply, string) {
	t.Helper()
	for try := 0; ; try++ {
		if c.conn == nil {
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(time.Hour))
			c.conn, c.in = conn, bufio.NewReader(conn)
		}
		_, err := io.WriteString(c.conn, request)
		var res *http.Response
		if err == nil {
			res, err = http.ReadResponse(c.in, &http.Request{Method: http.MethodGet}) //nolint:bodyclose // its end is that of the connection, or the next answer
		}
		if err != nil {
			_ = c.conn.Close()
			if c.conn = nil; try < 2 {
				continue // the server has closed it since the last request
			}
			return reply{}, ""
		}
		body, err := io.ReadAll(res.Body)
		if res.Close || err != nil { // it may not read all of a request that is too large
			_ = c.conn.Close()
			c.conn = nil
		}
		return reply{res.StatusCode, res.Header}, string(body)
	}
}

// upstreams start servers, and return their addresses.
func upstreams() map[string]func(t *testing.T) string {
	all := map[string]func(t *testing.T) string{"go": startServeMux, "php": startPHP, "php files": startPHPFiles}
	for _, kind := range []string{"express", "express4", "fastify", "fastify4", "url"} {
		all[kind] = func(t *testing.T) string { return startNode(t, kind) }
	}
	return all
}

// optional finds a program that the tests do not require, or skips the test.
func optional(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%v; make test tries to get it", err)
	}
	return path
}

func startServeMux(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{"/exact": "exact", "/login": "login", "/login/": "login", "/v1/health": "health", "/v1/": "v1", "/": "other"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Handler", name) })
	}
	mux.HandleFunc("/values/", answerValues)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// startNode starts a server of testdata/upstreams. Its modules are in the user's cache
// folder.
func startNode(t *testing.T, kind string) string {
	t.Helper()
	node := optional(t, "node")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	modules := filepath.Join(cache, "headgate", "upstreams", "node_modules")
	if _, err := os.Stat(filepath.Join(modules, kind)); err != nil && kind != "url" {
		t.Skipf("%v; scripts/ensure-express.sh tries to get it", err)
	}
	command := exec.CommandContext(context.Background(), node, "testdata/upstreams/server.js", kind)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("node has not said where it listens: %v", err)
	}
	return "127.0.0.1:" + strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// startPHP starts PHP's built-in server with a front controller.
func startPHP(t *testing.T) string {
	t.Helper()
	router, err := filepath.Abs("testdata/upstreams/router.php")
	if err != nil {
		t.Fatal(err)
	}
	return servePHP(t, t.TempDir(), router)
}

// startPHPFiles starts it with one file per handler.
func startPHPFiles(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, name := range map[string]string{"login/index.php": "login", "v1/index.php": "v1", "v1/health/index.php": "health", "index.php": "other"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, file), "<?php header('X-Handler: "+name+"');\n")
	}
	return servePHP(t, root, "")
}

func servePHP(t *testing.T, root, router string) string {
	t.Helper()
	address := redistest.FreeAddress(t)
	args := []string{"-S", address, "-t", root}
	if router != "" {
		args = append(args, router)
	}
	command := exec.CommandContext(context.Background(), optional(t, "php"), args...)
	return serveAt(t, address, command)
}

// serveAt starts a server, and returns its address once it listens.
func serveAt(t *testing.T, address string, command *exec.Cmd) string {
	t.Helper()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	for range 500 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("%s does not listen", command.Path)
	return ""
}
