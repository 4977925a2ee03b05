package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

const oddRules = `
domain: api
limits:
  - {name: places, concurrency: 1, lease: 1h}
  - {name: count, rate: 100/day, algorithm: fixed_window}
`

// odd is an upstream that answers /odd with text, byte for byte, and anything else
// properly.
type odd struct {
	text  string
	stays bool   // it does not close the connection after text
	again string // repeated after text until the connection is closed
	early bool   // it answers before it has read the body
	conns sync.WaitGroup
}

func (o *odd) serve(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		o.conns.Go(func() { o.converse(nc) })
	}
}

func (o *odd) converse(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	in := bufio.NewReader(nc)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.URL.Path != "/odd" {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
			continue
		}
		if !o.early {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(nc, o.text)
		for o.again != "" {
			if _, err := io.WriteString(nc, o.again); err != nil {
				return
			}
		}
		if !o.stays {
			return
		}
	}
}

// caller is a client that uses one connection for as long as that stays open.
type caller struct {
	t       *testing.T
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (c *caller) send(text string) {
	c.t.Helper()
	if c.conn == nil {
		var err error
		if c.conn, err = net.Dial("tcp", c.address); err != nil {
			c.t.Fatal(err)
		}
		_ = c.conn.SetDeadline(time.Now().Add(5 * time.Minute))
		c.in = bufio.NewReader(c.conn)
	}
	_, _ = io.WriteString(c.conn, text) // it may be closed already
}

// receive returns what arrived: hints, status, body, trailer, and "..." where it is cut
// off.
func (c *caller) receive(method string) string {
	c.t.Helper()
	got, hints := "", 0
	for {
		res, err := http.ReadResponse(c.in, &http.Request{Method: method})
		if err != nil {
			c.hangUp()
			return got + "nothing"
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
			if hints++; hints > 3 {
				got = "many hints, "
			} else {
				got = fmt.Sprintf("%d hints, ", hints)
			}
			continue
		}
		body, err := io.ReadAll(res.Body)
		got += strconv.Itoa(res.StatusCode)
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") && len(body) > 0 {
			got += " " + string(body[:min(len(body), 20)])
		}
		if _, count, ok := strings.Cut(res.Header.Get("Ratelimit"), `"count";`); got == "200 next" && ok {
			got += " " + count[:len("r=98")]
		}
		if len(res.Header["X-Headgate-Time"]) != 1 {
			got += " untold"
		}
		for name, values := range res.Trailer {
			got += fmt.Sprintf(" %s=%s", name, strings.Join(values, ","))
		}
		if err != nil {
			got += "..."
		}
		if err != nil || res.Close {
			c.hangUp()
		}
		return got
	}
}

