package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// counting is a listener that counts how often its connections write.
type counting struct {
	net.Listener
	writes atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return countingConn{nc, &l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// An answer that has arrived is sent on in one piece. Of one that has not, the client gets
// what there is before the proxy waits for more, since the upstream may wait for the client.
func TestAnswersAreSentOnWhenTheUpstreamPauses(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nConnection: close\r\n" // otherwise net/http reads on meanwhile
	for name, row := range map[string]struct {
		parts  []string // the upstream sends the next when the client has all before it
		see    []string // what the client then has in addition
		writes int64
	}{
		"whole":             {[]string{head + "Content-Length: 5\r\n\r\nhello"}, []string{"hello"}, 1},
		"whole, in chunks":  {[]string{head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}, []string{"hello"}, 1},
		"no body":           {[]string{head + "Content-Length: 0\r\n\r\n"}, []string{""}, 1},
		"header, then body": {[]string{head + "Content-Length: 5\r\n\r\n", "hello"}, []string{"", "hello"}, 2},
		"a trickle":         {[]string{head + "Content-Length: 6\r\n\r\na", "bcd", "ef"}, []string{"a", "bcd", "ef"}, 3},
		"chunks": {
			[]string{head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", "2\r\nbc\r\n0\r\n\r\n"},
			[]string{"", "a", "bc"},
			3,
		},
		"events": {
			[]string{head + "Content-Type: text/event-stream\r\nContent-Length: 3\r\n\r\n", "a", "bc"},
			[]string{"", "a", "bc"},
			3,
		},
	} {
		for _, limits := range []string{"[]", "[{name: one, concurrency: 10}]"} {
			t.Run(name+", "+limits, func(t *testing.T) {
				var lc net.ListenConfig
				upstream, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = upstream.Close() }()
				next := make(chan struct{}, 1)
				go func() {
					nc, err := upstream.Accept()
					if err != nil {
						return
					}
					_, _ = nc.Read(make([]byte, 4096))
					for i, part := range row.parts {
						if i > 0 {
							<-next
						}
						_, _ = io.WriteString(nc, part)
					}
				}()
				to := proxy.NewTransportTo(1)
				defer to.CloseIdleConnections()
				p := newProxy(t, "domain: api\nlimits: "+limits+"\n", memory.New(), nil, func(o *proxy.Options) {
					o.Upstream, o.Transport = &url.URL{Scheme: "http", Host: upstream.Addr().String()}, to
				})
				l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				front := &counting{Listener: l}
				s, done := &http.Server{Handler: p}, make(chan struct{})
				go func() {
					defer close(done)
					_ = s.Serve(front)
				}()
				defer func() {
					_ = s.Close()
					<-done
				}()
				res, err := http.Get("http://" + l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = res.Body.Close() }()
				for i, want := range row.see {
					if i > 0 {
						next <- struct{}{}
					}
					got := make([]byte, len(want))
					if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
						t.Fatalf("part %d: %q, %v, want %q", i, got, err, want)
					}
				}
				if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
					t.Errorf("then %q, %v", rest, err)
				}
				if n := front.writes.Load(); n != row.writes {
					t.Errorf("%d writes to the client, want %d", n, row.writes)
				}
			})
		}
	}
}
