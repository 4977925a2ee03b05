package netbound_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/netbound"
)

// A draining listener accepts established connections, and no others, and then waits to
// be closed.
func TestDrain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("connections that wait to be accepted are reset here")
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			inner, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			l := netbound.Watch(inner, slog.New(slog.DiscardHandler))
			const most = 7
			var clients []net.Conn
			for range most {
				c, err := net.Dial(network, inner.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, "x")
				clients = append(clients, c)
			}
			drained := make(chan struct{})
			go func() {
				l.Drain(t.Context())
				close(drained)
			}()
			for range most {
				nc, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if nc.RemoteAddr().Network() != network {
					t.Errorf("from %v", nc.RemoteAddr())
				}
				if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(nc, "y")
				_ = nc.Close()
			}
			ended := make(chan error)
			go func() {
				_, err := l.Accept()
				ended <- err
			}()
			<-drained
			if c, err := net.Dial(network, inner.Addr().String()); err == nil {
				_ = c.Close()
				t.Error("it is open")
			}
			select {
			case err := <-ended:
				t.Errorf("Accept returned %v before Close", err)
			default:
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept ends with %v", err)
			}
			for _, c := range clients {
				if got, err := io.ReadAll(c); err != nil || string(got) != "y" {
					t.Errorf("%q, %v", got, err)
				}
			}
			if l.Failed() != 0 {
				t.Error("it counts as a failure")
			}
		})
	}
}

// If Accept is not running, Drain does not wait for it, and the connections are closed.
func TestDrainWithoutAccept(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := netbound.Watch(inner, slog.New(slog.DiscardHandler))
	c, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	l.Drain(t.Context())
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if !hungUp(c) {
		t.Error("it is open")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Quiet ends when all connections have been idle for that long, or are closed, and at
// most after twice that time.
func TestQuiet(t *testing.T) {
	const idle = time.Second
	for _, row := range []struct {
		name string
		plot func(l *netbound.Listener, nc net.Conn)
		want time.Duration
	}{
		{"idle since long", func(l *netbound.Listener, nc net.Conn) {
			l.ConnState(nc, http.StateActive)
			l.ConnState(nc, http.StateIdle)
			time.Sleep(time.Hour)
		}, idle},
		{"new", func(l *netbound.Listener, nc net.Conn) { l.ConnState(nc, http.StateNew) }, idle},
		{"behind a shared port", func(l *netbound.Listener, nc net.Conn) { l.Follow(nc, http.StateNew) }, idle},
		{"not HTTP", func(*netbound.Listener, net.Conn) {}, 0},
		{"gone", func(l *netbound.Listener, nc net.Conn) {
			l.ConnState(nc, http.StateIdle)
			time.AfterFunc(300*time.Millisecond, func() { _ = nc.Close() })
		}, 300 * time.Millisecond},
		{"idle after work", func(l *netbound.Listener, nc net.Conn) {
			l.ConnState(nc, http.StateActive)
			time.AfterFunc(300*time.Millisecond, func() { l.ConnState(nc, http.StateIdle) })
		}, idle + 300*time.Millisecond},
		{"one more request", func(l *netbound.Listener, nc net.Conn) {
			l.ConnState(nc, http.StateIdle)
			time.AfterFunc(300*time.Millisecond, func() { l.ConnState(nc, http.StateActive) })
			time.AfterFunc(400*time.Millisecond, func() { _ = nc.Close() })
		}, 400 * time.Millisecond},
		{"at work for long", func(l *netbound.Listener, nc net.Conn) { l.ConnState(nc, http.StateActive) }, 2 * idle},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = far.Close() }()
			l := netbound.New(single{conn: near}, netbound.Options{Max: 1, Logger: slog.New(slog.DiscardHandler)})
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			row.plot(l, nc)
			begin := time.Now()
			l.Quiet(t.Context(), idle)
			if d := time.Since(begin); d < row.want || d > row.want+20*time.Millisecond {
				t.Errorf("%s: %s, want %s", row.name, d, row.want)
			}
			_ = nc.Close()
		})
	}
}
