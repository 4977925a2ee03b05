package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/store/memory"
)

// pipes is an in-memory listener, so that timeouts use a fake clock.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error { close(l.ended); return nil }

func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000} }

func (l *pipes) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

// serveInMemory serves p, over HTTP/1 and HTTP/2, until the test ends.
func serveInMemory(t *testing.T, p http.Handler, total time.Duration) *pipes {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	s := &http.Server{Handler: p, ReadTimeout: total, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l
}

// reads is an upstream that reads the body and reports its length.
func reads(r *http.Request) (*http.Response, error) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return nil, err
	}
	res, _ := ok(r)
	res.Header.Set("Got", fmt.Sprint(n))
	return res, nil
}

// slowly waits an hour before it reads.
func slowly(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Hour)
	return reads(r)
}

// converses starts to answer before it reads, and ends its answer when the body ends.
func converses(r *http.Request) (*http.Response, error) {
	res, _ := ok(r)
	out, in := io.Pipe()
	res.Body = out
	go func() {
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(in, n, " ", err)
		_ = in.Close()
	}()
	return res, nil
}

// breaksOff reads a little and fails, like an upstream that crashes.
func breaksOff(r *http.Request) (*http.Response, error) {
	_, _ = io.ReadFull(r.Body, make([]byte, 1))
	_ = r.Body.Close()
	return nil, errors.New("connection reset by peer")
}

// A body may take any time, but must not stall.
func TestBodiesThatStandStill(t *testing.T) {
	const pass, refused = "domain: api\nlimits: []\n", "domain: api\nlimits:\n  - {name: none, rate: 1/hour, match: {method: PUT}, key: [path]}\n"
	const banned = "domain: api\nlimits:\n  - {name: ban, rate: 1/hour, match: {method: PUT}, on_limit: {action: shadow_ban, status: 200}}\n"
	for _, row := range []struct {
		name     string
		rules    string
		upstream upstream
		change   func(*proxy.Options)
		pieces   int
		every    time.Duration
		stops    bool // after the pieces, with the body unfinished
		want     string
		from, to time.Duration // when the answer arrives
	}{
		{name: "a piece now and then", upstream: reads, pieces: 600, every: 59 * time.Second, want: "200 600", from: 600 * 59 * time.Second, to: 600 * 59 * time.Second},
		{name: "nothing more", upstream: reads, pieces: 3, every: time.Second, stops: true, want: "408", from: 60 * time.Second, to: 71 * time.Second},
		{name: "nothing at all", upstream: reads, stops: true, want: "408", from: 60 * time.Second, to: 68 * time.Second},
		{name: "a pause", upstream: reads, pieces: 2, every: 70 * time.Second, want: "408", from: 60 * time.Second, to: 68 * time.Second},
		{
			name: "a shorter while", upstream: reads, change: func(o *proxy.Options) { o.BodyTimeout = time.Second },
			pieces: 3, every: 900 * time.Millisecond, stops: true, want: "408", from: 3700 * time.Millisecond, to: 4 * time.Second,
		},
		{
			name: "for ever", upstream: reads, change: func(o *proxy.Options) { o.BodyTimeout = -1 },
			pieces: 2, every: 24 * time.Hour, want: "200 2", from: 48 * time.Hour, to: 48 * time.Hour,
		},
		{
			name: "a total", upstream: reads, change: func(o *proxy.Options) { o.ReadTimeout = 90 * time.Second },
			pieces: 600, every: 20 * time.Second, want: "408", from: 90 * time.Second, to: 90 * time.Second,
		},
		{name: "the upstream is slow", upstream: slowly, pieces: 1, want: "200 1", from: time.Hour, to: time.Hour},
		{name: "the upstream is slow, and so is the client", upstream: slowly, pieces: 1, stops: true, want: "408", from: time.Hour + time.Minute, to: time.Hour + 68*time.Second},
		{name: "they converse", upstream: converses, pieces: 3, every: time.Hour, want: "200", from: 0, to: 0},
		{name: "the upstream breaks off", upstream: breaksOff, pieces: 1, stops: true, want: "502", from: 0, to: time.Second},
		{name: "refused", rules: refused, pieces: 0, stops: true, want: "429", from: 0, to: 68 * time.Second},
		{name: "banned", rules: banned, pieces: 0, stops: true, want: "200", from: time.Minute, to: 68 * time.Second},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			synctest.Test(t, func(t *testing.T) {
				text := row.rules
				if text == "" {
					text = pass
				}
				if row.upstream == nil {
					row.upstream = ok
				}
				var log bytes.Buffer
				var total time.Duration
				p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), row.upstream, func(o *proxy.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					if row.change != nil {
						row.change(o)
						total = o.ReadTimeout
					}
				})
				l := serveInMemory(t, p, total)
				if row.rules != "" { // the limit is used up
					_, _, _ = send(t, l, "HTTP/1.1", 0, 0, false)
				}
				got, text, took := send(t, l, protocol, row.pieces, row.every, row.stops)
				if !strings.HasPrefix(got, row.want) {
					t.Errorf("%s, %s: %s, want %s; %s", protocol, row.name, got, row.want, text)
				}
				if took < row.from || took > row.to {
					t.Errorf("%s, %s: answered %s after %s, want from %s to %s", protocol, row.name, got, took, row.from, row.to)
				}
				if blamed := strings.Contains(log.String(), "upstream request failed"); blamed != (row.want == "502") {
					t.Errorf("%s, %s: the log says %s", protocol, row.name, &log)
				}
			})
		}
	}
}

