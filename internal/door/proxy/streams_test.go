package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/queue"
	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/store/memory"
)

// One connection over HTTP/2 may have hundreds of requests with large headers whose bodies
// never end. Those that the proxy reads itself have a bound in memory: the slowest are
// answered without their body.
func TestManyStreamsWithoutEnd(t *testing.T) {
	const header, requests, bound = 40 << 10, 100, 1 << 20
	for _, row := range []struct {
		name, onLimit string
		status        int
	}{
		{"shadow_ban", "{action: shadow_ban, body: x}", http.StatusOK},
		{"queue", "queue", http.StatusServiceUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			rulesText := "domain: api\nlimits:\n  - {name: all, rate: 1/day, algorithm: fixed_window, on_limit: " + row.onLimit + "}\n"
			room := membound.New(membound.Options{Most: bound})
			p := newProxy(t, rulesText, memory.New(), ok, func(o *proxy.Options) { o.Bodies = room })
			p.SetQueue(queue.New(queue.Options{
				Store: fullDisk{}, Clock: time.Now, Policy: func(string, string) queue.Policy { return queue.DefaultPolicy() },
			}))
			server := httptest.NewUnstartedServer(p)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			transport := &http.Transport{Protocols: server.Config.Protocols}
			defer transport.CloseIdleConnections()
			var group sync.WaitGroup
			var answered atomic.Int64
			bodies := make(chan *io.PipeWriter, requests)
			send := func(body io.Reader) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
				if err != nil {
					t.Error(err)
					return 0
				}
				r.Header.Set("X-Large", strings.Repeat("x", header))
				res, err := transport.RoundTrip(r)
				if err != nil {
					return 0 // it ends with the test
				}
				_ = res.Body.Close()
				return res.StatusCode
			}
			if got := send(http.NoBody); got != http.StatusOK { // all that the rule allows
				t.Fatal(got)
			}
			enough := make(chan struct{})
			for range requests {
				group.Go(func() {
					body, end := io.Pipe()
					bodies <- end
					switch got := send(body); {
					case got != row.status:
					case answered.Add(1) == requests-bound/header:
						close(enough)
					}
				})
			}
			<-enough
			if held := room.Held(); held > bound {
				t.Errorf("%d bytes are held", held)
			}
			for range requests {
				_ = (<-bodies).Close()
			}
			group.Wait()
			if held := room.Held(); held != 0 {
				t.Errorf("%d bytes are held at the end", held)
			}
		})
	}
}
