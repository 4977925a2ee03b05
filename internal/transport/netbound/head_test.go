package netbound_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
	"github.com/headgate/headgate/internal/transport/netbound"
)

// inMemory is a listener in memory.
type inMemory chan net.Conn

func (p inMemory) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p inMemory) Close() error {
	close(p)
	return nil
}

func (inMemory) Addr() net.Addr { return &net.UnixAddr{} }

// TestHeadersInMemory: headers of many small fields that never end take as much memory as
// there is for them. Others get an answer meanwhile, with a large header after a second, and
// what ends is released.
func TestHeadersInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		room := membound.New(membound.Options{Most: most})
		inner := make(inMemory)
		l := netbound.New(inner, netbound.Options{Max: 100, Logger: slog.New(slog.DiscardHandler), Heads: room})
		server := &http.Server{
			Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
			ConnState: l.ConnState,
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		var fields strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&fields, "a%04d:\r\n", i)
		}
		// begin sends the start of a request, and returns nil if the connection is closed.
		begin := func(size int) net.Conn {
			mine, theirs := net.Pipe()
			inner <- theirs
			_, _ = io.WriteString(mine, "GET / HTTP/1.1\r\nHost: x\r\n"+fields.String()[:size/8*8])
			synctest.Wait()
			_ = mine.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := mine.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			_ = mine.SetReadDeadline(time.Time{})
			return mine
		}
		finish := func(c net.Conn) error {
			if c == nil {
				return net.ErrClosed
			}
			if _, err := io.WriteString(c, "\r\n"); err != nil {
				return err
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				err = res.Body.Close()
			}
			synctest.Wait() // until the server knows that the request has ended
			return err
		}
		var stay []net.Conn
		for range 20 {
			if c := begin(8 << 10); c != nil {
				stay = append(stay, c)
			}
			if held := room.Held(); held > most {
				t.Errorf("%d bytes are held", held)
			}
		}
		if len(stay) != 11 { // each is counted with twice its text, and 100 bytes a field, above 2 KiB
			t.Errorf("%d large headers at once", len(stay))
		}
		if err := finish(begin(1 << 10)); err != nil {
			t.Errorf("a small one meanwhile: %v", err)
		}
		if begin(7<<10) != nil {
			t.Error("a large one is received, although there is no memory and nobody is slow")
		}
		time.Sleep(2 * time.Second)
		if err := finish(begin(7 << 10)); err != nil {
			t.Errorf("a large one while there are slow ones: %v", err)
		}
		ended := 0
		for _, c := range stay {
			if finish(c) == nil {
				ended++
			}
		}
		if ended != len(stay)-1 {
			t.Errorf("%d of %d were answered, want all but the one that made room", ended, len(stay))
		}
		var cookies []net.Conn // each as large as what many small fields would be too much for
		for range 20 {
			mine, theirs := net.Pipe()
			inner <- theirs
			_, _ = io.WriteString(mine, "GET / HTTP/1.1\r\nHost: x\r\nCookie: "+strings.Repeat("x", 16<<10)+"\r\n")
			cookies = append(cookies, mine)
		}
		for _, c := range cookies {
			if err := finish(c); err != nil {
				t.Errorf("a large cookie: %v", err)
			}
		}
		if held := room.Held(); held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestHeadersOfRequestsInProgress: what a header takes counts until its request ends. Large ones
// that have waited long give way to those of others.
func TestHeadersOfRequestsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		room := membound.New(membound.Options{Most: most})
		inner := make(inMemory)
		l := netbound.New(inner, netbound.Options{Max: 1000, Logger: slog.New(slog.DiscardHandler), Heads: room})
		answers := make(chan struct{})
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					<-answers
				}
				w.WriteHeader(http.StatusNoContent)
			}),
			ConnState: l.ConnState,
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		send := func(path string) net.Conn {
			mine, theirs := net.Pipe()
			inner <- theirs
			_, _ = io.WriteString(mine, "GET "+path+" HTTP/1.1\r\nHost: x\r\nCookie: "+strings.Repeat("x", 32<<10)+"\r\n\r\n")
			synctest.Wait()
			return mine
		}
		var waiting []net.Conn
		for range 100 { // each 30 KiB above what is free
			waiting = append(waiting, send("/wait"))
			time.Sleep(time.Second)
		}
		if held := room.Held(); held > most || held < most-64<<10 {
			t.Errorf("%d bytes are held by requests in progress", held)
		}
		res, err := http.ReadResponse(bufio.NewReader(send("/")), nil)
		if err != nil {
			t.Fatalf("another: %v", err)
		}
		_ = res.Body.Close()
		close(answers)
		answered := 0
		for _, c := range waiting {
			if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				_ = res.Body.Close()
				answered++
			}
		}
		if answered < 30 || answered > 34 {
			t.Errorf("%d of those that waited were answered", answered)
		}
		synctest.Wait()
		if held := room.Held(); held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestHellosOfTLS: after the first message of the client, only a server that asks for a
