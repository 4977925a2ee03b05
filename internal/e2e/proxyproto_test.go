package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/internal/transport/proxyproto"
)

// perClient allows one request a minute per address.
const perClient = "domain: api\nlimits:\n  - {name: each, key: [client_ip], rate: 1/minute}\n"

// speaks enables the PROXY protocol at doors.
func speaks(doors ...string) set {
	return func(c *config.Config) { c.ProxyProtocol.Doors = doors }
}

// behind returns a dialer that sends header first.
func behind(header string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		_, err = io.WriteString(c, header)
		return c, err
	}
}

// through makes a client whose connections all start with header.
func (f *fixture) through(t *testing.T, header string) {
	t.Helper()
	transport := &http.Transport{DialContext: behind(header)}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
}

func line(client string) string { return "PROXY TCP4 " + client + " 192.0.2.1 4711 80\r\n" }

func TestProxyProtocolAtTheProxy(t *testing.T) {
	var forwarded []string
	f := run(t, perClient, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		forwarded = append(forwarded, r.Header.Get("X-Forwarded-For"))
	}), trust("127.0.0.0/8"), speaks("proxy"))
	rows := []struct {
		header, xff string
		status      int
	}{
		{line("198.51.100.7"), "", 200},
		{line("198.51.100.7"), "", 429},
		{line("198.51.100.8"), "", 200},
		{line("198.51.100.8"), "203.0.113.1", 429}, // a client is not a proxy
		{line("127.0.0.9"), "203.0.113.1", 200},    // but a proxy behind the load balancer is one
		{line("127.0.0.9"), "203.0.113.1", 429},
		{"PROXY UNKNOWN\r\n", "203.0.113.2", 200}, // unknown clients share one count
		{"PROXY UNKNOWN\r\n", "203.0.113.3", 429},
	}
	for i, row := range rows {
		f.through(t, row.header)
		var header []string
		if row.xff != "" {
			header = []string{"X-Forwarded-For", row.xff}
		}
		if res, body := f.get(t, f.proxyURL("/"), header...); res.StatusCode != row.status {
			t.Errorf("row %d: %d, want %d: %s", i, res.StatusCode, row.status, body)
		}
	}
	if len(forwarded) < 2 || forwarded[0] != "198.51.100.7" || forwarded[1] != "198.51.100.8" {
		t.Errorf("the upstream was told %q", forwarded)
	}
}

func TestProxyProtocolOfStrangers(t *testing.T) {
	for _, policy := range []proxyproto.Untrusted{proxyproto.Refuse, proxyproto.Ignore} {
		f := run(t, perClient, http.NotFoundHandler(), trust("10.0.0.0/8"), speaks("proxy", "api"), func(c *config.Config) {
			c.ProxyProtocol.Untrusted = policy
		})
		// Without a header, an untrusted peer is the client.
		if res, _ := f.get(t, f.proxyURL("/")); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d without a header", policy, res.StatusCode)
		}
		f.through(t, line("198.51.100.7"))
		res, err := f.client.Get(f.proxyURL("/"))
		switch {
		case policy == proxyproto.Refuse:
			if err == nil {
				t.Errorf("%s: %d with a header", policy, res.StatusCode)
				_ = res.Body.Close()
			}
			f.journal.await(t, "connection refused; further ones within a minute are logged at debug level")
		case err != nil:
			t.Errorf("%s: %v", policy, err)
		default:
			if _ = res.Body.Close(); res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s: the header chose the address: %d", policy, res.StatusCode)
			}
		}
	}
}