// send sends a body in pieces. It returns the status and field Got of the answer, its
// body if it is an error, and how long it took.
func send(t *testing.T, l *pipes, protocol string, pieces int, every time.Duration, stops bool) (status, text string, took time.Duration) {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
		Protocols:   new(http.Protocols),
	}
	defer transport.CloseIdleConnections()
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := time.Now()
	out, in := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://x.example/", out)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	defer func() {
		_ = out.Close()
		<-sent
	}()
	go func() {
		defer close(sent)
		for range pieces {
			time.Sleep(every)
			if _, err := in.Write([]byte("x")); err != nil {
				return
			}
		}
		if !stops {
			_ = in.Close()
		}
	}()
	res, err := transport.RoundTrip(r)
	took = time.Since(begin)
	if err != nil {
		return err.Error(), "", took
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		text = string(body)
	}
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", res.Header.Get("Got"))), text, took
}

// A client in a dialogue gets all of the answer, and a tunnel may be silent forever.
func TestPausesOfConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, "domain: api\nlimits: []\n", memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Upgrade") == "" {
				return converses(r)
			}
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(there, there) }()
			return &http.Response{
				StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}},
				Body: here, Request: r, ProtoMajor: 1, ProtoMinor: 1,
			}, nil
		})
		l := serveInMemory(t, p, 0)
		for _, row := range []struct{ header, first, then, want string }{
			{"Content-Length: 6\r\n", "abc", "def", "6 <nil>"},
			{"Connection: Upgrade\r\nUpgrade: echo\r\n", "", "ping", "ping"},
		} {
			nc := l.dial()
			write := func(text string) {
				if _, err := io.WriteString(nc, text); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
			go write("PUT / HTTP/1.1\r\nHost: x\r\n" + row.header + "\r\n" + row.first)
			in := bufio.NewReader(nc)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			time.Sleep(time.Hour)
			go write(row.then)
			var body io.Reader = in // of a tunnel
			if res.StatusCode == http.StatusOK {
				body = res.Body
			}
			got := make([]byte, len(row.want))
			if _, err := io.ReadFull(body, got); err != nil || string(got) != row.want {
				t.Errorf("%q: %q, %v, want %q", row.header, got, err, row.want)
			}
			_ = nc.Close()
		}
	})
}

// The rest of a body is never read as another request, no matter who answered or how
// early.
func TestRestsOfBodiesAreNoRequests(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	const text = "domain: api\nlimits:\n" +
		"  - {name: none, rate: 0/hour, match: {path: /refused}}\n" +
		"  - {name: ban, rate: 0/hour, match: {path: /banned}, on_limit: {action: shadow_ban, status: 200}}\n"
	atOnce := func(r *http.Request) (*http.Response, error) { return ok(r) }
	fails := func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }
	for _, path := range []string{"/early", "/refused", "/banned", "/fails", "/slow", "/breaks"} {
		for _, header := range []string{
			"Content-Length: 100", "Content-Length: 1000000", "Transfer-Encoding: chunked", "Content-Length: 100\r\nExpect: 100-continue",
		} {
			for _, pause := range []time.Duration{0, time.Second, 2 * time.Minute} {
				synctest.Test(t, func(t *testing.T) {
					var reached []string
					var mu sync.Mutex
					p := newProxy(t, text, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
						mu.Lock()
						reached = append(reached, r.URL.Path)
						mu.Unlock()
						answers := map[string]upstream{"/fails": fails, "/slow": reads, "/breaks": breaksOff}[r.URL.Path]
						if answers == nil {
							answers = atOnce
						}
						return answers(r)
					})
					nc := serveInMemory(t, p, 0).dial()
					defer func() { _ = nc.Close() }()
					go func() { _, _ = io.Copy(io.Discard, nc) }()
					body := "x"
					if strings.HasPrefix(header, "Transfer") {
						body = "50\r\nx"
					}
					_, _ = io.WriteString(nc, "POST "+path+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n"+body)
					time.Sleep(pause)
					_ = nc.SetWriteDeadline(time.Now().Add(time.Minute))
					_, _ = io.WriteString(nc, smuggled) // it may be closed by now
					_, _ = io.WriteString(nc, smuggled)
					time.Sleep(2 * time.Minute)
					mu.Lock()
					defer mu.Unlock()
					for _, got := range reached {
						if got != path {
							t.Errorf("%s, %q, %s: %s reached the upstream", path, header, pause, got)
						}
					}
					_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := io.WriteString(nc, "x"); err == nil {
						t.Errorf("%s, %q, %s: the connection is still open", path, header, pause)
					}
				})
			}
		}
	}
}