// certificate lets more than usual arrive uncounted.
func TestHellosOfTLS(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		asks tls.ClientAuthType
		want int64
	}{{tls.NoClientCert, 3000 + 2<<10}, {tls.RequireAndVerifyClientCert, 8 << 10}} {
		inner := make(inMemory, 1)
		mine, theirs := net.Pipe()
		inner <- theirs
		room := membound.New(membound.Options{Most: 1 << 20})
		counted, err := netbound.New(inner, netbound.Options{Max: 1, Logger: slog.New(slog.DiscardHandler), Heads: room}).Accept()
		if err != nil {
			t.Fatal(err)
		}
		own := &tls.Config{ClientAuth: row.asks}
		own.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
		own = netbound.Greeting(own)
		netbound.Begin(tls.Server(counted, own))
		go func() { _, _ = mine.Write(make([]byte, 3000)) }()
		if _, err := io.ReadFull(counted, make([]byte, 3000)); err != nil {
			t.Fatal(err)
		}
		if _, err := own.GetConfigForClient(&tls.ClientHelloInfo{Conn: counted}); err != nil {
			t.Fatal(err)
		}
		if got := netbound.Free(counted); got != row.want {
			t.Errorf("client certificates %v: %d bytes are free, want %d", row.asks, got, row.want)
		}
		_ = mine.Close()
	}
}

// wrapped is a connection as a shared port passes it on.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// TestFieldsBehindTLS: what is encrypted when it is counted has no lines to count, whatever
// wraps the connection.
func TestFieldsBehindTLS(t *testing.T) {
	t.Parallel()
	inner := make(inMemory, 1)
	mine, theirs := net.Pipe()
	defer func() { _ = mine.Close() }()
	inner <- theirs
	counted, err := netbound.New(inner, netbound.Options{Max: 1, Logger: slog.New(slog.DiscardHandler)}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	above := tls.Server(counted, new(tls.Config))
	for _, row := range []struct {
		name string
		nc   net.Conn
		want bool
	}{
		{"plain", counted, false},
		{"plain, wrapped", wrapped{counted}, false},
		{"TLS", above, true},
		{"TLS, wrapped", wrapped{wrapped{above}}, true},
	} {
		if got := netbound.Hides(row.nc); got != row.want {
			t.Errorf("%s: hidden is %t", row.name, got)
		}
	}
}

// TestBodiesBetweenRequests: with HTTP/2, what arrives while no request is in progress may be
// the body of a refused one, so it counts as what a header takes at most.
func TestBodiesBetweenRequests(t *testing.T) {
	const most = 128 << 10
	room := membound.New(membound.Options{Most: 1 << 20})
	inner := make(inMemory)
	l := netbound.New(inner, netbound.Options{Max: 10, Logger: slog.New(slog.DiscardHandler), Heads: room})
	mine, theirs := net.Pipe()
	go func() { inner <- theirs }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(mine, io.LimitReader(zeros{}, 4<<20))
		_ = mine.Close()
	}()
	l.ConnState(c, http.StateNew)
	netbound.Framed(c, most)
	for range 2 {
		l.ConnState(c, http.StateIdle)
		if _, err := io.CopyN(io.Discard, c, 2<<20); err != nil {
			t.Fatalf("a body between requests: %v", err)
		}
		if held := room.Held(); held != most {
			t.Errorf("%d bytes are held, want %d", held, most)
		}
		l.ConnState(c, http.StateActive)
		if held := room.Held(); held != 0 {
			t.Errorf("%d bytes are held by a request", held)
		}
	}
}

// zeros is an endless text.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