func (c *caller) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Whatever an upstream sends, the client gets a defined answer, or one that is cut off
// where the upstream's was, and no part of it becomes the answer to another request. The
// request is charged, its slot becomes free, and no connection is kept.
func TestOddAnswersOnTheWire(t *testing.T) {
	const ok, length = "HTTP/1.1 200 OK\r\n", "Content-Length: 5\r\n"
	const chunked = "Transfer-Encoding: chunked\r\n"
	const evil = ok + "Content-Length: 4\r\n\r\nevil"
	kilobyte := strings.Repeat("x", 1<<10)
	for _, row := range []struct {
		name, method string // GET if empty
		odd          *odd
		want         string // "" if the client goes away at the first byte
	}{
		{"nothing", "", &odd{}, "502"},
		{"no status line", "", &odd{text: "hello\r\n\r\n"}, "502"},
		{"another protocol", "", &odd{text: "SSH-2.0-OpenSSH_9.6\r\n", stays: true}, "502"},
		{"HTTP/0.9", "", &odd{text: "<html>hello</html>"}, "502"},
		{"HTTP/2", "", &odd{text: "\x00\x00\x00\x04\x00\x00\x00\x00\x00", stays: false}, "502"},
		{"half a status line", "", &odd{text: "HTTP/1.1 20"}, "502"},
		{"half a header", "", &odd{text: ok + "Content-Le"}, "502"},
		{"status 000", "", &odd{text: "HTTP/1.1 000 Nought\r\n" + length + "\r\nhello"}, "502"},
		{"status 099", "", &odd{text: "HTTP/1.1 099 Low\r\n" + length + "\r\nhello"}, "502"},
		{"status 999", "", &odd{text: "HTTP/1.1 999 High\r\n" + length + "\r\nhello"}, "999 hello"},
		{"status 1000", "", &odd{text: "HTTP/1.1 1000 Higher\r\n" + length + "\r\nhello"}, "502"},
		{"status -20", "", &odd{text: "HTTP/1.1 -20 Minus\r\n" + length + "\r\nhello"}, "502"},
		{"a few hints", "", &odd{text: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3) + ok + length + "\r\nhello", stays: true}, "3 hints, 200 hello"},
		{"hints without end", "", &odd{again: "HTTP/1.1 103 Early Hints\r\nLink: " + kilobyte + "\r\n\r\n"}, "many hints, 504"},
		{"continue without end", "", &odd{again: "HTTP/1.1 100 Continue\r\n\r\n"}, "many hints, 504"},
		{"a header without end", "", &odd{text: ok, again: "X: " + kilobyte + "\r\n"}, "502"},
		{"a line without end", "", &odd{text: ok + "X: ", again: kilobyte}, "502"},
		{"an unasked upgrade", "", &odd{text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello", stays: true}, "502"},
		{"two lengths", "", &odd{text: ok + length + "Content-Length: 6\r\n\r\nhello!"}, "502"},
		{"one length twice", "", &odd{text: ok + length + length + "\r\nhello", stays: true}, "200 hello"},
		{"a negative length", "", &odd{text: ok + "Content-Length: -5\r\n\r\nhello"}, "502"},
		{"a length of words", "", &odd{text: ok + "Content-Length: five\r\n\r\nhello"}, "502"},
		{"a length beyond counting", "", &odd{text: ok + "Content-Length: 99999999999999999999\r\n\r\nhello"}, "502"},
		{"a length and chunks", "", &odd{text: ok + length + chunked + "\r\n3\r\nhel\r\n0\r\n\r\n", stays: true}, "200 hel"},
		{"an odd coding", "", &odd{text: ok + "Transfer-Encoding: xchunked\r\n\r\nhello"}, "502"},
		{"a space before the colon", "", &odd{text: ok + "Content-Length : 5\r\n\r\nhello"}, "200 hello"},
		{"a zero in a field", "", &odd{text: ok + length + "X: a\x00b\r\n\r\nhello"}, "502"},
		{"it closes in the middle", "", &odd{text: ok + length + "\r\nhel"}, "200 hel..."},
		{"it closes in a chunk", "", &odd{text: ok + chunked + "\r\n5\r\nhel"}, "200 hel..."},
		{"it closes before the last chunk", "", &odd{text: ok + chunked + "\r\n5\r\nhello\r\n"}, "200 hello..."},
		{"a chunk that is none", "", &odd{text: ok + chunked + "\r\n3\r\nhel\r\nzz\r\nlo"}, "200 hel..."},
		{"a chunk longer than it says", "", &odd{text: ok + chunked + "\r\n3\r\nhello\r\n0\r\n\r\n", stays: true}, "200 hel..."},
		{"a chunk of a negative length", "", &odd{text: ok + chunked + "\r\n-3\r\nhel\r\n0\r\n\r\n"}, "nothing or 200..."}, // depends on whether the header was sent
		{"a body until it closes", "", &odd{text: "HTTP/1.0 200 OK\r\n\r\nhello"}, "200 hello"},
		{"trailers", "", &odd{text: ok + chunked + "Trailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n", stays: true}, "200 hello X-Sum=7"},
		{"trailers that nobody announced", "", &odd{text: ok + chunked + "\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n", stays: true}, "200 hello X-Sum=7"},
		{"trailers that frame", "", &odd{text: ok + chunked + "Trailer: Content-Length\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 7\r\n\r\n"}, "502"},
		{"more than its length", "", &odd{text: ok + length + "\r\nhello" + evil, stays: true}, "200 hello"},
		{"an answer nobody asked for", "", &odd{text: ok + "Content-Length: 0\r\n\r\n" + evil, stays: true}, "200"},
		{"204 with a body", "", &odd{text: "HTTP/1.1 204 No Content\r\n" + length + "\r\nhello" + evil, stays: true}, "204"},
		{"304 with a body", "", &odd{text: "HTTP/1.1 304 Not Modified\r\n" + length + "\r\nhello" + evil, stays: true}, "304"},
		{"204 with chunks", "", &odd{text: "HTTP/1.1 204 No Content\r\n" + chunked + "\r\n5\r\nhello\r\n0\r\n\r\n" + evil, stays: true}, "204"},
		{"HEAD with a body", http.MethodHead, &odd{text: ok + length + "\r\nhello" + evil, stays: true}, "200"},
		{"it answers before the body ends", http.MethodPost, &odd{text: ok + length + "\r\nhello", early: true}, "200 hello"},
		{"it closes before the body ends, which never does", http.MethodPost, &odd{early: true}, "408"},
		{"a body without end, client gone", "", &odd{text: ok + "\r\n", again: kilobyte}, ""},
		{"chunks without end, client gone", "", &odd{text: ok + chunked + "\r\n", again: "400\r\n" + kilobyte + "\r\n"}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var accepting sync.WaitGroup
			accepting.Go(func() { row.odd.serve(l) })
			transport := proxy.NewTransport()
			if row.odd.text == "" && row.odd.again != "" {
				transport.ResponseHeaderTimeout = 400 * time.Millisecond // hints do not extend it
			}
			front := httptest.NewServer(newProxy(t, oddRules, memory.New(), nil, func(o *proxy.Options) {
				o.Upstream, o.Transport = &url.URL{Scheme: "http", Host: l.Addr().String()}, transport
				o.TellTime = true
				if row.want == "408" {
					o.BodyTimeout = 100 * time.Millisecond
				}
			}))
			c := &caller{t: t, address: front.Listener.Addr().String()}
			c.ask(row.method, row.odd.early, row.want)
			c.next(strings.HasSuffix(row.want, "504") || row.want == "408")
			c.hangUp()
			front.Close() // waits for its handlers
			transport.CloseIdleConnections()
			_ = l.Close()
			accepting.Wait()
			row.odd.conns.Wait() // no connection to the upstream is kept
		})
	}
}