func TestProxyProtocolAtOtherDoors(t *testing.T) {
	f := run(t, envoyRules, nil, trust("127.0.0.0/8"), speaks("api", "grpc", "resp", "admin"), func(c *config.Config) {
		c.Door("grpc").Address, c.Door("resp").Address, c.Door("admin").Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	})
	f.through(t, line("198.51.100.7"))
	for _, url := range []string{f.apiURL("/healthz"), "http://" + f.Addr(doorAdmin) + "/rlconfig"} {
		if res, body := f.get(t, url); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", url, res.StatusCode, body)
		}
	}
	dial := behind(line("198.51.100.7"))
	c, err := grpc.NewClient("passthrough:///"+f.Addr(doorGRPC), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if r := askEnvoy(t, c); r.GetOverallCode() != envoy.RateLimitResponse_OK {
		t.Errorf("gRPC: %s", r.GetOverallCode())
	}
	nc, err := dial(t.Context(), "tcp", f.Addr(doorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(nc, "PING\r\n")
	if answer, err := bufio.NewReader(nc).ReadString('\n'); answer != "+PONG\r\n" {
		t.Errorf("RESP: %q, %v", answer, err)
	}
}

// Connections that never send a header do not block others, and end when the process
// stops.
func TestProxyProtocolSilence(t *testing.T) {
	f := run(t, perClient, http.NotFoundHandler(), trust("127.0.0.0/8"), speaks("proxy"))
	for i := range 200 {
		half := line("198.51.100.7")[:i%20]
		c, err := behind(half)(t.Context(), "tcp", f.Addr(doorProxy))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	f.through(t, line("198.51.100.9"))
	if res, _ := f.get(t, f.proxyURL("/")); res.StatusCode != http.StatusNotFound {
		t.Errorf("%d", res.StatusCode)
	}
}

// background runs a program until the test ends.
func background(t *testing.T, path string, arguments ...string) {
	t.Helper()
	cmd := exec.Command(path, arguments...)
	var output lockedBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = 10 * time.Second // in case a child of it keeps the pipe open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(path), &output)
		}
	})
}

// echoXFF answers with the client's address that the upstream receives.
func echoXFF() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	})
}

// answersBehind waits until the load balancer is up, and returns the client's address.
func answersBehind(t *testing.T, f *fixture, address, client string) string {
	t.Helper()
	local := &net.TCPAddr{IP: net.ParseIP(client)}
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: local}).DialContext, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	var body string
	f.await(t, func() bool {
		res, err := (&http.Client{Transport: transport}).Get("http://" + address + "/")
		if err != nil {
			return false
		}
		body = read(t, res)
		return res.StatusCode == http.StatusOK
	})
	return body
}

// TestHAProxy runs a real HAProxy in front, with every way to send the client's
// address. On Linux all of 127.0.0.0/8 is this machine, so each client can have a
// separate address.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	haproxy := program(t, "haproxy")
	for _, send := range []string{"send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id", "check inter 50ms send-proxy-v2 check-send-proxy"} {
		t.Run(send, func(t *testing.T) {
			f := run(t, strings.Replace(perClient, "1/minute", "1000/minute", 1), echoXFF(), trust("127.0.0.1/32"), speaks("proxy"))
			front, file := redistest.FreeAddress(t), filepath.Join(t.TempDir(), "haproxy.cfg")
			writeFile(t, file, fmt.Sprintf(`defaults
  mode tcp
  timeout connect 5s
  timeout client 20s
  timeout server 20s
frontend front
  bind %s
  unique-id-format %%{+X}o%%ci_%%cp
  default_backend headgate
backend headgate
  server headgate %s %s
`, front, f.Addr(doorProxy), send))
			background(t, haproxy, "-db", "-f", file)
			for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
				if got := answersBehind(t, f, front, client); got != client {
					t.Errorf("the client %s was %q", client, got)
				}
			}
		})
	}
}

// TestNginxStream does the same with nginx, which sends version 1.
func TestNginxStream(t *testing.T) {
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	nginx := program(t, "nginx")
	if _, err := os.Stat(module); err != nil {
		t.Skip("nginx has no stream module here; Debian has it in libnginx-mod-stream")
	}
	f := run(t, strings.Replace(perClient, "1/minute", "1000/minute", 1), echoXFF(), trust("127.0.0.1/32"), speaks("proxy"))
	folder, front := t.TempDir(), redistest.FreeAddress(t)
	file := filepath.Join(folder, "nginx.conf")
	writeFile(t, file, fmt.Sprintf(`load_module %s;
daemon off;
master_process off;
pid %s/pid;
error_log stderr;
events {}
stream {
  server {
    listen %s;
    proxy_pass %s;
    proxy_protocol on;
  }
}
`, module, folder, front, f.Addr(doorProxy)))
	background(t, nginx, "-p", folder, "-c", file)
	if got := answersBehind(t, f, front, "127.0.0.2"); got != "127.0.0.2" {
		t.Errorf("the client was %q", got)
	}
}
