package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/transport/membound"
)

// beginBody sends n bytes of a chunked body, but not its end, from a loopback address.
func beginBody(t *testing.T, server *httptest.Server, from string, n int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", n, strings.Repeat("s", n))
	if err != nil {
		t.Fatal(err)
	}
}

// queues sends a body from 127.0.0.1 and returns the status, or "no room".
func queues(t *testing.T, server *httptest.Server, body io.Reader) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/quick", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	if strings.Contains(string(text), "too many request bodies are being received") {
		return "no room"
	}
	return res.Status[:3]
}

// Bodies that are being received for a queue take as much memory as has arrived. A
// client may use a share of it, and slow clients make room for others.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	const mib = 1 << 20
	each := func(a netip.Addr) (netip.Prefix, bool) { return netip.PrefixFrom(a, a.BitLen()), true }
	for _, row := range []struct {
		name   string
		client func(netip.Addr) (netip.Prefix, bool)
		sent   int   // by each slow client
		held   int64 // after that
		size   int   // of another client's body
		chunks bool
		want   string // after "no room", if there is none at first
	}{
		{name: "next to nothing", sent: 10, size: mib, want: "202"},
		{name: "a client's share", client: each, sent: mib, held: 2 * mib, size: mib, want: "202"},
		{name: "all there is", sent: mib, held: 8 * mib, size: mib, want: "202"},
		{name: "chunks of the largest size", sent: 10, size: 2 * mib, chunks: true, want: "202"},
		{name: "chunks of more", sent: 10, size: 2*mib + 1, chunks: true, want: "503"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bodies := membound.New(membound.Options{Most: 8 * mib, Client: row.client})
			rare := strings.Replace(laterRules, "1/second", "1/day", 1) // none is allowed while the test runs
			l := newLaterOf(t, rare, made, func(o *proxy.Options) { o.Bodies = bodies })
			l.policy.MaxBody = 2 * mib
			l.queue.Drain()
			server := httptest.NewServer(l)
			t.Cleanup(server.Close)
			if got := queues(t, server, http.NoBody); got != "201" {
				t.Fatal(got) // the only one that is allowed at once
			}
			for range 20 {
				beginBody(t, server, "127.0.0.2", row.sent)
			}
			for bodies.Held() < row.held {
				runtime.Gosched()
			}
			got := "no room"
			for begin := time.Now(); got == "no room" && time.Since(begin) < 10*time.Second; {
				var body io.Reader = strings.NewReader(strings.Repeat("q", row.size))
				if row.chunks {
					body = io.MultiReader(body)
				}
				if got = queues(t, server, body); got == "no room" && row.held < 8*mib {
					t.Fatal("no room at first")
				}
			}
			if got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}
