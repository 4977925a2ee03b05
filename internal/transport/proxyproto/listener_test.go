package proxyproto_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/transport/proxyproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accepted is what a server sees of a connection.
type accepted struct {
	remote, local, read string
	err                 error
}

// exchange sends text over a connection to a listener and returns what the server sees.
// end closes the connection after the text.
func exchange(t *testing.T, network string, o proxyproto.Options, parts ...string) accepted {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	plain, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	l := proxyproto.NewListener(plain, o)
	t.Cleanup(func() { _ = l.Close() })
	c, err := new(net.Dialer).DialContext(t.Context(), network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				break
			}
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	a := accepted{remote: nc.RemoteAddr().String(), local: nc.LocalAddr().String()}
	read, err := io.ReadAll(nc)
	a.read, a.err = string(read), err
	_ = c.Close()
	return a
}

func trustAll(netip.Addr) bool  { return true }
func trustNone(netip.Addr) bool { return false }

func TestConnection(t *testing.T) {
	t.Parallel()
	const line = "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n"
	v2 := binaryHeader(0x21, 0x11, block4)
	rows := []struct {
		name    string
		network string
		trusts  func(netip.Addr) bool
		policy  proxyproto.Untrusted
		parts   []string
		remote  string // "peer" for the actual one
		read    string
		refused bool
	}{
		{"v1", "tcp", trustAll, proxyproto.Refuse, []string{line + "hello"}, "198.51.100.7:4711", "hello", false},
		{"v2", "tcp", trustAll, proxyproto.Refuse, []string{v2 + "hello"}, "198.51.100.7:4711", "hello", false},
		{"v1 in pieces", "tcp", trustAll, proxyproto.Refuse, []string{"P", "ROXY TCP4 198.5", "1.100.7 192.0.2.1 4711 80\r", "\nhe", "llo"}, "198.51.100.7:4711", "hello", false},
		{"v2 in pieces", "tcp", trustAll, proxyproto.Refuse, []string{v2[:3], v2[3:15], v2[15:20], v2[20:], "hello"}, "198.51.100.7:4711", "hello", false},
		{"v2, long", "tcp", trustAll, proxyproto.Refuse, []string{binaryHeader(0x21, 0x11, block4+"\xee\x0f\xf1"+strings.Repeat("x", 4096-15)), strings.Repeat("hello", 1000)}, "198.51.100.7:4711", strings.Repeat("hello", 1000), false},
		{"the proxy itself", "tcp", trustAll, proxyproto.Refuse, []string{binaryHeader(0x20, 0, "") + "hello"}, "peer", "hello", false},
		{"a client without an address is not the proxy", "tcp", trustAll, proxyproto.Refuse, []string{"PROXY UNKNOWN\r\nhello"}, "@", "hello", false},
		{"nor is one at a Unix socket", "tcp", trustAll, proxyproto.Refuse, []string{binaryHeader(0x21, 0x31, "198.51.100.9:80"+strings.Repeat("\x00", 201)) + "hello"}, "@", "hello", false},
		{"a second header belongs to the client", "tcp", trustAll, proxyproto.Refuse, []string{line + "PROXY TCP4 203.0.113.1 192.0.2.1 1 2\r\n"}, "198.51.100.7:4711", "PROXY TCP4 203.0.113.1 192.0.2.1 1 2\r\n", false},
		{"a proxy without a header", "tcp", trustAll, proxyproto.Refuse, []string{"GET / HTTP/1.1\r\n"}, "peer", "", true},
		{"a proxy without a header, ignore", "tcp", trustAll, proxyproto.Ignore, []string{"GET / HTTP/1.1\r\n"}, "peer", "", true},
		{"a proxy that breaks off", "tcp", trustAll, proxyproto.Refuse, []string{line[:20]}, "peer", "", true},
		{"a proxy that says nothing", "tcp", trustAll, proxyproto.Refuse, nil, "peer", "", false},
		{"a bad header", "tcp", trustAll, proxyproto.Refuse, []string{"PROXY TCP4 x y z\r\nhello"}, "peer", "", true},
		{"untrusted", "tcp", trustNone, proxyproto.Refuse, []string{line + "hello"}, "peer", "", true},
		{"untrusted, v2", "tcp", trustNone, proxyproto.Refuse, []string{v2 + "hello"}, "peer", "", true},
		{"untrusted, ignore", "tcp", trustNone, proxyproto.Ignore, []string{line + "hello"}, "peer", "hello", false},
		{"untrusted, ignore, v2", "tcp", trustNone, proxyproto.Ignore, []string{v2 + "hello"}, "peer", "hello", false},
		{"untrusted without a header", "tcp", trustNone, proxyproto.Refuse, []string{"GET / HTTP/1.1\r\n"}, "peer", "GET / HTTP/1.1\r\n", false},
		{"untrusted, short", "tcp", trustNone, proxyproto.Refuse, []string{"hi"}, "peer", "hi", false},
		{"untrusted, the beginning of one", "tcp", trustNone, proxyproto.Refuse, []string{"PRO"}, "peer", "PRO", false},
		{"untrusted, silent", "tcp", trustNone, proxyproto.Refuse, nil, "peer", "", false},
		{"a Unix socket", "unix", trustNone, proxyproto.Refuse, []string{line + "hello"}, "198.51.100.7:4711", "hello", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var refused error
			got := exchange(t, row.network, proxyproto.Options{
				Trusts: row.trusts, Untrusted: row.policy, Timeout: time.Minute, Refused: func(_ net.Addr, err error) { refused = err },
			}, row.parts...)
			if peer := strings.HasPrefix(got.remote, "127.0.0.1:"); peer != (row.remote == "peer") || !peer && got.remote != row.remote {
				t.Errorf("remote address %s, want %s", got.remote, row.remote)
			}
			if got.read != row.read || (refused != nil) != row.refused {
				t.Errorf("read %q (%v), refused: %v", got.read, got.err, refused)
			}
			if row.remote == "198.51.100.7:4711" && got.local != "192.0.2.1:80" {
				t.Errorf("local address %s", got.local)
			}
		})
	}
}