// ask sends a request to /odd and checks the answer.
func (c *caller) ask(method string, pending bool, want string) {
	c.t.Helper()
	if method == "" {
		method = http.MethodGet
	}
	head := method + " /odd HTTP/1.1\r\nHost: x\r\n"
	if pending {
		head += "Content-Length: 1000000\r\n" // which it never sends
	}
	c.send(head + "\r\n")
	if want == "" {
		if _, err := c.in.ReadByte(); err != nil {
			c.t.Errorf("the answer does not begin: %v", err)
		}
		c.hangUp()
		return
	}
	if got := c.receive(method); !slices.Contains(strings.Split(want, " or "), got) {
		c.t.Errorf("the client gets %q, want %q", got, want)
	}
}

// next sends other requests until the slot of /odd is free, a moment after the last
// byte. Those refused until then are not counted. An upstream that is late or has half a
// request may still be working, so the slot stays taken.
func (c *caller) next(taken bool) {
	c.t.Helper()
	next, want := "429", "200 next r=98"
	for begin := time.Now(); next == "429" && time.Since(begin) < 20*time.Second; {
		c.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
		switch next = c.receive(http.MethodGet); {
		case taken:
			want = "429"
		case next == "502" && want != "200 next r=97":
			// The bytes after the answer arrived on the same connection before net/http
			// noticed that it is unusable: charged, and refused.
			next, want = "429", "200 next r=97"
			continue
		}
		if taken {
			break
		}
	}
	if next != want {
		c.t.Errorf("then it gets %q, want %q", next, want)
	}
}
