package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// switching is an upstream that accepts every upgrade, sends the connection to the
// channel and does not end it, whatever the other side does.
func switching(t *testing.T) (*url.URL, <-chan net.Conn) {
	t.Helper()
	got := make(chan net.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		got <- nc
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u, got
}

// When either side of a tunnel ends, the other is closed, with or without a rule, and
// data sent before that arrives.
func TestTunnelsEndAtEitherSide(t *testing.T) {
	for name, limits := range map[string]string{
		"no rule": "domain: api\nlimits: []\n",
		"a rate":  "domain: api\nlimits:\n  - {name: all, rate: 1000/hour}\n",
		"a place": "domain: api\nlimits:\n  - {name: all, concurrency: 10}\n",
	} {
		for _, first := range []string{"client", "upstream"} {
			t.Run(name+", "+first, func(t *testing.T) {
				to, upstreams := switching(t)
				p := newProxy(t, limits, memory.New(), nil, func(o *proxy.Options) { o.Upstream, o.Transport = to, proxy.NewTransport() })
				done := make(chan struct{})
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					p.ServeHTTP(w, r)
				}))
				defer front.Close()
				client := upgrade(t, front.Listener.Addr().String())
				upstream := <-upstreams
				ends, other := client, upstream
				if first == "upstream" {
					ends, other = upstream, client
				}
				if _, err := io.WriteString(ends, "the last word"); err != nil {
					t.Fatal(err)
				}
				_ = ends.Close()
				_ = other.SetReadDeadline(time.Now().Add(20 * time.Second))
				if got, err := io.ReadAll(other); err != nil || string(got) != "the last word" {
					t.Errorf("the other side reads %q, %v", got, err)
				}
				select { // the other side is still open
				case <-done:
				case <-time.After(20 * time.Second):
					t.Error("the tunnel outlives the side that has ended it")
				}
				_ = other.Close()
			})
		}
	}
}

// upgrade opens a tunnel.
func upgrade(t *testing.T, address string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if _, err := io.WriteString(nc, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(nc, 16) // small, so that it reads no more than the header: nothing is sent before
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols || in.Buffered() > 0 {
		t.Fatalf("%s, and %d bytes", res.Status, in.Buffered())
	}
	return nc
}
