package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
)

// impatient returns an App whose HTTP doors have short timeouts.
func impatient(t *testing.T, change ...set) *fixture {
	t.Helper()
	f := newFixture(t, loginRules, hello, append([]set{func(c *config.Config) { c.Door("admin").Address = "127.0.0.1:0" }}, change...)...)
	var err error
	f.App, err = app.New(app.Options{
		Config: f.config, Logger: f.journal.logger(), Clock: f.clock.Now, PollInterval: time.Hour,
		Timeouts: door.Timeouts{
			Header: 50 * time.Millisecond, Read: 100 * time.Millisecond, Write: 200 * time.Millisecond, Idle: 50 * time.Millisecond,
			Body: 2 * time.Second,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return f
}

// speak connects to a door, sends text and nothing more, and returns the answer once
// the door disconnects. It fails if that does not happen.
func (f *fixture) speak(t *testing.T, door, text string) string {
	t.Helper()
	conn := f.dial(t, door)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s keeps a connection on which %q was sent and nothing more", door, text)
	}
	return string(got) // a reset also disconnects
}

func (f *fixture) dial(t *testing.T, door string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", f.Addr(door))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Clients that stop in the middle of a request are disconnected at every door, and
// never get a success answer.
func TestSlowCallersAreHungUpOn(t *testing.T) {
	f := impatient(t)
	const half = "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"domain\":"
	rows := []struct{ name, door, text, want string }{
		{"nothing", doorAPI, "", ""},
		{"nothing", doorProxy, "", ""},
		{"nothing", doorAdmin, "", ""},
		{"half a line", doorAPI, "GET /heal", ""},
		{"half a line", doorProxy, "GET /log", ""},
		{"half a line", doorAdmin, "GET /rlc", ""},
		{"half a header", doorAPI, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A", ""},
		{"half a header", doorProxy, "GET /login HTTP/1.1\r\nHost: x\r\nX-A", ""},
		{"half a body", doorAPI, half, "HTTP/1.1 4"},
		{"half a body", doorProxy, "POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345", "HTTP/1.1 408"},
		{"half a body, chunked", doorProxy, "POST /other HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123", "HTTP/1.1 408"},
		{"idle after a request", doorAPI, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200"},
		{"idle after a request", doorProxy, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200"},
		{"idle after a request", doorAdmin, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200"},
	}
	for _, row := range rows {
		t.Run(row.name+" at "+row.door, func(t *testing.T) {
			t.Parallel()
			got := f.speak(t, row.door, row.text)
			status, _, _ := strings.Cut(got, "\r\n")
			if !strings.HasPrefix(status, row.want) || (row.want == "") != (status == "") && !strings.HasPrefix(status, "HTTP/1.1 4") {
				t.Errorf("answered %q, want %q", status, row.want)
			}
		})
	}
}

// Connections whose clients have vanished or closed their side take no slot: others are
// served, and stopping does not wait for them.
func TestHalfOpenConnectionsAreInNobodysWay(t *testing.T) {
	f := run(t, loginRules, hello, func(c *config.Config) { c.ShutdownTimeout = 200 * time.Millisecond })
	for range 50 {
		_, _ = io.WriteString(f.dial(t, doorAPI), "GET /heal")
		_, _ = io.WriteString(f.dial(t, doorProxy), "GET /log")
		half, ok := f.dial(t, doorProxy).(*net.TCPConn)
		if !ok {
			t.Fatal("not TCP")
		}
		_, _ = io.WriteString(half, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := half.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		// It may or may not get an answer, depending on timing, but it is not kept
		// waiting.
		if _, err := io.ReadAll(half); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a caller that closed its side is kept")
		}
	}
	if res, _ := f.get(t, f.proxyURL("/login")); res.StatusCode != http.StatusOK {
		t.Errorf("with them: %d", res.StatusCode)
	}
	f.client.CloseIdleConnections()
	begin := time.Now()
	if err := f.Stop(context.Background()); err != nil {
		t.Logf("stopped with %v", err) // incomplete requests were cut off
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("stopping took %s", d)
	}
}

// Bodies may take long at the proxy, in both directions.
func TestProxyWaitsForBodies(t *testing.T) {
	f := impatient(t)
	// On a busy machine the test may be slower than the proxy's header timeout, which
	// is not the proxy's fault.
	var err error
	for range 5 {
		if err = f.sendSlowly(t); err == nil {
			return
		}
	}
	t.Error(err)
}

// sendSlowly sends the proxy a request whose body takes longer than other doors allow.
func (f *fixture) sendSlowly(t *testing.T) error {
	conn := f.dial(t, doorProxy)
	_, _ = io.WriteString(conn, "POST /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\n")
	for _, letter := range []string{"a", "b", "c"} {
		timer := time.NewTimer(120 * time.Millisecond) // longer than Read at other doors
		<-timer.C
		if _, err := io.WriteString(conn, letter); err != nil {
			return err
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if body := read(t, res); res.StatusCode != http.StatusOK || body != "hello\n" {
		return fmt.Errorf("%d %q", res.StatusCode, body)
	}
	return nil
}

// Slow bodies keep no client out: of the connections that wait for their client, the
// one that has waited longest is replaced. Those at work stay.
func TestSlowBodiesMakeRoom(t *testing.T) {
	answering := make(chan struct{})
	f := run(t, loginRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-answering
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello\n")
	}), func(c *config.Config) { c.Door("proxy").HTTP.MaxConnections = 3 })
	open := func(text string) (net.Conn, *bufio.Reader) {
		conn := f.dial(t, doorProxy)
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	_, long := open("GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
	download, err := http.ReadResponse(long, nil)
	if err != nil {
		t.Fatal(err)
	}
	const slow = "POST /other HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
	for range 10 {
		conn, in := open(slow)
		// It has sent 100 Continue, so the proxy waits for the body.
		if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = io.WriteString(conn, "x")
	}
	if res, body := f.get(t, f.proxyURL("/other")); res.StatusCode != http.StatusOK || body != "hello\n" {
		t.Errorf("with slow bodies: %d %q", res.StatusCode, body)
	}
	close(answering)
	if body := read(t, download); body != "hello\n" {
		t.Errorf("the download: %q", body)
	}
	if log := f.journal.text.String(); strings.Contains(log, "upstream request failed") {
		t.Errorf("the upstream is blamed: %s", log)
	}
}
