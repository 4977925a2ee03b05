package proxy_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/store/memory"
)

// A connection ends after a request whose body servers may delimit differently, no matter who
// answered it: what follows is not read as a request (RFC 9112, 6.3).
func TestNothingFollowsADoubtfulBody(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: none, rate: 0/hour, match: {path: /refused}}\n"
	const chunks = "4\r\nbody\r\n0\r\n\r\n"
	for name, head := range map[string]string{
		"both lengths":      "POST %/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
		"in another order":  "POST %/1.1\r\ncontent-length: 4\r\ntransfer-encoding:  CHUNKED \r\n",
		"a length twice":    "GET %/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.0":          "POST %/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.0 and both": "POST %/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
	} {
		for _, path := range []string{"/", "/refused", "/hinted", "/fails", "/hinted-and-fails"} {
			synctest.Test(t, func(t *testing.T) {
				var reached atomic.Int32
				p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
					reached.Add(1)
					if strings.Contains(r.URL.Path, "hinted") {
						_ = httptrace.ContextClientTrace(r.Context()).Got1xxResponse(http.StatusEarlyHints, nil)
					}
					if r.Body != nil {
						_, _ = io.Copy(io.Discard, r.Body)
					}
					if strings.Contains(r.URL.Path, "fails") {
						return nil, io.ErrUnexpectedEOF
					}
					return ok(r)
				})
				nc := serveDoor(t, p).dial()
				_ = nc.SetDeadline(time.Now().Add(time.Hour))
				request := strings.Replace(head, "%", path+" HTTP", 1) + "Host: x\r\n\r\n" + chunks
				go func() { _, _ = io.WriteString(nc, request+"GET /next HTTP/1.1\r\nHost: x\r\n\r\n") }()
				all, _ := io.ReadAll(nc)
				_ = nc.Close()
				answers := strings.Count(string(all), "HTTP/1.") - strings.Count(string(all), " 103 ")
				if answers != 1 || reached.Load() > 1 {
					t.Errorf("%s, %s: %d requests reached the upstream, and the client got\n%s", name, path, reached.Load(), all)
				}
				last := string(all)[max(0, strings.LastIndex(string(all), "HTTP/1.")):]
				if n := strings.Count(last, "Connection: close"); strings.Contains(head, "/1.1") && n != 1 {
					t.Errorf("%s, %s: %d times Connection: close in\n%s", name, path, n, all)
				}
			})
		}
	}
}

// A client of HTTP/1.0 gets no early hints: nginx, which speaks it to upstreams by default,
// would take them for the answer. One of HTTP/1.1 gets them.
func TestHintsForHTTP10(t *testing.T) {
	for version, want := range map[string]int{"1.0": 0, "1.1": 1} {
		synctest.Test(t, func(t *testing.T) {
			p := newProxy(t, "domain: api\nlimits: []\n", memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
				_ = httptrace.ContextClientTrace(r.Context()).Got1xxResponse(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</x>"}})
				return ok(r)
			})
			nc := serveDoor(t, p).dial()
			_ = nc.SetDeadline(time.Now().Add(time.Hour))
			go func() { _, _ = io.WriteString(nc, "GET / HTTP/"+version+"\r\nHost: x\r\nConnection: close\r\n\r\n") }()
			all, _ := io.ReadAll(nc)
			_ = nc.Close()
			if got := strings.Count(string(all), " 103 "); got != want || strings.Count(string(all), " 200 OK") != 1 || strings.Count(string(all), "Link") != want {
				t.Errorf("HTTP/%s: %d hints, want %d\n%s", version, got, want, all)
			}
		})
	}
}

// serveDoor is the door of p, in memory.
func serveDoor(t *testing.T, p http.Handler) *pipes {
	t.Helper()
	h, err := door.NewHTTP(&door.Process{
		Name: "proxy", Settings: new(config.Door), Config: new(config.Config), Asker: admission.Asker{Logger: slog.New(slog.DiscardHandler)},
	}, door.HTTPOptions{Handler: p, Endless: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(l)
	}()
	t.Cleanup(func() {
		_ = h.Shutdown(t.Context())
		<-done
	})
	return l
}