func TestAcceptWaitsForNobody(t *testing.T) {
	t.Parallel()
	plain, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := proxyproto.NewListener(plain, proxyproto.Options{Trusts: trustAll, Timeout: time.Hour})
	defer func() { _ = l.Close() }()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var silent []net.Conn
	for range 50 {
		dial() // sends nothing
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, nc)
	}
	waiting := make(chan string, len(silent))
	for _, nc := range silent {
		go func() { waiting <- nc.RemoteAddr().Network() }()
	}
	_, _ = io.WriteString(dial(), "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n")
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := nc.RemoteAddr().String(); got != "198.51.100.7:4711" {
		t.Errorf("%s", got)
	}
	_ = nc.Close()
	for _, nc := range silent {
		_ = nc.Close() // ends the wait for the header, like a server that stops
	}
	for range silent {
		<-waiting
	}
}

func TestSlowHeader(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	plain, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := proxyproto.NewListener(plain, proxyproto.Options{
		Trusts: trustAll, Timeout: time.Millisecond, Refused: func(_ net.Addr, err error) { got <- err },
	})
	defer func() { _ = l.Close() }()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "PROXY TCP4 198.51")
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// A deadline set by the user of the connection does not extend the time.
	_ = nc.SetDeadline(time.Now().Add(time.Hour))
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("half a header was read")
	}
	if err := <-got; !strings.Contains(err.Error(), "in time") {
		t.Errorf("refused: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestDeadlinesAreKept(t *testing.T) {
	t.Parallel()
	plain, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := proxyproto.NewListener(plain, proxyproto.Options{Trusts: trustAll, Timeout: time.Hour})
	defer func() { _ = l.Close() }()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetReadDeadline(time.Now().Add(time.Hour))
	_, _ = io.WriteString(c, "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n")
	if got := nc.RemoteAddr().String(); got != "198.51.100.7:4711" {
		t.Fatalf("%s", got)
	}
	_ = nc.SetReadDeadline(time.Unix(1, 0))
	var timeout net.Error
	if _, err := nc.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v, want a timeout", err)
	}
}

func TestUntrustedNames(t *testing.T) {
	t.Parallel()
	for _, u := range []proxyproto.Untrusted{proxyproto.Refuse, proxyproto.Ignore} {
		if got, ok := proxyproto.ParseUntrusted(u.String()); got != u || !ok {
			t.Errorf("%s is read as %s, %t", u, got, ok)
		}
	}
	if _, ok := proxyproto.ParseUntrusted("untrusted(7)"); ok || proxyproto.Untrusted(7).String() != "untrusted(7)" {
		t.Error("an unknown policy has a name")
	}
}
