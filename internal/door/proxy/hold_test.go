package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/store/memory"
)

const holdRules = `
domain: api
limits:
  - {name: exports, match: {path: /exports}, concurrency: 1, lease: 10s}
`

// body is the body of an upstream's answer, which reports its reads and its end.
type body struct {
	read func() error
	sent bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.sent {
		return 0, io.EOF
	}
	b.sent = true
	return copy(p, "x"), b.read()
}

func (b *body) Close() error { return nil }

// A slot is freed when its request ends, in whatever way, and not before.
func TestPlacesAreHeldUntilTheResponseIsDone(t *testing.T) {
	stream := func(read func() error) upstream {
		return func(r *http.Request) (*http.Response, error) {
			res, err := ok(r)
			res.Body = &body{read: read}
			return res, err
		}
	}
	for name, to := range map[string]upstream{
		"answered at once": ok,
		"a stream that outlives the lease": stream(func() error {
			time.Sleep(time.Minute)
			return nil
		}),
		"a stream that breaks off": stream(func() error { return errors.New("reset") }),
		"an upstream that is down": func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") },
		"an upstream that panics":  func(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) },
		"a client that goes away": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entered := make(chan struct{}, 1)
				p := newProxy(t, holdRules, memory.New(memory.WithClock(time.Now)), func(r *http.Request) (*http.Response, error) {
					entered <- struct{}{}
					time.Sleep(time.Second)
					return to(r)
				})
				ctx, leave := context.WithTimeout(t.Context(), 50*time.Second)
				defer leave()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }() // as net/http does
					p.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", "/exports"))
				}()
				<-entered
				ask := func() int {
					w := httptest.NewRecorder()
					p.ServeHTTP(w, request(t.Context(), "POST", "/exports"))
					return w.Code
				}
				if got := ask(); got != http.StatusTooManyRequests {
					t.Errorf("a second of one: %d", got)
				}
				ended := false
				for range 6 { // longer than a lease without renewal
					time.Sleep(9 * time.Second)
					select {
					case <-done:
						ended = true
					default:
					}
					if ended {
						break
					}
					if got := ask(); got != http.StatusTooManyRequests {
						t.Errorf("the request goes on and its place is free: %d", got)
					}
				}
				<-done
				go leave()
				next := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }()
					short, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					p.ServeHTTP(next, request(short, "GET", "/exports"))
				}()
				if next.Code == http.StatusTooManyRequests {
					t.Error("the request has ended and its place is not free")
				}
			})
		})
	}
}

// An upgraded connection is in progress until both ends are closed.
func TestTunnelsHoldTheirPlaces(t *testing.T) {
	server, wire := newPipe()
	p := newProxy(t, holdRules, memory.New(), func(r *http.Request) (*http.Response, error) {
		res, err := ok(r)
		res.StatusCode = http.StatusSwitchingProtocols
		res.Header.Set("Upgrade", "websocket")
		res.Header.Set("Connection", "Upgrade")
		res.Body = wire
		return res, err
	})
	front := httptest.NewServer(p)
	defer front.Close()
	dial := func() (int, io.ReadWriteCloser) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/exports", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Connection", "Upgrade")
		res, err := front.Client().Do(r) //nolint:bodyclose // it is the tunnel, or empty
		if err != nil {
			t.Fatal(err)
		}
		tunnel, _ := res.Body.(io.ReadWriteCloser)
		return res.StatusCode, tunnel
	}
	status, tunnel := dial()
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %d", status)
	}
	if _, err := tunnel.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, []byte("ping")) {
		t.Fatalf("%q, %v", got, err)
	}
	if status, _ := dial(); status != http.StatusTooManyRequests {
		t.Errorf("a second tunnel of one: %d", status)
	}
	_ = tunnel.Close()
	_ = server.Close()
	deadline := time.Now().Add(20 * time.Second)
	for status = http.StatusTooManyRequests; status == http.StatusTooManyRequests && time.Now().Before(deadline); {
		w := httptest.NewRecorder()
		r := request(t.Context(), http.MethodGet, "/exports")
		p.ServeHTTP(w, r)
		status = w.Code
	}
	if status == http.StatusTooManyRequests {
		t.Error("the tunnel is closed and its place is not free")
	}
}

// pipe is a connection in memory.
type pipe struct {
	io.Reader
	io.Writer
	close func()
}

func (p *pipe) Close() error { p.close(); return nil }

func newPipe() (a, b *pipe) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	end := func() { _ = bw.Close(); _ = aw.Close() }
	return &pipe{ar, aw, end}, &pipe{br, bw, end}
}
