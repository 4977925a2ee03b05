package resp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/resp"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

const ruleText = `
domain: api
limits:
  - {name: login, match: {method: POST, path: /login}, key: [client_ip], rate: 5/minute}
  - {name: queue, match: {path: /queue}, key: [user], rate: 60/minute, burst: 2, algorithm: leaky_bucket}
`

// fakeClock is set by tests.
type fakeClock struct{ micros atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// door is a server under test.
type door struct {
	*resp.Server
	addr  string
	clock *fakeClock
	tls   *tls.Config // for its clients
}

// open starts a server on loopback.
func open(t testing.TB, change ...func(*resp.Options)) *door {
	t.Helper()
	d := &door{clock: new(fakeClock)}
	d.clock.micros.Store(1_800_000_000_000_000)
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(ruleText)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	options := resp.Options{
		Asker: admission.Asker{Engine: engine.New(store, rs), Clients: clients, Clock: d.clock.now, Logger: slog.New(slog.DiscardHandler)},
		Store: store, Version: "1.2.3",
	}
	for _, f := range change {
		f(&options)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Server, d.addr = resp.New(options), l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- d.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		_ = store.Close()
	})
	return d
}

// wire is a client that sends and reads bytes.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// patience is how long a test waits for something that should happen at once.
const patience = 10 * time.Second

func (d *door) dial(t testing.TB) *wire {
	t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	if d.tls != nil {
		c = tls.Client(c, d.tls)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &wire{c, t, bufio.NewReader(c)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatalf("send %.40q: %v", text, err)
	}
}

// do sends an inline command and returns its answer.
func (w *wire) do(line string) string {
	w.t.Helper()
	w.send(line + "\r\n")
	return w.answer()
}

// command returns args encoded as an array of bulk strings.
func command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// answer reads one answer and returns it in a short form: simple strings, numbers and
// errors with their type byte, strings in quotes, lists in brackets, maps in braces.
func (w *wire) answer() string {
	w.t.Helper()
	text, err := readAnswer(w.r)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	return text
}

func readAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return line, err
	}
	if !strings.HasSuffix(line, "\r\n") {
		return line, fmt.Errorf("a line without CRLF: %q", line)
	}
	line = line[:len(line)-2]
	var n int
	_, _ = fmt.Sscanf(line[1:], "%d", &n)
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return "", err
		}
		return fmt.Sprintf("%q", body[:n]), nil
	case '*', '%':
		if n < 0 {
			return "nil", nil
		}
		brackets := "[]"
		if line[0] == '%' {
			n, brackets = 2*n, "{}"
		}
		parts := make([]string, n)
		for i := range parts {
			if parts[i], err = readAnswer(r); err != nil {
				return "", err
			}
		}
		return brackets[:1] + strings.Join(parts, " ") + brackets[1:], nil
	case ':':
		return line[1:], nil
	case '_':
		return "nil", nil
	}
	return line, nil
}

// ends checks that the server closes the connection.
func (w *wire) ends() {
	w.t.Helper()
	// A server that closes with unread input resets the connection.
	if rest, err := io.ReadAll(w.r); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(rest) > 0 {
		w.t.Errorf("the connection does not end: %.60q, %v", rest, err)
	}
}
